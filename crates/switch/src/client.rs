//! The control socket as a pod's keeper has it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use host::packets::{ask, connect_to};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use crate::limits::{ANSWER_BYTES, ANSWER_TIMEOUT, HANDSHAKE_PAUSE, HANDSHAKE_TURNS};
use crate::wire::{Attach, Reply, Request};

/// Why a pod is not attached.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The switch does not want it.
    #[error("{0}")]
    Refused(String),
    /// It has gone, or does not answer.
    #[error("the network's switch: {0}")]
    Io(#[from] io::Error),
}

/// A connection, and the port of the switch that lasts as long.
#[derive(Debug)]
pub struct Client(OwnedFd);

impl AsFd for Client {
    /// What can be read from when the switch has ended, or has given the port to the same pod elsewhere.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl From<Client> for OwnedFd {
    /// For a process that only holds it.
    fn from(client: Client) -> OwnedFd {
        client.0
    }
}

impl Client {
    /// Connects to the switch that listens there.
    ///
    /// # Errors
    ///
    /// Nobody does.
    pub fn connect(path: &Path) -> io::Result<Self> {
        connect_to(path).map(Self)
    }

    /// Attaches a pod, with its packet socket and with the socket for whoever answers its questions about names.
    ///
    /// # Errors
    ///
    /// The switch does not want it, or has gone.
    pub fn attach(&self, pod: &Attach, frames: &OwnedFd, names: &OwnedFd) -> Result<(), Error> {
        self.ask(&Request::Attach(pod.clone()), &[frames.as_fd(), names.as_fd()])
    }

    /// Joins another switch, with a socket for frames and one over which the pods that are here are told
    /// ([`pods_of`]).
    ///
    /// # Errors
    ///
    /// The switch is joined to one already, or has gone.
    pub fn join(&self, frames: &OwnedFd, names: &OwnedFd) -> Result<(), Error> {
        self.ask(&Request::Join, &[frames.as_fd(), names.as_fd()])
    }

    /// Says who is at the other switch now.
    ///
    /// # Errors
    ///
    /// Somebody has the address of a pod that is here, or the switch has gone.
    pub fn tell_beyond(&self, pods: &[Attach]) -> Result<(), Error> {
        self.ask(&Request::Beyond(pods.to_vec()), &[])
    }

    /// Whether the switch has gone. An answer that waits says that it has not.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        !matches!(recv(&self.0, &mut [0; 1][..], flags), Ok((1.., _)) | Err(Errno::AGAIN))
    }

    fn ask(&self, request: &Request, files: &[BorrowedFd<'_>]) -> Result<(), Error> {
        let question = serde_json::to_vec(request).map_err(io::Error::from)?;
        let answer = ask(&self.0, (&question, files), (ANSWER_TIMEOUT, ANSWER_BYTES));
        let answer = answer.map_err(|error| match error.kind() {
            io::ErrorKind::TimedOut => io::Error::new(error.kind(), "it does not answer"),
            _ => error,
        })?;
        match serde_json::from_slice(&answer).map_err(io::Error::from)? {
            Reply::Done => Ok(()),
            Reply::Refused(reason) => Err(Error::Refused(reason)),
        }
    }

    /// Has the switch hold segments that begin a TCP connection with the pod, because it is about to be away, and lets
    /// those that have begun be answered.
    ///
    /// # Errors
    ///
    /// The switch has gone, or has given the port away.
    pub fn hold_beginnings(&self) -> Result<(), Error> {
        for _ in 0..HANDSHAKE_TURNS {
            self.ask(&Request::HoldBeginnings, &[])?;
            std::thread::sleep(HANDSHAKE_PAUSE);
        }
        Ok(())
    }

    /// Has the switch pass on nothing that the pod sends, and hold what comes for it, because it is away. It does so
    /// from now on.
    ///
    /// # Errors
    ///
    /// The switch has gone, or has given the port away.
    pub fn hold(&self) -> Result<(), Error> {
        self.ask(&Request::Hold, &[])
    }

    /// Has both go on their ways again.
    ///
    /// # Errors
    ///
    /// The switch has gone, or has given the port away.
    pub fn release(&self) -> io::Result<()> {
        host::rights::send(&self.0, &serde_json::to_vec(&Request::Release)?, &[])
    }
}

/// The pods that a switch tells of, over the socket of [`Client::join`].
///
/// # Errors
///
/// It is no such word.
pub fn pods_of(word: &[u8]) -> io::Result<Vec<Attach>> {
    Ok(serde_json::from_slice(word)?)
}
