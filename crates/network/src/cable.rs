//! The way to the guest, and buffers for both directions, in which each Ethernet frame comes after its length (four
//! bytes, the most significant first). A [`Cable::Stream`] carries just that, so that one system call moves many
//! frames; a packet socket ([`Cable::Interface`]) takes each by itself ([`crate::interface`]).

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use smoltcp::phy::{self, Checksum, ChecksumCapabilities, DeviceCapabilities, Medium};
use smoltcp::time::Instant;

use crate::limits::{FRAMES_AT_ONCE, INPUT_BYTES, MAX_FRAME_BYTES, OUTPUT_BYTES};
use crate::wire::{ETHERNET_BYTES, IPV4};

use crate::interface;

/// The way to the guest.
#[derive(Debug)]
pub enum Cable {
    /// A stream socket, whose other end is the guest's: frames, each after its length. The network ends with it.
    Stream(OwnedFd),
    /// A packet socket (packet(7)) that is bound to an interface, whose other end is the guest's.
    Interface {
        /// It has headers of virtio (`PACKET_VNET_HDR`).
        socket: OwnedFd,
        /// The network ends when the other end of this stream is closed. What comes over it is in [`Line`].
        line: OwnedFd,
    },
}

impl From<UnixStream> for Cable {
    fn from(socket: UnixStream) -> Self {
        Self::Stream(socket.into())
    }
}

impl Cable {
    /// What is said over its line, if it has one, and is not answered yet; an error if the line has ended.
    pub fn hear_line(&self) -> Result<Option<Line>, Ended> {
        let Cable::Interface { line, .. } = self else { return Ok(None) };
        let mut byte = [0];
        match recv(line, &mut byte, RecvFlags::DONTWAIT) {
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Ok((1, _)) => Line::of(byte[0]).map(Some).ok_or(Ended),
            Ok(_) | Err(_) => Err(Ended),
        }
    }

    /// Answers.
    pub fn answer_line(&self, word: Line) {
        if let Cable::Interface { line, .. } = self {
            // Whoever does not listen has gone.
            let _ = send(line, &[word.byte()], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
        }
    }
}

/// The line has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended;

impl AsFd for Cable {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Stream(socket) | Self::Interface { socket, .. } => socket.as_fd(),
        }
    }
}

/// What is said over the line of a packet socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Line {
    /// Neither receive from the guest nor send to it, and answer the same when that is so.
    Pause,
    /// Do both again.
    Resume,
}

impl Line {
    /// It as a byte.
    #[must_use]
    pub fn byte(self) -> u8 {
        match self {
            Line::Pause => b'P',
            Line::Resume => b'R',
        }
    }

    /// What a byte means.
    fn of(byte: u8) -> Option<Line> {
        [Line::Pause, Line::Resume].into_iter().find(|word| word.byte() == byte)
    }
}

/// Bytes of a length.
const PREFIX_BYTES: usize = 4;

/// Frames from the machine.
pub struct Input {
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
}

/// The machine has sent what is no frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoFrame;

impl Default for Input {
    fn default() -> Self {
        let bytes = vec![0; INPUT_BYTES + MAX_FRAME_BYTES + PREFIX_BYTES].into();
        Self { bytes, start: 0, end: 0 }
    }
}

impl Input {
    /// One without room, for what receives nothing.
    pub fn empty() -> Self {
        Self { bytes: Box::default(), start: 0, end: 0 }
    }

    /// Receive what there is; `None` when that is nothing now, and 0 at the end.
    pub fn receive(&mut self, cable: &Cable) -> io::Result<Option<usize>> {
        self.bytes.copy_within(self.start..self.end, 0);
        self.end -= std::mem::take(&mut self.start);
        let socket = match cable {
            Cable::Stream(socket) => socket,
            Cable::Interface { socket, .. } => return Ok(self.receive_frames(socket.as_fd())),
        };
        let room = &mut self.bytes[self.end..];
        let (count, _) = match recv(socket, room, RecvFlags::DONTWAIT) {
            Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
            received => received?,
        };
        self.end += count;
        Ok(Some(count))
    }

