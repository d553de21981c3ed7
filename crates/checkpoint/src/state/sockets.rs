//! Sockets, as an image has them.

use serde::{Deserialize, Serialize};

use super::inet::Inet;
use crate::bytes::Bytes;

/// A socket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Socket {
    /// Its options (getsockopt(2)), of those that are kept.
    pub options: Vec<SocketOption>,
    /// The rest, by what it speaks.
    pub protocol: Protocol,
}

/// An option of a socket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SocketOption {
    /// The level (`SOL_*`).
    pub level: i32,
    /// Its number.
    pub name: i32,
    /// Its value, as getsockopt(2) says it.
    pub value: Bytes,
}

/// What a socket speaks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Protocol {
    /// Among processes of one host (unix(7)).
    Unix(Unix),
    /// TCP or UDP (tcp(7), udp(7)).
    Inet(Inet),
}

/// A Unix socket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unix {
    /// What is sent over it.
    pub kind: UnixKind,
    /// Its name, if it has one.
    pub name: Option<UnixName>,
    /// What it is doing.
    pub role: UnixRole,
    /// Which directions are shut down: bit 0 to receive, bit 1 to send.
    pub shutdown: u8,
    /// What has arrived and was not received.
    pub queue: Vec<Message>,
    /// Who is told to be at its other end (`SO_PEERCRED`); of one that listens, who made it listen.
    pub peer_is: Option<Who>,
}

/// What is sent over a Unix socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum UnixKind {
    /// `SOCK_STREAM`.
    Stream,
    /// `SOCK_DGRAM`.
    Datagrams,
    /// `SOCK_SEQPACKET`.
    Packets,
}

/// The name of a Unix socket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum UnixName {
    /// One in a space of its own, without the zero that it begins with.
    Abstract(Bytes),
    /// One in the file system.
    Path {
        /// As it was bound.
        path: String,
        /// Where it began, if it is relative.
        directory: Option<String>,
        /// The file that leads to this socket; none if there is none any more, or if it is another socket's.
        file: Option<UnixFile>,
    },
}

/// The file that leads to a Unix socket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnixFile {
    /// Permissions.
    pub mode: u32,
    /// Its owner.
    pub user: u32,
    /// Its group.
    pub group: u32,
}

/// What a Unix socket is doing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum UnixRole {
    /// Nothing.
    Idle,
    /// It listens.
    Listens {
        /// How many connections may wait.
        backlog: u32,
        /// The sockets that wait to be accepted, in order: places in [`State::sockets`](crate::state::State::sockets);
        /// none for those that were closed meanwhile.
        waiting: Vec<Option<usize>>,
    },
    /// It waits to be accepted.
    Waits {
        /// Who has connected it.
        by: Who,
    },
    /// It is connected.
    Connected {
        /// With the socket at this place of [`State::sockets`](crate::state::State::sockets).
        peer: usize,
    },
    /// It is connected with a socket that is no more.
    Left {
        /// That one's name.
        name: Option<UnixName>,
        /// Whether it is still to be told that what it had sent was not received (`ECONNRESET`).
        #[serde(default)]
        reset: bool,
    },
}

/// A process as sockets tell of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Who {
    /// Its number; 0 if it has none here.
    pub pid: u32,
    /// Its user.
    pub user: u32,
    /// Its group.
    pub group: u32,
}

/// What has arrived at a Unix socket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// The bytes.
    pub bytes: Bytes,
    /// The name of the socket that has sent it, of datagrams.
    pub from: Option<UnixName>,
    /// Who has sent it, if the receiver asks for that (`SO_PASSCRED`).
    pub by: Option<Who>,
    /// Descriptors that go with it: places in [`State::descriptions`](crate::state::State::descriptions).
    pub files: Vec<usize>,
}
