//! Options of sockets, through descriptors of ours.

use std::os::fd::OwnedFd;

use host::processes::sockets::filter::{filter, set_filter};
use host::processes::sockets::{option, set_option};
use rustix::net::netdevice::name_to_index;

use crate::error::Error;
use crate::options::{self, Known, Set};
use crate::state::sockets::Socket;

/// The most that a buffer is asked to hold; the host allows less.
const LARGE_BYTES: i32 = 1 << 30;

/// Set those that are set at that time.
pub(super) fn set(socket: &OwnedFd, wanted: &Socket, is_last: bool) -> Result<(), Error> {
    for wanted in &wanted.options {
        let Some(known) = options::find(wanted.level, wanted.name) else { continue };
        let is_first = matches!(known.set, Set::First | Set::Interface);
        if is_first != is_last {
            let (level, name) = (known.level, known.name);
            let failed = format!("set option {name} of level {level} of a socket");
            set_one(socket, known, &wanted.value).map_err(Error::io(failed))?;
        }
    }
    Ok(())
}

/// Set an option unless it has that value, or is one that a kernel may lack and that says nothing.
fn set_one(socket: &OwnedFd, known: &Known, wanted: &[u8]) -> std::io::Result<()> {
    let (level, name) = (known.level, known.name);
    let now = match known.set {
        Set::Filter => filter(socket),
        _ => option(socket, level, name, known.bytes),
    };
    match now {
        Ok(now) if now == wanted => return Ok(()),
        Err(_) if known.is_usual(wanted) => return Ok(()),
        _ => {}
    }
    match known.set {
        Set::First | Set::Last => set_option(socket, level, name, wanted),
        Set::Buffer => {
            let bytes = wanted.first_chunk().map_or(0, |bytes| i32::from_ne_bytes(*bytes));
            buffer(socket, name, bytes / 2)
        }
        Set::Interface => {
            let index = name_to_index(socket, &String::from_utf8_lossy(wanted))?;
            set_option(socket, level, name, &options::of_interface(known, index))
        }
        Set::Filter => set_filter(socket, wanted),
    }
}

/// Let a socket send as much at once as the host allows. The options tell what it may in the end.
pub(super) fn enlarge(socket: &OwnedFd) -> Result<(), Error> {
    let result = buffer(socket, libc::SO_SNDBUF, LARGE_BYTES);
    result.map_err(Error::io("enlarge the buffer of a socket"))
}

/// Let a socket hold as much as the host allows.
pub(super) fn make_room(socket: &OwnedFd) -> Result<(), Error> {
    let result = buffer(socket, libc::SO_RCVBUF, LARGE_BYTES);
    result.map_err(Error::io("enlarge the buffer of a socket"))
}

/// Set the size of a buffer, beyond what the host allows its users if we may.
fn buffer(socket: &OwnedFd, name: i32, bytes: i32) -> std::io::Result<()> {
    let forced = match name {
        libc::SO_SNDBUF => libc::SO_SNDBUFFORCE,
        _ => libc::SO_RCVBUFFORCE,
    };
    let value = bytes.to_ne_bytes();
    set_option(socket, libc::SOL_SOCKET, forced, &value)
        .or_else(|_| set_option(socket, libc::SOL_SOCKET, name, &value))
}
