//! What goes over the sockets between a domain's process and its file server, in packets
//! (`SOCK_SEQPACKET`). Numbers are the host's own.
//!
//! On the *control* socket, first, from the domain: a [`Header`], [`Region`]s of guest memory and
//! [`ShareRecord`]s, with descriptors: the memory's file, and for each share its directory and the
//! end of its socket. Then [`Command`]s, each with a descriptor of a file; the server answers with one byte,
//! 1 if it was done. The end of the control socket is the server's end.
//!
//! On a *share's* socket: from the domain a [`Request`] with the [`Range`]s of one chain of
//! descriptors, first those that may be read; from the server a [`Reply`] for each.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Bytes of the longest message.
pub const MAX_MESSAGE_BYTES: usize = 32 << 10;

/// Ranges of one request.
pub const MAX_RANGES: usize = 1024;

/// Shares of one server: as many as descriptors fit into one message (`SCM_MAX_FD` is 253).
pub const MAX_SHARES: usize = 32;

/// What the domain and its server, who are one program, agree upon.
pub const VERSION: u32 = 1;

/// The beginning of the first message.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Header {
    /// [`VERSION`].
    pub version: u32,
    /// How many regions follow.
    pub regions: u32,
    /// How many shares follow them.
    pub shares: u32,
    /// 1: there are cores to spare for who watches for requests.
    pub may_watch: u32,
}

/// Guest memory.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Region {
    /// The first guest-physical address.
    pub guest: u64,
    /// Bytes.
    pub bytes: u64,
    /// Where it is in the file.
    pub offset: u64,
}

/// One share.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ShareRecord {
    /// How long names and attributes may be kept, in milliseconds.
    pub validity: u64,
    /// 1: may be written.
    pub writable: u32,
    /// User and group on the host and what they are in the guest, which change places.
    pub host_user: u32,
    /// See above.
    pub host_group: u32,
    /// See above.
    pub guest_user: u32,
    /// See above.
    pub guest_group: u32,
    /// Zero.
    pub reserved: u32,
}

/// What is asked of the server of all of a share, while nothing else is.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Command {
    /// One of [`command`].
    pub kind: u32,
    /// Of which share.
    pub share: u32,
}

/// Kinds of commands.
pub mod command {
    /// Write what the guest knows of the share into the file.
    pub const SAVE: u32 = 1;
    /// Go on from what the file says.
    pub const RESTORE: u32 = 2;
    /// Of no share: give the file, which has none, the name that follows the command, in the directory
    /// whose descriptor comes second. (The domain's process can give no names.)
    pub const NAME: u32 = 3;
}

/// The beginning of a request.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Request {
    /// Whose answer it will be.
    pub token: u64,
    /// Ranges that may be read.
    pub readable: u32,
    /// Ranges that may be written, after these.
    pub writable: u32,
}

/// A range of guest-physical addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Range {
    /// The first.
    pub address: u64,
    /// Bytes.
    pub bytes: u64,
}

/// The answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Reply {
    /// To which request.
    pub token: u64,
    /// Bytes that were written, from the first on.
    pub bytes: u64,
}
