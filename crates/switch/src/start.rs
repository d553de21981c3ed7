//! How a switch is started: the program starts itself again with the control socket, which is bound before, so that
//! whoever comes first finds it.

use std::fs::File;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::process::Child;

use rustix::net::{SocketFlags, SocketType};
use serde::{Deserialize, Serialize};
use session::helper::{helper, spawn_with};

use crate::limits::BACKLOG;
use crate::server::Server;

/// The kind of process that is one.
pub const KIND: &str = "switch";

/// What that process is started with.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Serving {
    /// The number of the socket that listens for keepers.
    pub control: i32,
    /// The address that is no pod's.
    pub gateway: Ipv4Addr,
    /// Bits of the network's prefix.
    pub bits: u8,
}

/// The socket of a switch, at a place where there is none.
///
/// # Errors
///
/// The host's.
pub fn listen_at(path: &Path) -> io::Result<OwnedFd> {
    host::listener::listen_at(path, SocketType::SEQPACKET, SocketFlags::NONBLOCK, BACKLOG)
}

/// Starts a switch with its socket. It ends by itself when no pod is attached. What it says is for `messages`.
///
/// # Errors
///
/// The host does not start processes.
pub fn start(control: &OwnedFd, gateway: Ipv4Addr, bits: u8, messages: File) -> io::Result<Child> {
    let order = Serving { control: control.as_raw_fd(), gateway, bits };
    spawn_with(control, helper(KIND, &order)?.stderr(messages))
}

/// What that process does.
///
/// # Errors
///
/// It cannot be confined, or the host fails.
pub fn serve(serving: &Serving) -> io::Result<()> {
    host::inherited::close_marked();
    let control = host::inherited::take(serving.control)?;
    // Three for each pod.
    host::raise_descriptor_limit();
    let mut server = Server::new(control, serving.gateway, serving.bits)?;
    host::privileges::drop_all()?;
    host::confine::confine_router().map_err(io::Error::other)?;
    server.run()
}
