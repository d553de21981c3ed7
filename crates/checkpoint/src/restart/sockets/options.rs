//! Options of sockets, through descriptors of ours.

use std::os::fd::OwnedFd;

use host::processes::sockets::{option, set_option};

use crate::error::Error;
use crate::options::{self, Set};
use crate::state::sockets::Socket;

/// The most that a buffer is asked to hold; the host allows less.
const LARGE_BYTES: i32 = 1 << 30;

/// Set those that are set at that time.
pub(super) fn set(socket: &OwnedFd, wanted: &Socket, is_last: bool) -> Result<(), Error> {
    for wanted in &wanted.options {
        let Some(known) = options::find(wanted.level, wanted.name) else { continue };
        let now = option(socket, known.level, known.name, known.bytes);
        if (known.set == Set::First) == is_last || now.is_ok_and(|now| now == *wanted.value) {
            continue;
        }
        let result = match known.set {
            Set::First | Set::Last => set_option(socket, known.level, known.name, &wanted.value),
            Set::Buffer => {
                let bytes =
                    wanted.value.first_chunk().map_or(0, |bytes| i32::from_ne_bytes(*bytes));
                buffer(socket, known.name, bytes / 2)
            }
        };
        let (level, name) = (known.level, known.name);
        result.map_err(Error::io(format!("set option {name} of level {level} of a socket")))?;
    }
    Ok(())
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
