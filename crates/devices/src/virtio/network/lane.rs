//! Frames between a queue and the backend.

use std::collections::VecDeque;

use machine::memory::Memory;
use vm_memory::GuestAddress;

use super::backend::{Fault, Frame, NetworkBackend, Way};
use super::bits::{MAX_FRAME_BYTES, MIN_FRAME_BYTES, header};
use crate::virtio::{Broken, Chain, Segment, Serving};

/// What a queue does before another has its turn.
const SHARE_BYTES: u64 = 512 << 10;

/// Frames that are sent at once, and their segments: what one system call takes.
const BATCH_FRAMES: usize = 64;
const BATCH_SEGMENTS: usize = 512;

/// The most descriptors of a frame; drivers use some twenty.
const MAX_FRAME_SEGMENTS: usize = 256;

/// What frames of one pair of queues go through.
pub struct Frames<'a> {
    pub pair: usize,
    pub backend: &'a mut dyn NetworkBackend,
    /// Where chains are read into.
    pub chain: &'a mut Chain,
}

/// A chain that was taken to be filled.
struct Buffer {
    head: u16,
    segments: usize,
    bytes: u64,
}

/// What has been taken for frames that are to be received.
#[derive(Default)]
pub struct Receiving {
    buffers: VecDeque<Buffer>,
    /// The segments of all of them.
    room: Vec<Segment>,
    bytes: u64,
}

impl Receiving {
    /// Chains that were taken.
    pub fn taken(&self) -> u16 {
        self.buffers.len() as u16
    }

    /// Give the driver the frames that the backend has, up to a queue's share.
    pub fn serve(
        &mut self,
        frames: Frames<'_>,
        mergeable: bool,
        serving: &mut Serving<'_>,
    ) -> Result<Result<(), Fault>, Broken> {
        let Frames { pair, backend, chain } = frames;
        let mut done = 0;
        while done < SHARE_BYTES {
            let bytes = match backend.next_bytes(pair) {
                Ok(Some(bytes)) => bytes,
                Ok(None) => break,
                Err(fault) => return Ok(Err(fault)),
            };
            // Without buffers, the driver is to say when there are some.
            if !self.make_room(bytes, mergeable, chain, serving)? {
                return Ok(Ok(()));
            }
            let received = match backend.receive(pair, &self.room) {
                Ok(Some(0)) => {
                    done += bytes;
                    continue;
                }
                Ok(Some(received)) => received.min(self.bytes),
                Ok(None) => break,
                Err(fault) => return Ok(Err(fault)),
            };
            let first = self.room.first().copied();
            let second = self.room.get(1).copied();
            let count = self.fill(received, serving)?;
            set_count(serving.memory(), [first, second], count)?;
            serving.publish()?;
            done += received;
        }
        backend.call_when_ready(pair, Way::In);
        Ok(Ok(()))
    }

    /// Take buffers until a frame of so many bytes has room, or what room there is.
    fn make_room(
        &mut self,
        bytes: u64,
        mergeable: bool,
        chain: &mut Chain,
        serving: &mut Serving<'_>,
    ) -> Result<bool, Broken> {
        loop {
            let has_one = !self.buffers.is_empty();
            // If all that the queue can have is here, there will not be more.
            let has_all = self.buffers.len() >= serving.size().into();
            if self.bytes >= bytes || has_all || has_one && !mergeable {
                return Ok(true);
            }
            if !serving.pop(chain)? {
                return Ok(false);
            }
            if Chain::bytes(&chain.writable) < header::BYTES as u64 {
                return Err(Broken::Request);
            }
            self.add(chain);
        }
    }

    fn add(&mut self, chain: &Chain) {
        let bytes = Chain::bytes(&chain.writable);
        self.buffers.push_back(Buffer { head: chain.head, segments: chain.writable.len(), bytes });
        self.room.extend(&chain.writable);
        self.bytes += bytes;
    }

