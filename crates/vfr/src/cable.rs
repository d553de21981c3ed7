//! A cable: a stream socket with frames, each after its length in four bytes, the most significant first.
//!
//! The length is an allegation. A frame that is longer than frames are, or shorter than their header, ends the cable,
//! because nothing after it can be told apart any more.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use router::{Mac, PortId};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use crate::lanes::{Lanes, PREFIX_BYTES};
use crate::limits::{BATCH_BYTES, FRAME_BYTES, READ_BYTES};

/// Bytes of its Ethernet header.
const HEADER_BYTES: usize = 14;

/// A cable's end, with what has come and what is to go.
#[derive(Debug)]
pub struct Cable {
    socket: OwnedFd,
    input: Box<[u8]>,
    start: usize,
    end: usize,
    /// What waits to be written, of each sender.
    lanes: Lanes,
    /// What is written now.
    output: Vec<u8>,
    /// Bytes of it that were taken.
    taken: usize,
    /// The socket has taken no more when it was last written to.
    is_blocked: bool,
}

/// What a cable has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// A whole frame.
    Frame(Range<usize>),
    /// Less than that.
    Part,
    /// What is no frame.
    Broken,
}

/// What reading has come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Came {
    /// Something.
    More,
    /// Nothing now.
    Nothing,
    /// There is nobody any more.
    Ended,
}

impl Cable {
    /// One with this socket, which need not be non-blocking.
    #[must_use]
    pub fn new(socket: OwnedFd) -> Self {
        let input = vec![0; READ_BYTES + PREFIX_BYTES + FRAME_BYTES].into();
        let lanes = Lanes::default();
        let (output, taken, is_blocked) = (Vec::new(), 0, false);
        Self { socket, input, start: 0, end: 0, lanes, output, taken, is_blocked }
    }

    /// The first frame that has come, which this takes.
    pub fn take(&mut self) -> Next {
        let come = &self.input[self.start..self.end];
        let Some(prefix) = come.first_chunk::<PREFIX_BYTES>() else { return Next::Part };
        let length = u32::from_be_bytes(*prefix) as usize;
        if !(HEADER_BYTES..=FRAME_BYTES).contains(&length) {
            return Next::Broken;
        }
        if come.len() < PREFIX_BYTES + length {
            return Next::Part;
        }
        let first = self.start + PREFIX_BYTES;
        self.start = first + length;
        Next::Frame(first..first + length)
    }

    /// The bytes of a frame.
    #[must_use]
    pub fn frame(&self, range: Range<usize>) -> &[u8] {
        &self.input[range]
    }

    /// Read what there is, behind what has come: what is not whole is moved to the front.
    pub fn read(&mut self) -> Came {
        self.input.copy_within(self.start..self.end, 0);
        self.end -= std::mem::take(&mut self.start);
        // There is room for a frame behind any part of one.
        let room = &mut self.input[self.end..];
        match recv(&self.socket, room, RecvFlags::DONTWAIT) {
            Ok((0, _)) => Came::Ended,
            Ok((count, _)) => {
                self.end += count;
                Came::More
            }
            Err(Errno::AGAIN | Errno::INTR) => Came::Nothing,
            Err(_) => Came::Ended,
        }
    }

    /// Put a frame of this port's behind what is to go, for this address if that is another than the frame's; whether
    /// there was room.
    pub fn put(&mut self, from: PortId, frame: &[u8], mac: Option<Mac>) -> bool {
        self.lanes.put(from, frame, mac)
    }

    /// Whether enough waits to be written, and can be.
    #[must_use]
    pub fn is_batch(&self) -> bool {
        !self.is_blocked && self.output.len() - self.taken + self.lanes.bytes() >= BATCH_BYTES
    }

    /// Whether there is something to write that may be taken.
    #[must_use]
    pub fn can_write(&self) -> bool {
        !self.is_blocked && self.has_output()
    }

    /// The socket takes something again.
    pub fn unblock(&mut self) {
        self.is_blocked = false;
    }

    /// Whether something waits.
    #[must_use]
    pub fn has_output(&self) -> bool {
        self.output.len() > self.taken || self.lanes.bytes() > 0
    }

    /// Write what waits, as far as it is taken.
    ///
    /// # Errors
    ///
    /// There is nobody to take it.
    pub fn write(&mut self) -> io::Result<()> {
        loop {
            if self.taken == self.output.len() {
                self.output.clear();
                self.taken = 0;
                self.lanes.take(&mut self.output);
            }
            if self.output.is_empty() {
                return Ok(());
            }
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            match send(&self.socket, &self.output[self.taken..], flags) {
                Ok(count) => self.taken += count,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    self.is_blocked = true;
                    return Ok(());
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl AsFd for Cable {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
