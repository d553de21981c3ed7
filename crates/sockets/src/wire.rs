//! Packets, each a header (virtio 1.2, 5.10.6) and perhaps bytes, on the socket to the machine.

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use crate::limits::{OUTPUT_BYTES, PACKET_BYTES};

/// Bytes of a header.
pub const HEADER_BYTES: usize = 44;

/// The host's address.
const HOST: u64 = 2;

/// The kind of packets that there is: of streams.
const STREAM: u16 = 1;

/// Operations (5.10.6).
#[allow(missing_docs)]
pub mod operation {
    /// A driver begins; only the machine says so.
    pub const BEGIN: u16 = 0;
    pub const REQUEST: u16 = 1;
    pub const RESPONSE: u16 = 2;
    pub const RESET: u16 = 3;
    pub const SHUTDOWN: u16 = 4;
    pub const DATA: u16 = 5;
    pub const CREDIT_UPDATE: u16 = 6;
    pub const CREDIT_REQUEST: u16 = 7;
}

/// Flags of [`operation::SHUTDOWN`] (5.10.6.6): who says it receives, or sends, no more.
#[allow(missing_docs)]
pub mod shutdown {
    pub const DEAF: u32 = 1;
    pub const DONE: u32 = 2;
}

/// A header, without what is the same in all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Header {
    /// The port of who sends it.
    pub from: u32,
    /// The port of whom it is for.
    pub to: u32,
    /// Bytes that follow.
    pub length: u32,
    /// What it says.
    pub operation: u16,
    /// More of that.
    pub flags: u32,
    /// How much its sender holds of what it has not read (`buf_alloc`).
    pub room: u32,
    /// How much its sender has read, all together (`fwd_cnt`).
    pub taken: u32,
}

impl Header {
    /// What a header says.
    #[must_use]
    pub fn parse(bytes: &[u8; HEADER_BYTES]) -> Header {
        let word = |at: usize| {
            bytes[at..].first_chunk().map_or(0, |bytes: &[u8; 4]| u32::from_le_bytes(*bytes))
        };
        Header {
            from: word(16),
            to: word(20),
            length: word(24),
            operation: u16::from_le_bytes([bytes[30], bytes[31]]),
            flags: word(32),
            room: word(36),
            taken: word(40),
        }
    }

    /// The header, from this address to that.
    #[must_use]
    pub fn bytes(&self, source: u64, destination: u64) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        let mut put = |at: usize, part: &[u8]| bytes[at..at + part.len()].copy_from_slice(part);
        put(0, &source.to_le_bytes());
        put(8, &destination.to_le_bytes());
        put(28, &STREAM.to_le_bytes());
        put(30, &self.operation.to_le_bytes());
        let words = [(16, self.from), (20, self.to), (24, self.length), (32, self.flags)];
        for (at, word) in words.into_iter().chain([(36, self.room), (40, self.taken)]) {
            put(at, &word.to_le_bytes());
        }
        bytes
    }
}

/// Packets from the machine.
#[derive(Default)]
pub struct Input {
    bytes: Vec<u8>,
    start: usize,
}

/// The machine has sent what is no packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoPacket;

impl Input {
    /// Receive what there is; `None` when that is nothing now, and 0 at the end.
    pub fn receive(&mut self, socket: BorrowedFd<'_>) -> io::Result<Option<usize>> {
        let mut buffer = [0; PACKET_BYTES];
        match recv(socket, &mut buffer, RecvFlags::DONTWAIT) {
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            received => {
                let count = received?.0;
                self.feed(&buffer[..count]);
                Ok(Some(count))
            }
        }
    }

    /// As if this had been received.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.bytes.drain(..std::mem::take(&mut self.start));
        self.bytes.extend_from_slice(bytes);
    }

    /// The next whole packet.
    pub fn next_packet(&mut self) -> Result<Option<(Header, &[u8])>, NoPacket> {
        let waiting = &self.bytes[self.start..];
        let Some((header, rest)) = waiting.split_first_chunk::<HEADER_BYTES>() else {
            return Ok(None);
        };
        let header = Header::parse(header);
        let length = header.length as usize;
        if length > PACKET_BYTES {
            return Err(NoPacket);
        }
        let Some(data) = rest.get(..length) else { return Ok(None) };
        self.start += HEADER_BYTES + length;
        Ok(Some((header, data)))
    }
}

/// Packets to the machine.
pub struct Output {
    bytes: VecDeque<u8>,
    /// The guest's address.
    guest: u64,
}

impl Output {
    pub fn new(guest: u64) -> Output {
        Output { bytes: VecDeque::new(), guest }
    }

    /// Whether there is room for any packet.
    pub fn has_room(&self) -> bool {
        self.bytes.len() < OUTPUT_BYTES
    }

    /// Bytes that wait.
    pub fn waiting(&self) -> usize {
        self.bytes.len()
    }

    /// Add a packet.
    pub fn add(&mut self, mut header: Header, data: &[u8]) {
        header.length = data.len() as u32;
        self.bytes.extend(header.bytes(HOST, self.guest));
        self.bytes.extend(data);
    }

    /// Send what is taken.
    pub fn flush(&mut self, socket: BorrowedFd<'_>) -> io::Result<()> {
        while !self.bytes.is_empty() {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            match send(socket, self.bytes.as_slices().0, flags) {
                Ok(count) => drop(self.bytes.drain(..count)),
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}
