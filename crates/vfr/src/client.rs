//! The control socket from outside.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;

use host::packets::{ask, connect_to};

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
        connect_to(path).map(Self)
    }

    /// Ask for something; with a cable's end, if that is to be attached: its socket, and its memory if it has one.
    ///
    /// # Errors
    ///
    /// The router has ended, does not answer, or refuses it: its reason is the error's text then.
    pub fn ask(&self, request: &Request, cable: &[BorrowedFd<'_>]) -> io::Result<Reply> {
        let text = serde_json::to_vec(request)?;
        let answer = ask(&self.0, (&text, cable), (ANSWER_TIMEOUT, MESSAGE_BYTES));
        let answer = answer.map_err(|error| match error.kind() {
            io::ErrorKind::TimedOut => io::Error::new(error.kind(), "the router does not answer"),
            _ => error,
        })?;
        match serde_json::from_slice(&answer)? {
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
