//! Directories of the host as a guest sees them: a FUSE server for virtio-fs, in a process of its own.
//!
//! ```text
//!  guest's driver -- rings --> domain's process -- requests' addresses --> file server -- openat2 --> host
//!        ^                          |   ^                                      |
//!        '----- used ring ----------'   '------------ replies -----------------'
//!                          guest memory: one memfd, mapped by both
//! ```
//!
//! What rules it:
//!
//! 1. *The domain's process is not trusted, and opens nothing.* It sends addresses of guest memory, through
//!    rings that both have (`ring.rs`); the server checks them, and reads and writes there itself. Nothing is
//!    copied on the way: the host's kernel moves data between files and guest memory.
//! 2. *Nothing outside of a share is reached.* The share's directory is a descriptor; every other file is
//!    opened by one name beneath the descriptor of a directory (`RESOLVE_BENEATH`, no links followed)
//!    or is one of those. Only regular files and directories are opened; what is special to the host's
//!    kernel (proc, sysfs, ...) is shown as an empty directory. The file `server/inodes.rs` has the details.
//! 3. *The guest's kernel judges permissions* of its users (`default_permissions`), and the host's
//!    judges those of who runs us. A read-only share is refused every change here.
//! 4. *The guest may believe* what it knows of names and attributes for a time that is set for
//!    each share, because the host may change files too; contents that it has are dropped when size
//!    or time of a file have changed, also where that is seen when the file is opened (`server/version.rs`).
//!    Where nobody else changes anything, as the user says or we know, it believes it for as long as it likes, and
//!    may write later ([`Share::is_exclusive`], [`Share::is_written_back`]). That is between the guest and the
//!    user: nothing here relies on it, and a guest that lies about it harms its own files.
//! 5. *A request may be anything.* Numbers that we do not know are stale, lengths are checked, and
//!    the worst that a guest can have is a wrong answer.

#![forbid(unsafe_code)]

pub mod client;
pub mod kinds;
mod limits;
mod message;
pub mod owner;
mod ring;
pub mod server;
mod wire;

pub use client::{Connection, Share};
pub use limits::{MAX_RANGES, MAX_SHARES};
pub use message::{Range, Reply};
pub use wire::opcode::{is_brief as request_is_brief, name as request_name};

/// The host's clock that both sides of a share read.
fn monotonic_nanoseconds() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
