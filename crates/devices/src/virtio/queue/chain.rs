//! A chain of descriptors, read once and checked as it is read.

use vm_memory::GuestAddress;

use super::bits::descriptor::{BYTES, INDIRECT, NEXT, WRITE};
use super::{Broken, Settings};
use machine::memory::Memory;

/// A range of guest-physical addresses, of which nothing is known but what the driver says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// The first.
    pub address: u64,
    /// Bytes.
    pub length: u32,
}

/// What the driver offers at once. It is filled anew for each.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Chain {
    /// Which it is, for the driver.
    pub head: u16,
    /// What the device may read.
    pub readable: Vec<Segment>,
    /// What the device may write.
    pub writable: Vec<Segment>,
}

/// A table of descriptors.
#[derive(Clone, Copy)]
struct Table {
    address: u64,
    entries: u32,
    is_indirect: bool,
}

struct Descriptor {
    segment: Segment,
    flags: u16,
    next: u16,
}

impl Chain {
    /// All bytes of some segments.
    pub fn bytes(segments: &[Segment]) -> u64 {
        segments.iter().map(|segment| u64::from(segment.length)).sum()
    }

    /// Follow the chain from `head` on.
    pub(super) fn follow(
        &mut self,
        memory: &dyn Memory,
        settings: &Settings,
        head: u16,
    ) -> Result<(), Broken> {
        self.head = head;
        self.readable.clear();
        self.writable.clear();
        let size = u32::from(settings.size);
        let mut table = Table { address: settings.descriptors, entries: size, is_indirect: false };
        let mut at = u32::from(head);
        let mut total = 0u64;
        // No chain is longer than the queue (2.7.5.2): one that is leads in a circle. What refers to a
        // table is not counted.
        for _ in 0..=size {
            let descriptor = table.read(memory, at)?;
            if descriptor.flags & INDIRECT != 0 {
                table = table.below(&descriptor, size)?;
                at = 0;
                continue;
            }
            self.add(&descriptor)?;
            let Segment { address, length } = descriptor.segment;
            memory.require(GuestAddress(address), length.into());
            total += u64::from(descriptor.segment.length);
            if total > u32::MAX.into() {
                return Err(Broken::TooLong);
            }
            if descriptor.flags & NEXT == 0 {
                return Ok(());
            }
            at = descriptor.next.into();
        }
        Err(Broken::Loop)
    }

    fn add(&mut self, descriptor: &Descriptor) -> Result<(), Broken> {
        let Segment { address, length } = descriptor.segment;
        address.checked_add(length.into()).ok_or(Broken::NoMemory)?;
        if descriptor.flags & WRITE != 0 {
            self.writable.push(descriptor.segment);
        } else if self.writable.is_empty() {
            self.readable.push(descriptor.segment);
        } else {
            return Err(Broken::Order);
        }
        Ok(())
    }
}

impl Table {
    fn read(self, memory: &dyn Memory, at: u32) -> Result<Descriptor, Broken> {
        if at >= self.entries {
            return Err(Broken::Index);
        }
        let mut bytes = [0; BYTES as usize];
        let place = self.address.checked_add(u64::from(at) * BYTES).ok_or(Broken::NoMemory)?;
        memory.read(GuestAddress(place), &mut bytes)?;
        let [a0, a1, a2, a3, a4, a5, a6, a7, l0, l1, l2, l3, f0, f1, n0, n1] = bytes;
        Ok(Descriptor {
            segment: Segment {
                address: u64::from_le_bytes([a0, a1, a2, a3, a4, a5, a6, a7]),
                length: u32::from_le_bytes([l0, l1, l2, l3]),
            },
            flags: u16::from_le_bytes([f0, f1]),
            next: u16::from_le_bytes([n0, n1]),
        })
    }

    /// The table that a descriptor refers to: one level, at the end of a chain (2.7.5.3).
    fn below(self, descriptor: &Descriptor, most: u32) -> Result<Self, Broken> {
        let Segment { address, length } = descriptor.segment;
        let entries = length / BYTES as u32;
        let fits = length % BYTES as u32 == 0 && (1..=most).contains(&entries);
        if self.is_indirect || descriptor.flags & NEXT != 0 || !fits {
            return Err(Broken::Indirect);
        }
        Ok(Self { address, entries, is_indirect: true })
    }
}