    /// Use as many as a frame of so many bytes fills; how many that are.
    fn fill(&mut self, bytes: u64, serving: &mut Serving<'_>) -> Result<u16, Broken> {
        let (mut left, mut count, mut segments) = (bytes, 0, 0);
        while left > 0 {
            let Some(buffer) = self.buffers.pop_front() else { break };
            let here = left.min(buffer.bytes);
            serving.finish(buffer.head, here as u32)?;
            left -= here;
            count += 1;
            segments += buffer.segments;
            self.bytes -= buffer.bytes;
        }
        self.room.drain(..segments);
        Ok(count)
    }
}

/// What has been taken to be sent.
#[derive(Default)]
pub struct Sending {
    frames: Vec<Frame>,
    /// Their segments.
    segments: usize,
}

impl Sending {
    /// Chains that were taken.
    pub fn taken(&self) -> u16 {
        self.frames.len() as u16
    }

    /// Have the backend send what the driver has queued, up to a queue's share.
    pub fn serve(
        &mut self,
        frames: Frames<'_>,
        serving: &mut Serving<'_>,
    ) -> Result<Result<(), Fault>, Broken> {
        let Frames { pair, backend, chain } = frames;
        let mut done = 0;
        while done < SHARE_BYTES {
            while !self.is_full() && serving.take(chain)? {
                self.add(chain, serving)?;
            }
            if self.frames.is_empty() {
                if !serving.pop(chain)? {
                    return Ok(Ok(()));
                }
                self.add(chain, serving)?;
                continue;
            }
            let count = match backend.send(pair, &self.frames) {
                Ok(count) => count,
                Err(fault) => return Ok(Err(fault)),
            };
            let is_full = count < self.frames.len();
            done += self.finish(count, serving)?;
            serving.publish()?;
            if is_full {
                break;
            }
        }
        backend.call_when_ready(pair, Way::Out);
        Ok(Ok(()))
    }

    /// What is sent without a cable is lost.
    pub fn lose(&mut self, chain: &mut Chain, serving: &mut Serving<'_>) -> Result<(), Broken> {
        self.finish(usize::MAX, serving)?;
        while serving.pop(chain)? {
            serving.finish(chain.head, 0)?;
        }
        Ok(())
    }

    fn is_full(&self) -> bool {
        self.frames.len() >= BATCH_FRAMES || self.segments >= BATCH_SEGMENTS
    }

    /// Add what is a frame; nothing else is sent.
    fn add(&mut self, chain: &mut Chain, serving: &mut Serving<'_>) -> Result<(), Broken> {
        let bytes = Chain::bytes(&chain.readable);
        let frame = bytes.wrapping_sub(header::BYTES as u64);
        let is_frame = (MIN_FRAME_BYTES..=MAX_FRAME_BYTES).contains(&frame)
            && chain.readable.len() <= MAX_FRAME_SEGMENTS;
        if !is_frame {
            return serving.finish(chain.head, 0);
        }
        self.segments += chain.readable.len();
        let segments = std::mem::take(&mut chain.readable);
        self.frames.push(Frame { segments, bytes, head: chain.head });
        Ok(())
    }

    /// The first of them are done with; how many bytes that were.
    fn finish(&mut self, count: usize, serving: &mut Serving<'_>) -> Result<u64, Broken> {
        let mut bytes = 0;
        for frame in self.frames.drain(..count.min(self.frames.len())) {
            serving.finish(frame.head, 0)?;
            bytes += frame.bytes;
            self.segments -= frame.segments.len();
        }
        Ok(bytes)
    }
}

/// Write into the header how many buffers the frame has. The header lies in the first two segments, or
/// in smaller pieces than any driver has.
fn set_count(
    memory: &dyn Memory,
    segments: [Option<Segment>; 2],
    count: u16,
) -> Result<(), Broken> {
    let mut at = header::BUFFERS as u64;
    for segment in segments.into_iter().flatten() {
        let length = u64::from(segment.length);
        if at + 2 <= length {
            return Ok(memory.write(GuestAddress(segment.address + at), &count.to_le_bytes())?);
        }
        at = at.checked_sub(length).ok_or(Broken::Request)?;
    }
    Err(Broken::Request)
}
