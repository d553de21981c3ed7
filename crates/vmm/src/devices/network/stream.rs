//! A back-end that is another process: frames on a stream socket, each after its length. The other end gets frames
//! without headers, and those that come from it are taken as they are: there was no wire on which they
//! could have been damaged.

use std::io::{self, ErrorKind};
use std::sync::Arc;

use devices::virtio::network::{Fault, Features, Frame, HEADER_BYTES, NetworkBackend, Way, header};
use devices::virtio::{Segment, scatter};
use host::message::{self, Outgoing};
use host::vectored::{MAX_PIECES, Pieces};
use machine::memory::Memory;
use vm_memory::GuestAddress;

use super::{pieces, readiness};
use crate::device_memory::{DeviceMemory, ranges};
use crate::devices::io_thread::EventSource;

/// Bytes of a length.
const PREFIX_BYTES: usize = 4;

/// Frames as they may be.
const FRAME_BYTES: std::ops::RangeInclusive<usize> = 14..=65535 + 18;

/// The back-end.
pub(super) struct Stream {
    memory: DeviceMemory,
    sources: Arc<[EventSource]>,
    /// The driver takes frames whose checksums have not been checked.
    is_trusted: bool,
    /// The beginning of the next frame's length, and how much of it there is.
    prefix: [u8; PREFIX_BYTES],
    have: usize,
    /// How much of the next frame is in the driver's buffers.
    done: usize,
    /// What is still to come of a frame that is lost.
    skip: usize,
    /// What is still to be sent of a frame.
    rest: Vec<u8>,
}

impl Stream {
    pub(super) fn new(memory: DeviceMemory, sources: Arc<[EventSource]>) -> Self {
        let (prefix, rest) = ([0; PREFIX_BYTES], Vec::new());
        let is_trusted = false;
        Self { memory, sources, is_trusted, prefix, have: 0, done: 0, skip: 0, rest }
    }

    /// The length of the next frame, if all of it has come.
    fn length(&self) -> Option<usize> {
        (self.have == PREFIX_BYTES).then(|| u32::from_be_bytes(self.prefix) as usize)
    }

    /// Receive what comes into our own memory; false if that is nothing now.
    fn receive_bytes(&mut self, into: Into) -> Result<bool, Fault> {
        let mut lost = [0; 4096];
        let room = match into {
            Into::Nowhere => &mut lost[..self.skip.min(4096)],
            Into::Prefix => &mut self.prefix[self.have..],
        };
        let none = Pieces::new(self.memory.map(), []).map_err(|_| Fault::NoMemory)?;
        let received = message::receive(self.sources[0].file(), &none, room);
        let Some(count) = settle(received)? else { return Ok(false) };
        match into {
            Into::Nowhere => self.skip -= count,
            Into::Prefix => self.have += count,
        }
        Ok(true)
    }

    /// Lose what is still to come of the next frame.
    fn skip_frame(&mut self) {
        if let Some(length) = self.length() {
            self.skip = length - self.done;
            (self.have, self.done) = (0, 0);
        }
    }

    /// Send what is left of a frame; whether that is all.
    fn send_rest(&mut self) -> Result<bool, Fault> {
        while !self.rest.is_empty() {
            let mut message = Outgoing::new(self.memory.map());
            message.add_bytes(&self.rest);
            let Some(count) = settle_sent(message.send(self.sources[0].file()))? else {
                return Ok(false);
            };
            self.rest.drain(..count);
        }
        Ok(true)
    }

    /// The frame, without its first `sent` bytes, is sent later.
    fn keep_rest(&mut self, frame: &Frame, sent: usize) -> Result<(), Fault> {
        let mut bytes = prefix(frame).to_vec();
        let mut skip = HEADER_BYTES;
        for segment in &frame.segments {
            let gone = skip.min(segment.length as usize);
            skip -= gone;
            let mut piece = vec![0; segment.length as usize - gone];
            let at = GuestAddress(segment.address + gone as u64);
            self.memory.read(at, &mut piece).map_err(|_| Fault::NoMemory)?;
            bytes.extend(piece);
        }
        self.rest = bytes.split_off(sent);
        Ok(())
    }
}

#[derive(Clone, Copy)]
enum Into {
    Prefix,
    Nowhere,
}

impl NetworkBackend for Stream {
    fn features(&self) -> Features {
        Features::CHECKSUM | Features::GUEST_CHECKSUM
    }

