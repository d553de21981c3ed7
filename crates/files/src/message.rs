//! Messages between a domain's process and its file server. Numbers are in the host's byte order.
//!
//! On the *control* socket the domain sends packets (`SOCK_SEQPACKET`), each of which begins with a
//! [`Command`]: first [`command::INTRODUCE`]; then commands that the server answers with one byte,
//! 1 if it has carried the command out. The server ends when the control socket is closed.
//!
//! In a *share's* rings the domain sends a [`Request`] with the [`Range`]s of one descriptor chain,
//! the readable ones first; the server sends a [`Reply`] for each.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// What the domain and its server, who are one program, agree upon.
pub const VERSION: u32 = 7;

/// What follows the command [`command::INTRODUCE`].
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Header {
    /// [`VERSION`].
    pub version: u32,
    /// How many regions follow.
    pub regions: u32,
    /// How many shares follow them.
    pub shares: u32,
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
    /// Of [`flags`].
    pub flags: u64,
    /// User and group on the host and what they are in the guest, which change places.
    pub host_user: u32,
    /// See above.
    pub host_group: u32,
    /// See above.
    pub guest_user: u32,
    /// See above.
    pub guest_group: u32,
}

/// What a share allows.
pub mod flags {
    /// It may be written.
    pub const WRITABLE: u64 = 1;
    /// Files may be given set-user-ID and set-group-ID bits and `security.*` attributes.
    pub const ALLOWS_PRIVILEGES: u64 = 2;
    /// File systems of unknown kinds are shown.
    pub const ALLOWS_UNKNOWN_KINDS: u64 = 4;
    /// Credentials in home directories, and what is the host's own, are left out.
    pub const HIDES_SECRETS: u64 = 8;
    /// Its files belong to the owners in their attributes ([`crate::owner`]).
    pub const HAS_OWNERS: u64 = 16;
    /// Nobody but the guest changes it.
    pub const EXCLUSIVE: u64 = 32;
    /// What the guest's programs write may come later, if it is exclusive.
    pub const WRITTEN_BACK: u64 = 128;
    /// The guest is told that files have no extended attributes.
    pub const WITHOUT_ATTRIBUTES: u64 = 64;
    /// A guest that goes on may find another directory.
    pub const MAY_BE_ANOTHER: u64 = 256;
    /// The guest's driver speaks 9P2000.L, and not FUSE.
    pub const NINE: u64 = 512;
}

/// The beginning of each message on the control socket.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Command {
    /// One of [`command`].
    pub kind: u32,
    /// Of which share, if of one.
    pub share: u32,
}

/// Kinds of commands.
pub mod command {
    /// Write what the guest knows of the share into the file whose descriptor comes along.
    pub const SAVE: u32 = 1;
    /// Go on from what the file says whose descriptor comes along. Once, before the guest asks for anything.
    pub const RESTORE: u32 = 2;
    /// A [`super::Header`], [`super::Region`]s of guest memory and [`super::ShareRecord`]s follow, with
    /// descriptors: the memory's file, and for each share its directory, the file of its rings and the end of
    /// its socket ([`crate::ring`]). Once. It is not answered.
    pub const INTRODUCE: u32 = 3;
}

/// The beginning of a request.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Request {
    /// Whose answer it will be.
    pub token: u64,
    /// When it was sent, by the host's monotonic clock, in nanoseconds. It decides for how long the server watches
    /// for the next one, and nothing else.
    pub sent: u64,
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
