//! The control socket as a pod's keeper has it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Instant;

use host::poll::{PollFlags, wait_for};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv, socket_with,
};

use crate::limits::{ANSWER_TIMEOUT, REQUEST_BYTES};
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

impl Client {
    /// Connects to the switch that listens there.
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
        self.say(request, files)?;
        let deadline = Instant::now().checked_add(ANSWER_TIMEOUT);
        if wait_for(&self.0, PollFlags::IN, deadline)?.is_empty() {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "it does not answer").into());
        }
        let mut answer = vec![0; REQUEST_BYTES];
        let (count, _) =
            recv(&self.0, &mut answer[..], RecvFlags::empty()).map_err(io::Error::from)?;
        if count == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        match serde_json::from_slice(&answer[..count]).map_err(io::Error::from)? {
            Reply::Done => Ok(()),
            Reply::Refused(reason) => Err(Error::Refused(reason)),
        }
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
        self.say(&Request::Release, &[])
    }

    fn say(&self, request: &Request, files: &[BorrowedFd<'_>]) -> io::Result<()> {
        host::rights::send(&self.0, &serde_json::to_vec(request)?, files)
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