    /// The same from a packet socket, which has no end.
    fn receive_frames(&mut self, socket: BorrowedFd<'_>) -> Option<usize> {
        let before = self.end;
        for _ in 0..FRAMES_AT_ONCE {
            if self.end >= INPUT_BYTES {
                break;
            }
            let (prefix, room) = self.bytes[self.end..].split_at_mut(PREFIX_BYTES);
            match interface::receive(socket, &mut room[..MAX_FRAME_BYTES]) {
                interface::Received::Frame(length) => {
                    prefix.copy_from_slice(&(length as u32).to_be_bytes());
                    self.end += PREFIX_BYTES + length;
                }
                interface::Received::Nonsense => {}
                interface::Received::Nothing => break,
            }
        }
        // After nothing but nonsense, the next frame says that there is more.
        (self.end > before).then_some(self.end - before)
    }

    /// For tests and fuzzing: as if this had been received.
    pub fn feed(&mut self, bytes: &[u8]) {
        let count = bytes.len().min(self.bytes.len() - self.end);
        self.bytes[self.end..self.end + count].copy_from_slice(&bytes[..count]);
        self.end += count;
    }

    /// Where the next whole frame is.
    pub fn next_frame(&mut self) -> Result<Option<Range<usize>>, NoFrame> {
        let waiting = &self.bytes[self.start..self.end];
        let Some(prefix) = waiting.first_chunk::<PREFIX_BYTES>() else { return Ok(None) };
        let length = u32::from_be_bytes(*prefix) as usize;
        if length > MAX_FRAME_BYTES {
            return Err(NoFrame);
        }
        if waiting.len() < PREFIX_BYTES + length {
            return Ok(None);
        }
        let first = self.start + PREFIX_BYTES;
        self.start = first + length;
        Ok(Some(first..first + length))
    }

    pub fn frame(&self, range: Range<usize>) -> &[u8] {
        &self.bytes[range]
    }
}

/// Frames to the machine.
pub struct Output {
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
    /// The machine's Ethernet address, and ours.
    pub theirs: [u8; 6],
    ours: [u8; 6],
}

impl Output {
    pub fn new(theirs: [u8; 6], ours: [u8; 6]) -> Self {
        let bytes = vec![0; OUTPUT_BYTES + MAX_FRAME_BYTES + PREFIX_BYTES].into();
        Self { bytes, start: 0, end: 0, theirs, ours }
    }

    /// One without room, for what sends nothing.
    pub fn none() -> Self {
        Self { bytes: Box::default(), start: 0, end: 0, theirs: [0; 6], ours: [0; 6] }
    }

    /// Whether there is room for any frame.
    pub fn has_room(&self) -> bool {
        self.end < OUTPUT_BYTES && !self.bytes.is_empty()
    }

    /// Add a frame of this type, whose contents `fill` writes; if there is no room, it is lost.
    pub fn add<R>(
        &mut self,
        kind: [u8; 2],
        length: usize,
        fill: impl FnOnce(&mut [u8]) -> R,
    ) -> Option<R> {
        if !self.has_room() || ETHERNET_BYTES + length > MAX_FRAME_BYTES {
            return None;
        }
        let room = &mut self.bytes[self.end..];
        let (prefix, room) = room.split_at_mut(PREFIX_BYTES);
        prefix.copy_from_slice(&((ETHERNET_BYTES + length) as u32).to_be_bytes());
        let (header, room) = room.split_at_mut(ETHERNET_BYTES);
        header[..6].copy_from_slice(&self.theirs);
        header[6..12].copy_from_slice(&self.ours);
        header[12..].copy_from_slice(&kind);
        self.end += PREFIX_BYTES + ETHERNET_BYTES + length;
        Some(fill(&mut room[..length]))
    }

    /// Add a frame that a socket of packets has, if there is one. To be called when there is room.
    pub fn receive(&mut self, socket: BorrowedFd<'_>) -> interface::Received {
        let (prefix, room) = self.bytes[self.end..].split_at_mut(PREFIX_BYTES);
        let received = interface::receive(socket, &mut room[..MAX_FRAME_BYTES]);
        if let interface::Received::Frame(length) = received {
            prefix.copy_from_slice(&(length as u32).to_be_bytes());
            self.end += PREFIX_BYTES + length;
        }
        received
    }

