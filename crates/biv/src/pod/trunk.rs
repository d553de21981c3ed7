//! `biv pod network join`: a network on two hosts. This carries frames between the switches of both ([`pods::trunk`]).
//!
//! Each side says `BIVTRUNK 1 SUBNET`, or `NO` and why. Then pieces go in both directions: a length in four bytes
//! (little-endian), a byte that says what it is, and so many bytes. What comes is believed as little as what pods send:
//! the switch decides what it passes on, and to whom.

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::thread;

use api::networks::Network;
use host::poll::{PollFlags, Poller};
use pods::member;
use pods::trunk::{Came, PIECE_MAX_BYTES, Trunk, Way};
use session::Signals;
use spec::shown;

use super::line::{Line, Reading, Writing};

/// What each side begins with.
const GREETING: &str = "BIVTRUNK 1 ";
/// What a piece is.
const FRAME: u8 = 0;
/// See [`FRAME`].
const PODS: u8 = 1;
/// Bytes before a piece.
const HEADER_BYTES: usize = 5;
/// Frames that are carried before others are looked at.
const FRAMES_AT_ONCE: usize = 64;

/// Why there is no trunk.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The network, or its switch.
    #[error(transparent)]
    Member(#[from] member::Error),
    /// It is not said where.
    #[error("{0:?} is no place: ssh:HOST, listen:PATH, unix:PATH or -")]
    Place(String),
    /// The other side cannot be reached.
    #[error("cannot connect to {place}: {error}")]
    Connect {
        /// Where.
        place: String,
        /// Why.
        error: io::Error,
    },
    /// The line.
    #[error("the line to the other host: {0}")]
    Line(#[source] io::Error),
    /// The other side says no.
    #[error("the other host cannot join its network: {0}")]
    Refused(String),
    /// The networks are not the same.
    #[error("the network has {here} here and {there} there")]
    Subnet {
        /// Its addresses here.
        here: String,
        /// Its addresses there.
        there: String,
    },
    /// It does not speak as it should.
    #[error("the other host has gone, or has no `biv` of this version")]
    Gone,
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => Error::Gone,
            _ => Error::Line(error),
        }
    }
}

/// Joins a network to another host's until one side ends.
pub fn join(network: Network, to: &str) -> Result<(), Error> {
    let Some(mut line) = connect(to, network.description.name.as_str())? else { return Ok(()) };
    let subnet = network.description.subnet.to_string();
    let trunk = match Trunk::join(network) {
        Ok(trunk) => trunk,
        Err(error) => {
            // It may have gone.
            let _ = line.say(&format!("NO {}", shown::line(&error.to_string())));
            return Err(error.into());
        }
    };
    line.say(&format!("{GREETING}{subnet}"))?;
    let heard = line.hear()?;
    if let Some(why) = heard.strip_prefix("NO ") {
        return Err(Error::Refused(shown::line(why)));
    }
    match heard.strip_prefix(GREETING) {
        None => Err(Error::Gone),
        Some(there) if there != subnet => {
            Err(Error::Subnet { here: subnet, there: shown::line(there) })
        }
        Some(_) => carry(&Arc::new(trunk), &mut line),
    }
}

/// A line to the other side; none if waiting for one is interrupted.
fn connect(to: &str, network: &str) -> Result<Option<Line>, Error> {
    let failed = |error| Error::Connect { place: to.to_owned(), error };
    if let Some(path) = to.strip_prefix("listen:") {
        return Line::accepted(Path::new(path)).map_err(failed);
    }
    // A network's name has nothing that a shell would take for its own.
    let command = format!("biv pod network join {network} -");
    let line = Line::to(to, &command).ok_or_else(|| Error::Place(to.to_owned()))?;
    line.map(Some).map_err(failed)
}

/// Carries pieces in both directions until one ends, or a signal says so.
fn carry(trunk: &Arc<Trunk>, line: &mut Line) -> Result<(), Error> {
    // Before there is another thread, which would get them.
    let mut signals = Signals::block()?;
    let (from, mut to) = line.halves();
    let (ended, end) = UnixStream::pair()?;
    let other = Arc::clone(trunk);
    let reader = thread::spawn(move || {
        let read = hear(&other, from);
        drop(end);
        read
    });
    let mut room = vec![0; HEADER_BYTES + PIECE_MAX_BYTES];
    loop {
        let way = trunk.way();
        let [client, frames, names] = way.watched();
        let mut poller = Poller::new();
        for (what, descriptor) in [
            (What::Switch, client),
            (What::Frames, frames),
            (What::Pods, names),
            (What::Signal, signals.as_fd()),
            (What::End, ended.as_fd()),
        ] {
            poller.register(what, descriptor, PollFlags::IN);
        }
        poller.wait(None)?;
        let ready: Vec<What> = poller.ready().map(|(what, _)| what).collect();
        for what in ready {
            match what {
                What::Signal if signals.take()?.is_some() => return Ok(()),
                What::End => {
                    let read = reader.join();
                    return read.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                }
                What::Switch if way.has_ended() => trunk.join_again()?,
                What::Frames => say_frames(&way, &mut to, &mut room)?,
                What::Pods => {
                    if let Came::Piece(count) = way.pods(&mut room[HEADER_BYTES..]) {
                        say(&mut to, &mut room, PODS, count)?;
                    }
                }
                What::Signal | What::Switch => {}
            }
        }
    }
}

/// What is ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Switch,
    Frames,
    Pods,
    Signal,
    End,
}

fn say_frames(way: &Way, to: &mut Writing, room: &mut [u8]) -> io::Result<()> {
    for _ in 0..FRAMES_AT_ONCE {
        let Came::Piece(count) = way.frame(&mut room[HEADER_BYTES..]) else { break };
        say(to, room, FRAME, count)?;
    }
    Ok(())
}

/// Says a piece of so many bytes, which are in the room behind its header.
fn say(to: &mut Writing, room: &mut [u8], kind: u8, count: usize) -> io::Result<()> {
    let length = u32::try_from(count).map_err(|_| io::ErrorKind::InvalidData)?;
    room[..4].copy_from_slice(&length.to_le_bytes());
    room[4] = kind;
    to.write_all(&room[..HEADER_BYTES + count])?;
    to.flush()
}

/// Hears pieces until the other side ends.
fn hear(trunk: &Trunk, mut from: Reading) -> Result<(), Error> {
    let mut room = vec![0; PIECE_MAX_BYTES];
    loop {
        let mut header = [0; HEADER_BYTES];
        from.read_exact(&mut header).map_err(|_| Error::Gone)?;
        let [a, b, c, d, kind] = header;
        let length = u32::from_le_bytes([a, b, c, d]) as usize;
        let piece = room.get_mut(..length).ok_or(Error::Gone)?;
        from.read_exact(piece).map_err(|_| Error::Gone)?;
        match kind {
            FRAME => trunk.way().pass(piece),
            PODS => trunk.tell_beyond(piece)?,
            _ => return Err(Error::Gone),
        }
    }
}
