//! A trunk: the switches of one network on two hosts are joined by somebody who carries frames between them.
//!
//! It is a port of the switch here, as a pod's keeper has one, and lasts as its connection does. The other side has
//! one, too, and between them is a stream. Frames are carried as the switch has them; besides each side says which pods
//! it has, so that all names are known on both, and no address is given twice.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex};

use api::networks::{self, Network};
use locks::Unpoisoned;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair,
};
use switch::{Attach, Client, Unreached, has_gone, pods_of, reach};

use crate::member::Error;

/// The most bytes of what is carried in one piece: a frame, or a list of pods.
pub const PIECE_MAX_BYTES: usize = {
    let (frame, list) = (switch::limits::FRAME_BYTES, switch::limits::REQUEST_BYTES);
    if frame > list { frame } else { list }
};

/// This side of one.
#[derive(Debug)]
pub struct Trunk {
    network: Network,
    way: Mutex<Arc<Way>>,
    /// The pods of the other side, as it has said last.
    beyond: Mutex<Vec<Attach>>,
}

/// The connection to a switch.
#[derive(Debug)]
pub struct Way {
    client: Client,
    frames: OwnedFd,
    names: OwnedFd,
}

/// What the switch has for the other side.
#[derive(Debug, PartialEq, Eq)]
pub enum Came {
    /// So many bytes.
    Piece(usize),
    /// Nothing now.
    Nothing,
}

impl Trunk {
    /// Joins a network's switch, which is started if there is none.
    ///
    /// # Errors
    ///
    /// It cannot be started, or is joined to another host already.
    pub fn join(network: Network) -> Result<Trunk, Error> {
        let way = Mutex::new(Arc::new(Way::open(&network)?));
        Ok(Trunk { network, way, beyond: Mutex::default() })
    }

    /// The switch has gone: join the next.
    ///
    /// # Errors
    ///
    /// As [`join`](Self::join).
    pub fn join_again(&self) -> Result<(), Error> {
        *self.way.lock().unpoisoned() = Arc::new(Way::open(&self.network)?);
        self.tell()
    }

    /// The way to the switch that is there now.
    #[must_use]
    pub fn way(&self) -> Arc<Way> {
        Arc::clone(&self.way.lock().unpoisoned())
    }

    /// Says who is there.
    ///
    /// # Errors
    ///
    /// It is no list of pods, or somebody there has the address of a pod that is here.
    pub fn tell_beyond(&self, list: &[u8]) -> Result<(), Error> {
        let pods = pods_of(list).map_err(|error| self.failed(error.into()))?;
        *self.beyond.lock().unpoisoned() = pods;
        self.tell()
    }

    fn tell(&self) -> Result<(), Error> {
        // Nobody says anything in between: what is told last is what was said last.
        let beyond = self.beyond.lock().unpoisoned();
        match self.way().client.tell_beyond(&beyond) {
            // Whoever joins the next one says it again.
            Err(error) if has_gone(&error) => Ok(()),
            told => told.map_err(|error| self.failed(error)),
        }
    }

    fn failed(&self, error: switch::Error) -> Error {
        Unreached::Switch(self.network.description.name.clone(), error).into()
    }
}

impl Way {
    fn open(network: &Network) -> Result<Way, Error> {
        let ((frames, theirs), (names, others)) = (pair()?, pair()?);
        let client = reach(network, |client| client.join(&theirs, &others))?;
        Ok(Way { client, frames, names })
    }

    /// What can be read from when the switch has gone, has a frame, or says who is here.
    #[must_use]
    pub fn watched(&self) -> [BorrowedFd<'_>; 3] {
        [self.client.as_fd(), self.frames.as_fd(), self.names.as_fd()]
    }

    /// Whether the switch has gone.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.client.has_ended()
    }

    /// The next frame for the other side.
    pub fn frame(&self, room: &mut [u8]) -> Came {
        take(&self.frames, room)
    }

    /// The pods that are here, if that has changed.
    pub fn pods(&self, room: &mut [u8]) -> Came {
        take(&self.names, room)
    }

    /// Passes a frame of the other side to the switch. Nobody waits for it.
    pub fn pass(&self, frame: &[u8]) {
        let _ = send(&self.frames, frame, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    }
}

fn pair() -> Result<(OwnedFd, OwnedFd), Error> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let pair = socketpair(family, kind, SocketFlags::CLOEXEC, None);
    Ok(pair.map_err(networks::Error::from)?)
}

fn take(socket: &OwnedFd, room: &mut [u8]) -> Came {
    match recv(socket, room, RecvFlags::DONTWAIT) {
        Ok((count @ 1.., _)) => Came::Piece(count),
        // Whoever has gone is noticed by the connection.
        Ok(_) | Err(_) => Came::Nothing,
    }
}
