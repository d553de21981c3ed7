//! TCP and UDP sockets, as an image has them.

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

use crate::bytes::Bytes;

/// A TCP or UDP socket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inet {
    /// Whether it is one of IPv6.
    pub six: bool,
    /// Whether it speaks Multipath TCP with who can. No connection does.
    #[serde(default)]
    pub multipath: bool,
    /// The address that it is bound to.
    pub name: Option<SocketAddr>,
    /// What it is doing.
    pub role: InetRole,
    /// The multicast groups that it has joined.
    #[serde(default)]
    pub groups: Vec<Group>,
}

/// A multicast group that a socket has joined (`struct group_filter` of RFC 3678).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// The name of the interface at which it hears the group.
    pub interface: String,
    /// The address of the group.
    pub address: IpAddr,
    /// Whether it hears only these senders; else all but these.
    pub only: bool,
    /// Addresses of senders.
    pub sources: Vec<IpAddr>,
}

/// What a TCP or UDP socket is doing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum InetRole {
    /// TCP that is not connected.
    Idle,
    /// TCP that listens.
    Listens {
        /// How many connections may wait.
        backlog: u32,
    },
    /// TCP that is connected.
    Connected(Box<Connection>),
    /// TCP that is connected with a socket of the tree that listens, and that nobody has accepted yet. Nothing was
    /// sent.
    Waits {
        /// The address of the socket that listens.
        peer: SocketAddr,
    },
    /// TCP that is about to be connected.
    Connects {
        /// With whom.
        peer: SocketAddr,
    },
    /// TCP that was connected, and that both ends have closed.
    Ended {
        /// What has arrived and was not received.
        received: Bytes,
    },
    /// UDP.
    Datagrams {
        /// The only address that it has to do with, if it is connected.
        peer: Option<SocketAddr>,
        /// What has arrived and was not received, the oldest first.
        #[serde(default)]
        queue: Vec<Datagram>,
    },
}

/// A datagram of UDP that has arrived.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Datagram {
    /// Who has sent it.
    pub from: SocketAddr,
    /// What it says.
    pub bytes: Bytes,
}

/// A TCP connection, by what `TCP_REPAIR` tells and takes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connection {
    /// The address at the other end.
    pub peer: SocketAddr,
    /// What has arrived and was not received.
    pub received: Bytes,
    /// The number of the byte behind it.
    pub receive_next: u32,
    /// What was written and was not acknowledged.
    pub written: Bytes,
    /// The number of the byte behind it.
    pub write_next: u32,
    /// How many of those bytes were never sent.
    pub unsent: u32,
    /// `struct tcp_repair_window`.
    pub window: [u32; 5],
    /// The largest segment.
    pub segment_bytes: u32,
    /// By how many bits the windows to send and to receive are shifted, if that was agreed on.
    pub scales: Option<(u8, u8)>,
    /// Whether selective acknowledgements were agreed on.
    pub selective: bool,
    /// The clock of timestamps, if they were agreed on (see `timestamps.rs`).
    pub timestamp: Option<u32>,
    /// Whether no more will be sent.
    pub has_sent_all: bool,
    /// Whether no more will arrive.
    pub has_received_all: bool,
    /// Whether it had received all before it had sent all.
    #[serde(default)]
    pub ended_last: bool,
}
