//! TCP connections that do not go on.
//!
//! What a TCP connection is made of is told, and its send queue shown, only while it is in repair (`TCP_REPAIR`), where
//! the kernel also sends nothing when it is closed. Connections stay so until their processes go on, or are no more.

use std::os::fd::OwnedFd;

use host::processes::sockets::{option, set_option};

use crate::error::Error;

const TCP: i32 = libc::IPPROTO_TCP;

/// Connections in repair, and whether others may have their addresses: repair changes that, and its end does too.
#[derive(Debug, Default)]
pub(crate) struct Repaired(Vec<(OwnedFd, Vec<u8>)>);

impl Repaired {
    /// Put a connection of a process in repair.
    pub fn add(&mut self, pid: u32, socket: OwnedFd) -> Result<(), Error> {
        let reuse = option(&socket, libc::SOL_SOCKET, libc::SO_REUSEADDR, 4);
        let reuse = reuse.map_err(Error::io("look at a TCP socket"))?;
        let on = set_option(&socket, TCP, libc::TCP_REPAIR, &1_i32.to_ne_bytes());
        on.map_err(|error| match error.raw_os_error() {
            Some(libc::EPERM) => {
                let what = "has a TCP connection in a network that belongs to somebody else";
                Error::unsupported(pid, what)
            }
            _ => Error::io("look into a TCP connection")(error),
        })?;
        self.0.push((socket, reuse));
        Ok(())
    }

    /// Let the connections go on.
    pub fn end(&mut self) {
        for (socket, reuse) in self.0.drain(..) {
            let _ = set_option(&socket, TCP, libc::TCP_REPAIR, &0_i32.to_ne_bytes());
            let _ = set_option(&socket, libc::SOL_SOCKET, libc::SO_REUSEADDR, &reuse);
        }
    }
}
