//! What a card's frames go and come by, each after its length in four bytes, the most significant first: a stream
//! socket, or memory that the other end has as well ([`Duplex`]).
//!
//! The other end may be hostile, too: what is no frame ends what comes.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use host::Error;
use host::duplex::{Bell, Duplex, Reader, Side, Writer};
use host::poll::{PollFlags, wait_for};
use host::rights;
use rustix::net::RecvFlags;

/// Bytes of a frame's length.
pub(super) const PREFIX_BYTES: usize = 4;

/// The largest frame, with its header and two tags.
pub(super) const MAX_FRAME_BYTES: usize = 65535 + 22;

/// Room for a frame with its length.
const FRAME_ROOM: usize = PREFIX_BYTES + MAX_FRAME_BYTES;

/// Bytes that are read at once: two of the largest frames.
const READ_BYTES: usize = 2 * FRAME_ROOM;

/// How long who makes a link again may take to say by which memory.
const MEMORY_TIMEOUT: Duration = Duration::from_secs(1);

/// Both directions.
pub(in crate::devices) struct Cable {
    pub(super) outlet: Outlet,
    pub(super) inlet: Inlet,
}

/// Where frames go.
pub(super) enum Outlet {
    Socket(Arc<UnixStream>),
    Memory(Writer),
    /// There is nobody at the other end.
    Nowhere,
}

/// What is known of a cable that was polled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Noted {
    /// There is something to read, if it is only the end.
    pub(super) may_read: bool,
    /// Nobody takes frames any more.
    pub(super) is_over: bool,
}

/// Where they come from.
pub(super) enum Inlet {
    Socket(Arc<UnixStream>),
    Memory(Reader, Bell),
}

impl Cable {
    /// By a stream socket.
    pub(in crate::devices) fn by_socket(socket: OwnedFd) -> io::Result<Self> {
        let socket = UnixStream::from(socket);
        socket.set_nonblocking(true)?;
        let socket = Arc::new(socket);
        let outlet = Outlet::Socket(Arc::clone(&socket));
        Ok(Self { outlet, inlet: Inlet::Socket(socket) })
    }

    /// By this memory, with a socket by which who sleeps is woken.
    pub(in crate::devices) fn in_memory(memory: OwnedFd, bell: OwnedFd) -> Result<Self, Error> {
        let Duplex { reader, writer, bell } = Duplex::open(memory, bell, Side::First)?;
        Ok(Self { outlet: Outlet::Memory(writer), inlet: Inlet::Memory(reader, bell) })
    }

    /// That of who has connected, who sends its memory.
    pub(super) fn accepted(socket: UnixStream) -> Option<Self> {
        let deadline = Instant::now().checked_add(MEMORY_TIMEOUT);
        if wait_for(&socket, PollFlags::IN, deadline).ok()?.is_empty() {
            return None;
        }
        let came = rights::receive(&socket, &mut [0], 1, RecvFlags::DONTWAIT).ok()?;
        let memory = came.files.into_iter().next()?;
        Self::in_memory(memory, socket.into()).ok()
    }
}

impl Outlet {
    /// Write from the beginning of `bytes`; how many are gone. What is not taken where nobody is any more is lost.
    pub(super) fn write(&mut self, bytes: &[u8]) -> usize {
        match self {
            Self::Socket(socket) => write(socket, bytes),
            Self::Memory(writer) => writer.write(bytes).unwrap_or(bytes.len()),
            Self::Nowhere => bytes.len(),
        }
    }

    /// What to poll for where it was full. `None`: it is not any more.
    pub(super) fn waits(&self) -> Option<PollFlags> {
        match self {
            Self::Socket(_) => Some(PollFlags::OUT),
            Self::Memory(writer) => writer.sleeps().then_some(PollFlags::IN),
            Self::Nowhere => None,
        }
    }
}

fn write(mut socket: &UnixStream, bytes: &[u8]) -> usize {
    let mut sent = 0;
    while sent < bytes.len() {
        match socket.write(&bytes[sent..]) {
            Ok(count) => sent += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(_) => return bytes.len(),
        }
    }
    sent
}

impl Inlet {
    /// What to poll for where something may come. `None`: there is something.
    pub(super) fn waits(&self) -> Option<PollFlags> {
        match self {
            Self::Socket(_) => Some(PollFlags::IN),
            Self::Memory(reader, _) => reader.sleeps().then_some(PollFlags::IN),
        }
    }

    /// Whether something has come, by memory.
    pub(super) fn has_come(&self) -> bool {
        matches!(self, Self::Memory(reader, _) if reader.has_bytes())
    }

    /// Whether it is worth to watch for what comes: whoever writes has another core.
    pub(super) fn can_be_watched(&self) -> bool {
        matches!(self, Self::Memory(reader, _) if !reader.shares_core())
    }

    /// The other end need not wake us.
    pub(super) fn wakes(&self) {
        if let Self::Memory(reader, _) = self {
            reader.wakes();
        }
    }

    /// What was polled is ready.
    pub(super) fn note(&self, ready: PollFlags) -> Noted {
        match self {
            // Its end is found by reading and writing.
            Self::Socket(_) => {
                Noted { may_read: ready.intersects(!PollFlags::OUT), is_over: false }
            }
            Self::Memory(reader, bell) => {
                let is_over = !bell.hush();
                // Who has gone has perhaps left something.
                Noted { may_read: is_over || reader.has_bytes(), is_over }
            }
        }
    }

