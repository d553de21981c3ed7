//! What we ask of Linux.
//!
//! This crate imports none of ours. It is one of the three that may contain `unsafe`: it maps
//! memory, and a mapping is something that no type can check; it talks to the kernel where no safe
//! crate does. Each `unsafe` block is short
//! and says what makes it sound.
//!
//! - [`memory`]: a guest's physical memory, one sealed `memfd` mapped region by region.
//! - [`backing`]: guest memory that is fetched when it is touched.
//! - [`available`]: how much memory the host could still give us, by its own account and by that of
//!   the control groups that we are in.
//! - [`environment`]: the variables that this process was started with.
//! - [`inherited`]: descriptors that this process was started with, and how many it may have.
//! - [`privileges`]: capabilities of root's that a process does without.
//! - [`layout`]: where this process has its memory.
//! - [`usage`]: what this process has moved from and to disks.
//! - [`vectored`]: files read into guest memory and written from it.
//! - [`message`]: the same with a socket, beside bytes of our own.
//! - [`tap`]: network interfaces whose other end we are.
//! - [`poll`]: waiting for descriptors.
//! - [`mod@watch`]: watching, where waking costs more.
//! - [`confine`]: what a running machine's process may still ask of the kernel.

pub mod available;
pub mod backing;
pub mod buffer;
pub mod confine;
pub mod environment;
pub mod inherited;
pub mod layout;
pub mod memory;
pub mod message;
pub mod poll;
pub mod privileges;
pub mod standard_streams;
pub mod tap;
pub mod usage;
pub mod vectored;
pub mod watch;

pub use available::Available;
pub use buffer::{Buffer, open_regular};
pub use inherited::raise_descriptor_limit;
pub use memory::{Error, GuestMemory, RawRegion, SPARE_PAGES};
pub use poll::Poller;
pub use usage::moved_bytes;
pub use watch::watch;
