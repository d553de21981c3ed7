//! The console's ring (public/io/console.h): two directions of bytes in a page of the domain's, which is not granted
//! but named when the domain is made.
//!
//! The domain may have set the indices to anything. One that says that there is more than the ring can hold is
//! [`Broken`], and the console is not looked at any more.

use std::mem::offset_of;

use xen_abi::Mfn;
use xen_abi::console::ConsoleRing;

use crate::error::Broken;
use crate::memory::{MachineAddress, Memory, load_index, store_index};

const INPUT_BYTES: u32 = 1024;
const OUTPUT_BYTES: u32 = 2048;

/// One direction: where its bytes and its indices are.
#[derive(Debug)]
struct Direction {
    bytes: usize,
    length: u32,
    consumer: usize,
    producer: usize,
    /// Ours of the two indices. It is not read back.
    own: u32,
}

/// See above.
#[derive(Debug)]
pub struct Console {
    page: Mfn,
    input: Direction,
    output: Direction,
}

impl Console {
    /// The console in this frame, which goes on where the page says that it is.
    ///
    /// # Errors
    ///
    /// [`Broken`] if there is no memory.
    pub fn new(memory: &dyn Memory, page: Mfn) -> Result<Self, Broken> {
        let load = |offset| load_index(memory, MachineAddress::in_frame(page, offset as u64));
        let input = Direction {
            bytes: offset_of!(ConsoleRing, input),
            length: INPUT_BYTES,
            consumer: offset_of!(ConsoleRing, input_consumer),
            producer: offset_of!(ConsoleRing, input_producer),
            own: load(offset_of!(ConsoleRing, input_producer))?,
        };
        let output = Direction {
            bytes: offset_of!(ConsoleRing, output),
            length: OUTPUT_BYTES,
            consumer: offset_of!(ConsoleRing, output_consumer),
            producer: offset_of!(ConsoleRing, output_producer),
            own: load(offset_of!(ConsoleRing, output_consumer))?,
        };
        Ok(Self { page, input, output })
    }

    /// Take what the domain has written, of at most the ring's length, and add it to `bytes`; whether that was
    /// anything: then the domain has to be notified.
    ///
    /// # Errors
    ///
    /// [`Broken`].
    pub fn take(&mut self, memory: &dyn Memory, bytes: &mut Vec<u8>) -> Result<bool, Broken> {
        let (ring, page) = (&mut self.output, self.page);
        let producer = load_index(memory, place(page, ring.producer))?;
        let waiting = ring.distance(ring.own, producer, producer)?;
        let start = bytes.len();
        bytes.resize(start + waiting as usize, 0);
        let mut rest = &mut bytes[start..];
        for (offset, count) in ring.pieces(waiting) {
            let (now, later) = rest.split_at_mut(count);
            memory.read(place(page, offset), now)?;
            rest = later;
        }
        if waiting > 0 {
            ring.own = producer;
            store_index(memory, place(page, ring.consumer), producer)?;
        }
        Ok(waiting > 0)
    }

    /// Give the domain the first of `bytes` to read; how many there was room for. The domain has to be notified if
    /// there were any, and notifies when it has read.
    ///
    /// # Errors
    ///
    /// [`Broken`].
    pub fn give(&mut self, memory: &dyn Memory, bytes: &[u8]) -> Result<usize, Broken> {
        let (ring, page) = (&mut self.input, self.page);
        let consumer = load_index(memory, place(page, ring.consumer))?;
        let room = ring.length - ring.distance(consumer, ring.own, consumer)?;
        let count = bytes.len().min(room as usize);
        let mut rest = &bytes[..count];
        for (offset, count) in ring.pieces(count as u32) {
            let (now, later) = rest.split_at(count);
            memory.write(place(page, offset), now)?;
            rest = later;
        }
        if count > 0 {
            ring.own = ring.own.wrapping_add(count as u32);
            store_index(memory, place(page, ring.producer), ring.own)?;
        }
        Ok(count)
    }
}

impl Direction {
    /// Bytes between two indices, of which the domain has said one.
    fn distance(&self, consumer: u32, producer: u32, said: u32) -> Result<u32, Broken> {
        let distance = producer.wrapping_sub(consumer);
        let most = self.own.wrapping_add(self.length);
        if distance <= self.length {
            Ok(distance)
        } else {
            Err(Broken::Index { index: said, most })
        }
    }

    /// Where so many bytes from our index on are in the page.
    fn pieces(&self, count: u32) -> [(usize, usize); 2] {
        let start = self.own % self.length;
        let first = count.min(self.length - start);
        [(self.bytes + start as usize, first as usize), (self.bytes, (count - first) as usize)]
    }
}

fn place(page: Mfn, offset: usize) -> MachineAddress {
    MachineAddress::in_frame(page, offset as u64)
}