    fn set_features(&mut self, features: Features) {
        self.is_trusted = features.contains(Features::GUEST_CHECKSUM);
    }

    fn set_pairs(&mut self, _: usize) {}

    fn next_bytes(&mut self, _: usize) -> Result<Option<u64>, Fault> {
        while self.skip > 0 {
            if !self.receive_bytes(Into::Nowhere)? {
                return Ok(None);
            }
        }
        while self.have < PREFIX_BYTES {
            if !self.receive_bytes(Into::Prefix)? {
                return Ok(None);
            }
        }
        let length = u32::from_be_bytes(self.prefix) as usize;
        if !FRAME_BYTES.contains(&length) {
            tracing::error!("the network's other end sends what is no frame, of {length} bytes");
            return Err(Fault::Pulled);
        }
        Ok(Some((HEADER_BYTES + length) as u64))
    }

    fn receive(&mut self, _: usize, room: &[Segment]) -> Result<Option<u64>, Fault> {
        let Some(length) = self.length() else { return Ok(None) };
        let mut pieces = pieces(&self.memory, room)?;
        if pieces.bytes() < HEADER_BYTES + length {
            drop(pieces);
            self.skip_frame();
            return Ok(Some(0));
        }
        pieces.advance(HEADER_BYTES + self.done);
        pieces.truncate(length - self.done);
        // The next frame's length comes along, where there is one.
        let mut next = [0; PREFIX_BYTES];
        let received = message::receive(self.sources[0].file(), &pieces, &mut next);
        let Some(count) = settle(received)? else { return Ok(None) };
        let missing = length - self.done;
        if count < missing {
            self.done += count;
            return Ok(None);
        }
        drop(pieces);
        (self.prefix, self.have, self.done) = (next, count - missing, 0);
        let flags = if self.is_trusted { header::DATA_VALID } else { 0 };
        let first = [flags, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        scatter(&self.memory, room, &first).map_err(|_| Fault::NoMemory)?;
        let all = (HEADER_BYTES + length) as u64;
        self.memory.note_filled(room, all);
        Ok(Some(all))
    }

    fn send(&mut self, _: usize, frames: &[Frame]) -> Result<usize, Fault> {
        if !self.send_rest()? {
            return Ok(0);
        }
        let prefixes: Vec<_> = frames.iter().map(prefix).collect();
        let mut message = Outgoing::new(self.memory.map());
        for (frame, prefix) in frames.iter().zip(&prefixes) {
            // A frame has at most 256 segments, each in at most two regions.
            if message.pieces() + 2 * frame.segments.len() >= MAX_PIECES {
                break;
            }
            message.add_bytes(prefix);
            let added = message.add_memory(ranges(&frame.segments), HEADER_BYTES);
            added.map_err(|_| Fault::NoMemory)?;
        }
        let Some(mut sent) = settle_sent(message.send(self.sources[0].file()))? else {
            return Ok(0);
        };
        drop(message);
        for (number, frame) in frames.iter().enumerate() {
            let bytes = PREFIX_BYTES + frame.bytes as usize - HEADER_BYTES;
            if sent == 0 {
                return Ok(number);
            }
            if sent < bytes {
                self.keep_rest(frame, sent)?;
                return Ok(number + 1);
            }
            sent -= bytes;
        }
        Ok(frames.len())
    }

    fn call_when_ready(&mut self, _: usize, way: Way) {
        self.sources[0].call_when(readiness(way));
    }

    fn reset(&mut self) {
        self.skip_frame();
    }
}

/// The length of a frame, as it is sent.
fn prefix(frame: &Frame) -> [u8; PREFIX_BYTES] {
    (frame.bytes as u32 - HEADER_BYTES as u32).to_be_bytes()
}

/// Bytes received; `None` if there are none now.
fn settle(received: io::Result<usize>) -> Result<Option<usize>, Fault> {
    match received {
        Ok(0) => Err(Fault::Pulled),
        received => settle_sent(received),
    }
}

/// Bytes sent; `None` if the other end has to read first.
fn settle_sent(sent: io::Result<usize>) -> Result<Option<usize>, Fault> {
    match sent {
        Ok(count) => Ok(Some(count)),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
            Ok(None)
        }
        Err(_) => Err(Fault::Pulled),
    }
}
