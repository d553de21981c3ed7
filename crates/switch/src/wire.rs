//! What is said over the control socket: messages of JSON on a socket of packets (`SOCK_SEQPACKET`). All but
//! [`Request::Release`] are answered. With [`Request::Attach`] come two descriptors: the pod's packet socket, and a
//! socket over which whoever the pod asks for names is told those of the network's pods. With [`Request::Join`] come
//! two as well: one for frames, each with its header as the switch sends it, and one over which the pods that are here
//! are told, as [`Request::Beyond`] tells those that are there.

use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

/// What a keeper wants.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// Attach its pod: the port of this connection.
    Attach(Attach),
    /// Be joined to another switch of the same network, on another host: the port of this connection.
    Join,
    /// Who is there now.
    Beyond(Vec<Attach>),
    /// Hold what begins a connection with it. Such a connection is known by nothing but a number to who has answered
    /// and waits for the other's second word, and does not outlive a move.
    HoldBeginnings,
    /// Pass on nothing that the pod sends, and hold what comes for it.
    Hold,
    /// Pass on both.
    Release,
}

/// A pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attach {
    /// Its name.
    pub name: String,
    /// Its address.
    pub address: Ipv4Addr,
    /// By what it is known to be the same: it takes its own place when it has moved, but no other's.
    pub lease: String,
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Reply {
    /// It is attached.
    Done,
    /// It is not, for this reason.
    Refused(String),
}
