//! The control socket from outside.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Instant;

use host::poll::{PollFlags, wait_for};
use rustix::net::{
    AddressFamily, RecvFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv, socket_with,
};

use crate::limits::{ANSWER_TIMEOUT, MESSAGE_BYTES};
use crate::wire::{Port, Reply, Request};

/// Somebody who speaks to a router.
#[derive(Debug)]
pub struct Client(OwnedFd);

impl Client {
    /// Connect to the router that listens there.
    ///
    /// # Errors
    ///
    /// Nobody does.
    pub fn connect(path: &Path) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        connect(&socket, &SocketAddrUnix::new(path)?)?;
        Ok(Self(socket))
    }

    /// Ask for something; with a cable's end, if that is to be attached: its socket, and its memory if it has one.
    ///
    /// # Errors
    ///
    /// The router has ended, does not answer, or refuses it: its reason is the error's text then.
    pub fn ask(&self, request: &Request, cable: &[BorrowedFd<'_>]) -> io::Result<Reply> {
        let text = serde_json::to_vec(request)?;
        host::rights::send(&self.0, &text, cable)?;
        let mut answer = vec![0; MESSAGE_BYTES];
        let deadline = Instant::now().checked_add(ANSWER_TIMEOUT);
        if wait_for(&self.0, PollFlags::IN, deadline)?.is_empty() {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "the router does not answer"));
        }
        let (count, _) = recv(&self.0, &mut answer[..], RecvFlags::empty())?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        match serde_json::from_slice(&answer[..count])? {
            Reply::Refused(reason) => Err(io::Error::new(io::ErrorKind::InvalidInput, reason)),
            reply => Ok(reply),
        }
    }

    /// All of its ports.
    ///
    /// # Errors
    ///
    /// As [`Self::ask`].
    pub fn ports(&self) -> io::Result<Vec<Port>> {
        let mut ports = Vec::new();
        loop {
            match self.ask(&Request::Ports { from: ports.len() }, &[])? {
                Reply::Ports(some) if some.is_empty() => return Ok(ports),
                Reply::Ports(some) => ports.extend(some),
                _ => return Err(io::Error::other("the router answers something else")),
            }
        }
    }
}
