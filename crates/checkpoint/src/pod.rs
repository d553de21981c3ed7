//! What a pod is besides its processes: its names, its clocks, and which files it has written.
//!
//! An image says what the pod was, and grants nothing: which directory becomes its root, and which it may write to, is
//! decided by whoever restarts it. The archive of its files is one of tar, in the format of OCI's image layers: what
//! the pod has removed of the directory below is there as an empty file `.wh.NAME`.

use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

/// A pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pod {
    /// The host name in it.
    pub hostname: String,
    /// Its first command and the arguments, for people.
    pub command: Vec<String>,
    /// The number of the process that the pod ends with.
    pub first: u32,
    /// The directory that its root was made from, for people.
    pub root: String,
    /// Whether it wrote to that directory itself.
    pub is_writable: bool,
    /// The number of its first command's terminal, if it had one.
    pub terminal: Option<u32>,
    /// What `CLOCK_MONOTONIC` and `CLOCK_BOOTTIME` showed in it, in nanoseconds.
    pub clocks: [u64; 2],
    /// Its place among the pods of a network, if it had one.
    #[serde(default)]
    pub joined: Option<Joined>,
}

/// A pod's place in a network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Joined {
    /// The network's name.
    pub network: String,
    /// The pod's address.
    pub address: Ipv4Addr,
    /// By what it is known to be the same pod.
    pub lease: String,
}
