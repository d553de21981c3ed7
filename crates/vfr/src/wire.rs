//! What is said over the control socket: messages of JSON on a socket of packets (`SOCK_SEQPACKET`), a reply for each
//! request. With [`Request::Attach`] come descriptors: the cable's socket, and the memory that frames go by, if it is
//! only to wake each other by.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// What a client asks for. A port is known by its owner's name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// Attach a domain; a port of the same name is replaced.
    Attach(Attach),
    /// A port's rules, and what they have matched.
    Rules {
        /// Whose.
        name: String,
    },
    /// Have other rules for a port: all of these, or none if one is wrong.
    SetRules {
        /// Whose.
        name: String,
        /// The rules as a text.
        text: String,
    },
    /// Have another rate for a port.
    SetRate {
        /// Whose.
        name: String,
        /// Bytes a second.
        rate: Option<u64>,
    },
    /// The ports from a number on, as many as fit.
    Ports {
        /// The first.
        from: usize,
    },
}

/// A VIF.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attach {
    /// Its owner's name.
    pub name: String,
    /// Its address of Ethernet.
    pub mac: [u8; 6],
    /// Its address of IP, which is in the router's prefix.
    pub address: IpAddr,
    /// Bits of that prefix.
    pub bits: u8,
    /// Bytes a second that it may send.
    pub rate: Option<u64>,
    /// Its rules as a text.
    pub rules: String,
}

/// What a client is answered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reply {
    /// It is done.
    Done,
    /// It is not, for this reason.
    Refused(String),
    /// Rules.
    Rules(Vec<RuleState>),
    /// Ports; after the last comes none.
    Ports(Vec<Port>),
}

/// A rule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RuleState {
    /// As a line of a text.
    pub rule: String,
    /// What it has matched.
    pub matched: Traffic,
}

/// Frames, and their bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Traffic {
    /// Frames.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// What was dropped, by why.
pub type Drop = BTreeMap<String, Traffic>;

/// A port, and what has gone through it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Port {
    /// Its owner's name.
    pub name: String,
    /// What rules call it: `vif N` or `uplink`.
    pub port: String,
    /// Its address of Ethernet, if it has one.
    pub mac: Option<String>,
    /// Its addresses of IP.
    pub addresses: Vec<IpAddr>,
    /// Bytes a second that it may send.
    pub rate: Option<u64>,
    /// What it has sent, dropped or not.
    pub transmitted: Traffic,
    /// What it has received.
    pub received: Traffic,
    /// What was dropped of it, or at it.
    pub dropped: Drop,
}

impl From<router::Tally> for Traffic {
    fn from(tally: router::Tally) -> Self {
        Self { packets: tally.packets, bytes: tally.bytes }
    }
}
