//! The interface to Linux.
//!
//! This crate imports none of ours. It is one of the three that may contain `unsafe`: it maps
//! memory, and a mapping is something that no type can check; it makes system calls that no safe
//! crate offers. Each `unsafe` block is short and says what makes it sound.
//!
//! - [`memory`]: a guest's physical memory, one sealed `memfd` mapped region by region.
//! - [`backing`]: guest memory that is fetched when it is touched.
//! - [`available`]: how much memory the host can still give, by its own account and by that of the
//!   control groups of this process.
//! - [`environment`]: the environment variables of this process.
//! - [`inherited`]: descriptors that this process has inherited, and how many it may have.
//! - [`privileges`]: capabilities of root that a process drops.
//! - [`layout`]: the mappings of this process.
//! - [`listener`]: Unix sockets that listen at a path.
//! - [`lifeline`]: what continues a stopped process when who has stopped it is no more.
//! - [`usage`]: the time that a process has had of processors; bytes that this one has read from disks and written to
//!   them.
//! - [`subordinate`]: the users that a user may be besides himself, and a namespace of them.
//! - [`shared`]: words that several processes share.
//! - [`duplex`]: a stream between two processes, in memory that both have.
//! - [`vectored`]: vectored I/O between files and guest memory.
//! - [`mounts`]: trees of mounts that are not attached.
//! - [`rights`]: descriptors that go with bytes on sockets.
//! - [`message`]: the same with a socket, beside bytes of our own.
//! - [`tap`]: TAP interfaces.
//! - [`packets`]: questions and answers on Unix sockets of packets.
//! - [`peer`]: who is at the other end of a Unix socket.
//! - [`poll`]: waiting for descriptors.
//! - [`mod@watch`]: polling for a moment where waking a thread costs more.
//! - [`processes`]: other processes, traced: what they have, and driving them.
//! - [`confine`]: the system calls that a running machine's process may still make.
//! - [`limits`]: every limit of this crate.

pub mod available;
pub mod backing;
pub mod buffer;
pub mod confine;
pub mod duplex;
pub mod environment;
pub mod inherited;
pub mod layout;
pub mod lifeline;
pub mod limits;
pub mod listener;
pub mod memory;
pub mod message;
pub mod mounts;
pub mod nameless;
pub mod packets;
pub mod peer;
pub mod poll;
pub mod privileges;
pub mod processes;
pub mod rights;
pub mod shared;
pub mod standard_streams;
pub mod subordinate;
pub mod tap;
pub mod usage;
pub mod vectored;
pub mod watch;

pub use available::Available;
pub use buffer::{Buffer, open_regular, open_regular_to_write};
pub use inherited::raise_descriptor_limit;
pub use lifeline::continue_at_hang_up;
pub use limits::SPARE_PAGES;
pub use memory::{Error, GuestMemory, RawRegion};
pub use poll::Poller;
pub use shared::SharedPage;
pub use usage::{moved_bytes, process_time};
pub use watch::{Patience, watch};
