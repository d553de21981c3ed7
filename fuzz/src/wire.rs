//! A network cable for the targets that drive devices: each frame that is sent comes back, to be received, and
//! after so many it is pulled.

use std::sync::Arc;

use devices::virtio::Segment;
use devices::virtio::network::{Fault, Features, Frame, NetworkBackend, Way};
use machine::memory::Memory;
use vm_memory::{GuestAddress, GuestMemoryMmap};

/// Frames until it is pulled.
const FRAMES: u32 = 500;

/// The cable.
pub struct Wire {
    memory: Arc<GuestMemoryMmap>,
    frames: Vec<u64>,
    left: u32,
}

impl Wire {
    pub fn new(memory: &Arc<GuestMemoryMmap>) -> Self {
        Self { memory: Arc::clone(memory), frames: vec![100, 3000], left: FRAMES }
    }

    fn use_up(&mut self) -> Result<(), Fault> {
        self.left = self.left.checked_sub(1).ok_or(Fault::Pulled)?;
        Ok(())
    }

    /// Write or read all of the segments, as a host's kernel would.
    fn touch(&self, segments: &[Segment], write: bool) -> Result<(), Fault> {
        for segment in segments {
            let mut bytes = vec![0x55; (segment.length as usize).min(1 << 16)];
            let at = GuestAddress(segment.address);
            let touched = match write {
                true => self.memory.write(at, &bytes),
                false => self.memory.read(at, &mut bytes),
            };
            touched.map_err(|_| Fault::NoMemory)?;
        }
        Ok(())
    }
}

impl NetworkBackend for Wire {
    fn features(&self) -> Features {
        Features::HOST | Features::GUEST
    }

    fn set_features(&mut self, _: Features) {}

    fn set_pairs(&mut self, pairs: usize) {
        assert!((1..=2).contains(&pairs));
    }

    fn next_bytes(&mut self, pair: usize) -> Result<Option<u64>, Fault> {
        assert!(pair < 2);
        self.use_up()?;
        Ok(self.frames.last().copied())
    }

    fn receive(&mut self, _: usize, room: &[Segment]) -> Result<Option<u64>, Fault> {
        let Some(bytes) = self.frames.pop() else { return Ok(None) };
        self.touch(room, true)?;
        let all: u64 = room.iter().map(|segment| u64::from(segment.length)).sum();
        Ok(Some(if all < bytes { 0 } else { bytes }))
    }

    fn send(&mut self, pair: usize, frames: &[Frame]) -> Result<usize, Fault> {
        assert!(pair < 2 && !frames.is_empty());
        self.use_up()?;
        for frame in frames {
            self.touch(&frame.segments, false)?;
            self.frames.push(frame.bytes);
        }
        // It is full now and then.
        Ok(frames.len() - usize::from(self.left % 7 == 0))
    }

    fn call_when_ready(&mut self, _: usize, _: Way) {}

    fn reset(&mut self) {}
}