    /// Send what there is, as far as it is taken; whether that is all.
    pub fn flush(&mut self, cable: &Cable) -> io::Result<bool> {
        let socket = match cable {
            Cable::Stream(socket) => socket,
            Cable::Interface { socket, .. } => return Ok(self.flush_frames(socket.as_fd())),
        };
        while self.start < self.end {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            match send(socket, &self.bytes[self.start..self.end], flags) {
                Ok(count) => self.start += count,
                Err(Errno::AGAIN) => {
                    self.bytes.copy_within(self.start..self.end, 0);
                    self.end -= std::mem::take(&mut self.start);
                    return Ok(false);
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.clear();
        Ok(true)
    }

    /// The same to a packet socket: what it refuses is lost.
    fn flush_frames(&mut self, socket: BorrowedFd<'_>) -> bool {
        while let Some(prefix) = self.bytes[self.start..self.end].first_chunk::<PREFIX_BYTES>() {
            let length = u32::from_be_bytes(*prefix) as usize;
            let first = self.start + PREFIX_BYTES;
            if !interface::send(socket, &mut self.bytes[first..first + length]) {
                self.bytes.copy_within(self.start..self.end, 0);
                self.end -= std::mem::take(&mut self.start);
                return false;
            }
            self.start = first + length;
        }
        self.clear();
        true
    }

    /// Forget what is there.
    pub fn clear(&mut self) {
        (self.start, self.end) = (0, 0);
    }

    /// What is there, as it is sent.
    pub fn waiting(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }
}

/// The cable as smoltcp sees it, in a flow's turn: packets of that flow come in, and what it makes goes
/// out.
pub struct Turn<'a> {
    pub input: &'a Input,
    pub frames: std::slice::Iter<'a, Range<usize>>,
    pub output: &'a mut Output,
    pub mtu: usize,
}

impl phy::Device for Turn<'_> {
    type RxToken<'b>
        = Incoming<'b>
    where
        Self: 'b;
    type TxToken<'b>
        = Outgoing<'b>
    where
        Self: 'b;

    fn receive(&mut self, _: Instant) -> Option<(Incoming<'_>, Outgoing<'_>)> {
        let range = self.frames.next()?.clone();
        let packet = self.input.frame(range).get(ETHERNET_BYTES..)?;
        Some((Incoming(packet), Outgoing(self.output)))
    }

    fn transmit(&mut self, _: Instant) -> Option<Outgoing<'_>> {
        self.output.has_room().then_some(Outgoing(self.output))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ip;
        capabilities.max_transmission_unit = self.mtu;
        // There is no wire. Who looks at the header of IP does so anywhere.
        capabilities.checksum = ChecksumCapabilities::ignored();
        capabilities.checksum.ipv4 = Checksum::Tx;
        capabilities
    }
}

/// A packet from the machine.
pub struct Incoming<'a>(&'a [u8]);

impl phy::RxToken for Incoming<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, take: F) -> R {
        take(self.0)
    }
}

/// Room for one to it.
pub struct Outgoing<'a>(&'a mut Output);

impl phy::TxToken for Outgoing<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, length: usize, fill: F) -> R {
        let mut fill = Some(fill);
        let mut write = |room: &mut [u8]| fill.take().map(|fill| fill(room));
        match self.0.add(IPV4, length, &mut write).flatten() {
            Some(result) => result,
            // It is lost, and sent again.
            None => match write(&mut vec![0; length]) {
                Some(result) => result,
                None => unreachable!("it is filled once"),
            },
        }
    }
}

/// An epoll instance, and what it is asked to watch: everything, at its edges.
pub struct Watch(OwnedFd);

impl Watch {
    pub fn new() -> io::Result<Self> {
        Ok(Self(rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC)?))
    }

    pub fn add(&self, file: impl AsFd, token: u64) -> io::Result<()> {
        use rustix::event::epoll::{EventData, EventFlags, add};
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        Ok(add(&self.0, file, EventData::new_u64(token), flags)?)
    }

    pub fn poll(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
