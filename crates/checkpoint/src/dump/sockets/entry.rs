//! A socket of a process, and a descriptor of ours for it.

use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::AddressFamily;
use rustix::time::Timespec;

use crate::error::Error;

/// A socket that was found.
pub(in crate::dump) struct Entry {
    /// The process that has it, by the host's number; of one that is in flight, that of the receiver.
    pub pid: u32,
    /// Its descriptor there; none of one that is in flight.
    pub number: Option<u32>,
    /// Its inode.
    pub inode: u64,
    /// It itself.
    pub socket: OwnedFd,
    pub family: AddressFamily,
}

impl Entry {
    /// Whether something of that kind is to be told about it.
    pub fn has(&self, events: PollFlags) -> Result<bool, Error> {
        has(&self.socket, events)
    }

    /// Whether it has an error that it has not been told.
    pub fn has_error(&self) -> Result<bool, Error> {
        self.has(PollFlags::ERR)
    }
}

/// Whether something of that kind is to be told about a socket.
pub(super) fn has(socket: &OwnedFd, events: PollFlags) -> Result<bool, Error> {
    let mut polled = [PollFd::new(socket, events)];
    poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))
        .map_err(Error::io("look at a socket"))?;
    Ok(polled[0].revents().intersects(events))
}