    /// Read some behind what has come; `None` if nothing will come any more. By memory whole frames come.
    fn read(&mut self, bytes: &mut [u8]) -> Option<usize> {
        match self {
            Self::Socket(socket) => match (&**socket).read(bytes) {
                Ok(0) => None,
                Ok(count) => Some(count),
                Err(error) => {
                    let kinds = [ErrorKind::Interrupted, ErrorKind::WouldBlock];
                    kinds.contains(&error.kind()).then_some(0)
                }
            },
            Self::Memory(reader, bell) => {
                let mut total = 0;
                while bytes.len() - total >= FRAME_ROOM {
                    match read_frame(reader, &mut bytes[total..])? {
                        0 if total == 0 => return bell.hush().then_some(0),
                        0 => break,
                        count => total += count,
                    }
                }
                Some(total)
            }
        }
    }
}

/// Read a whole frame with its length; 0 bytes if there is none. Of one that is too long only the length, by which that
/// is found.
fn read_frame(reader: &mut Reader, room: &mut [u8]) -> Option<usize> {
    let mut prefix = [0; PREFIX_BYTES];
    if !reader.peek(0, &mut prefix).ok()? {
        return Some(0);
    }
    let length = u32::from_be_bytes(prefix) as usize;
    let length = if length > MAX_FRAME_BYTES { 0 } else { length };
    let (its_prefix, frame) = room.split_at_mut(PREFIX_BYTES);
    if !reader.peek(PREFIX_BYTES, &mut frame[..length]).ok()? {
        return Some(0);
    }
    its_prefix.copy_from_slice(&prefix);
    reader.consume(PREFIX_BYTES + length);
    Some(PREFIX_BYTES + length)
}

impl AsFd for Inlet {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Socket(socket) => socket.as_fd(),
            Self::Memory(_, bell) => bell.as_fd(),
        }
    }
}

/// Bytes of frames that have come.
pub(super) struct Waiting {
    bytes: Box<[u8]>,
    /// Those that were given.
    start: usize,
    end: usize,
    /// Nobody sends any more, or what is no frame.
    is_over: bool,
}

impl Default for Waiting {
    fn default() -> Self {
        // There is room behind any part of a frame.
        let bytes = vec![0; READ_BYTES + FRAME_ROOM].into();
        Self { bytes, start: 0, end: 0, is_over: false }
    }
}

impl Waiting {
    /// Whether something may still come.
    pub(super) fn may_come(&self) -> bool {
        !self.is_over
    }

    /// The first frame, if it is whole.
    pub(super) fn frame(&mut self) -> Option<&[u8]> {
        let come = &self.bytes[self.start..self.end];
        let (prefix, rest) = come.split_first_chunk::<PREFIX_BYTES>()?;
        let length = u32::from_be_bytes(*prefix) as usize;
        if length > MAX_FRAME_BYTES {
            tracing::error!("the network's other end sends what is no frame, of {length} bytes");
            self.is_over = true;
            return None;
        }
        rest.get(..length)
    }

    /// The first frame was given.
    pub(super) fn pass(&mut self) {
        let length = self.frame().map_or(0, <[u8]>::len);
        self.start += PREFIX_BYTES + length;
    }

    /// Read what there is, behind what is not given yet.
    pub(super) fn read(&mut self, inlet: &mut Inlet) {
        if self.bytes.len() - (self.end - self.start) < FRAME_ROOM {
            return;
        }
        self.bytes.copy_within(self.start..self.end, 0);
        self.end -= std::mem::take(&mut self.start);
        match inlet.read(&mut self.bytes[self.end..]) {
            Some(count) => self.end += count,
            None if self.is_over => {}
            None => {
                self.is_over = true;
                tracing::error!(
                    "the other end of the network cable has gone; the guest's network is down"
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cables() -> (Cable, Duplex) {
        let memory = Duplex::memory().unwrap();
        let (one, other) = UnixStream::pair().unwrap();
        let again = memory.try_clone().unwrap();
        let cable = Cable::in_memory(memory, one.into()).ok().unwrap();
        (cable, Duplex::open(again, other.into(), Side::Second).unwrap())
    }

    #[test]
    fn frames_come_whole_and_in_order_and_then_the_end() {
        let (mut cable, mut other) = cables();
        let mut waiting = Waiting::default();
        assert_eq!(cable.inlet.waits(), Some(PollFlags::IN));
        assert_eq!(other.writer.write(&[0, 0, 0, 2, 7, 8, 0, 0, 0, 1]), Ok(10));
        assert_eq!(cable.inlet.note(PollFlags::IN), Noted { may_read: true, is_over: false });
        waiting.read(&mut cable.inlet);
        assert_eq!(waiting.frame(), Some(&[7, 8][..]));
        waiting.pass();
        assert_eq!(waiting.frame(), None);
        assert_eq!(other.writer.write(&[9]), Ok(1));
        drop(other);
        assert_eq!(cable.inlet.note(PollFlags::HUP), Noted { may_read: true, is_over: true });
        waiting.read(&mut cable.inlet);
        assert_eq!(waiting.frame(), Some(&[9][..]));
        waiting.pass();
        assert!(waiting.may_come());
        waiting.read(&mut cable.inlet);
        assert!(!waiting.may_come() && waiting.frame().is_none());
    }

    #[test]
    fn what_is_no_frame_ends_it() {
        let (mut cable, mut other) = cables();
        let mut waiting = Waiting::default();
        other.writer.write(&[0, 1, 0, 22]).unwrap();
        waiting.read(&mut cable.inlet);
        assert_eq!(waiting.frame(), None);
        assert!(!waiting.may_come());
    }

    #[test]
    fn a_link_comes_with_memory() {
        let (one, other) = UnixStream::pair().unwrap();
        (&other).write_all(&[1]).unwrap();
        assert!(Cable::accepted(one).is_none());
    }
}
