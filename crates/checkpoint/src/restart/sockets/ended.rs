//! TCP connections that both ends have closed: what is left is the name, and what was not received.
//!
//! The kernel takes no socket in that state. So it is connected, in repair, with an end that is there for the moment,
//! and then both ends are closed, that one first: the address in which the kernel keeps the end's number for a minute
//! (`TIME_WAIT`) is that end's.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use rustix::net::{Shutdown, bind, getsockname, shutdown};

use super::connections::{go_on, repair, wait_for};
use crate::error::Error;
use crate::state::Bytes;
use crate::state::inet::{Connection, Inet, InetRole};

/// States of `struct tcp_info`.
const CLOSED: u8 = 7;
const CLOSE_WAIT: u8 = 8;
/// The numbers of the first bytes, which nobody sees.
const FIRST: u32 = 1000;
const WINDOW_BYTES: u32 = 65_535;
const SEGMENT_BYTES: u32 = 536;

/// Make both ends; they stay in repair.
pub(super) fn make(
    socket: &OwnedFd,
    other: &OwnedFd,
    inet: &Inet,
    received: &Bytes,
) -> Result<(), Error> {
    let Some(name) = inet.name else { return Ok(()) };
    bind(other, &SocketAddr::new(name.ip(), 0)).map_err(Error::io("find a free port"))?;
    let peer = getsockname(other).map_err(Error::io("find a free port"))?;
    let peer = SocketAddr::try_from(peer).map_err(Error::io("find a free port"))?;
    let length = u32::try_from(received.len()).unwrap_or(0);
    let end = |peer, received: &Bytes, receive_next, write_next| Connection {
        peer,
        received: received.clone(),
        receive_next,
        written: Bytes::default(),
        write_next,
        unsent: 0,
        window: [receive_next, WINDOW_BYTES, WINDOW_BYTES, WINDOW_BYTES, receive_next],
        segment_bytes: SEGMENT_BYTES,
        scales: None,
        selective: false,
        timestamp: None,
        has_sent_all: false,
        has_received_all: false,
        ended_last: false,
    };
    let sent = FIRST.wrapping_add(length);
    repair(socket, inet, &end(peer, received, sent, FIRST))?;
    let (six, multipath, role) = (inet.six, false, InetRole::Idle);
    // It has its name already.
    let nameless = Inet { six, multipath, name: None, role, groups: Vec::new() };
    repair(other, &nameless, &end(name, &Bytes::default(), FIRST, sent))
}

/// Close both ends.
pub(super) fn complete(socket: &OwnedFd, other: &OwnedFd) -> Result<(), Error> {
    go_on(other)?;
    go_on(socket)?;
    let end = |socket| shutdown(socket, Shutdown::Write).map_err(Error::io("end a connection"));
    end(other)?;
    wait_for(socket, CLOSE_WAIT)?;
    end(socket)?;
    wait_for(socket, CLOSED)
}
