//! Waits for clients, and serves one at a time: a second one is turned away.
//!
//! The socket listens before the machine starts, because its process opens nothing afterwards.

use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixListener;

use host::poll::{PollFlags, wait_for};
use rustix::process::Uid;

use crate::debuggee::Debuggee;
use crate::session::{Ending, Session, Stream};

/// Where clients come from.
#[derive(Debug)]
pub enum Listener {
    /// A Unix socket, for processes of this user and root's.
    Unix(UnixListener, Uid),
    /// A TCP socket, for whoever can reach it.
    Tcp(TcpListener),
}

impl Listener {
    /// The next client, if there is one that may be served.
    fn accept(&self) -> Option<Box<dyn Stream>> {
        match self {
            Self::Unix(listener, owner) => {
                let (stream, _) = listener.accept().ok()?;
                host::peer::is_of(&stream, *owner).then(|| Box::new(stream) as _)
            }
            Self::Tcp(listener) => listener.accept().ok().map(|(stream, _)| Box::new(stream) as _),
        }
    }

    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(listener, _) => listener.as_fd(),
            Self::Tcp(listener) => listener.as_fd(),
        }
    }
}

/// Serve clients until one ends the machine, or the process ends.
pub fn serve(listener: &Listener, machine: &mut impl Debuggee) {
    let refuse = || drop(listener.accept());
    while wait_for(listener.as_fd(), PollFlags::IN, None).is_ok() {
        let Some(stream) = listener.accept() else { continue };
        let session = Session { stream, others: Some((listener.as_fd(), &refuse)) };
        if session.serve(machine) == Ending::Kill {
            return;
        }
    }
}
