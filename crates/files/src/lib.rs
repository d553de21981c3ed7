//! Directories of the host in a guest: a FUSE server for virtio-fs, in a process of its own.
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
//! 1. *The domain's process is not trusted, and opens nothing.* It sends addresses of guest memory
//!    through shared rings (`ring.rs`). The server checks the addresses, and reads and writes guest
//!    memory itself. Nothing is copied on the way: the host's kernel moves data between files and
//!    guest memory.
//! 2. *The server reaches nothing outside of a share.* The share's directory is a descriptor. Every
//!    other file is opened by one name beneath the descriptor of a directory (`RESOLVE_BENEATH`, no
//!    links followed), or is one of those. The server opens only regular files and directories; it
//!    shows the file systems of the host's kernel (proc, sysfs, ...) as empty directories. The file
//!    `server/inodes.rs` has the details.
//! 3. *The guest's kernel checks permissions* of its users (`default_permissions`), and the host's
//!    kernel checks those of the user who runs the server, or of the superuser of a user namespace
//!    that the server has entered. The server refuses every change to a
//!    read-only share.
//! 4. *The guest may cache names and attributes* for a time that is set for each share, because the
//!    host may change files too. It invalidates contents when size or time of a file have changed,
//!    also where the server notices that when the guest opens the file (`server/version.rs`). If
//!    nothing else changes the files, by the user's word or by ours, the guest caches them for as
//!    long as it likes, and may write back later ([`Share::is_exclusive`],
//!    [`Share::is_written_back`]). That is between the guest and the user: the server does not rely
//!    on it, and a guest that lies about it harms its own files.
//! 5. *A request may be anything.* Unknown numbers are stale, lengths are checked, and the worst
//!    that a guest can get is a wrong answer.

#![forbid(unsafe_code)]

pub mod client;
pub mod kinds;
mod limits;
mod message;
pub mod owner;
mod ring;
pub mod server;
mod wire;

pub use client::{Connection, Owners, Share};
pub use limits::{MAX_RANGES, MAX_SHARES};
pub use message::{Range, Reply};
pub use wire::opcode::{is_brief as request_is_brief, name as request_name};

/// The host's clock that both sides of a share read.
fn monotonic_nanoseconds() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
