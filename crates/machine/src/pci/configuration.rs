//! The configuration space of one function: 256 bytes, of which some bits can be written, base
//! addresses, and a list of capabilities.

use serde::{Deserialize, Serialize};

use super::bits::{
    BAR_64_BITS, BARS, CONFIGURATION_BYTES, Command, HAS_CAPABILITIES, SEVERAL_FUNCTIONS,
    capability, msi_x, offset,
};
use super::vectors::{SavedVectors, TABLE_BYTES, Vectors};
use crate::bus::Size;
use crate::saved::{self, Unfit};

/// What a function says it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// The maker.
    pub vendor: u16,
    /// Which of theirs.
    pub device: u16,
    /// Class, subclass and programming interface.
    pub class: u32,
    /// Of the device.
    pub revision: u8,
    /// Vendor and device of what it is on.
    pub subsystem: (u16, u16),
}

/// What the guest has written to a configuration space, and its messages.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SavedConfiguration {
    bytes: Vec<u8>,
    vectors: Option<SavedVectors>,
}

/// Memory behind a base address.
#[derive(Debug, Clone, Copy)]
struct Bar {
    /// A power of two.
    size: u64,
    /// Where the machine has put it.
    home: u64,
}

/// The configuration space of a function.
#[derive(Debug)]
pub struct Configuration {
    bytes: [u8; CONFIGURATION_BYTES],
    /// Bits that the guest can write.
    writable: [u8; CONFIGURATION_BYTES],
    bars: [Option<Bar>; BARS],
    /// The next capability goes there, and its offset into that byte.
    free: usize,
    link: usize,
    /// Of MSI-X: the messages, the base address and the capability.
    vectors: Option<(Vectors, usize, usize)>,
}

impl Configuration {
    /// A function without memory and capabilities.
    pub fn new(identity: Identity) -> Self {
        let mut it = Self {
            bytes: [0; CONFIGURATION_BYTES],
            writable: [0; CONFIGURATION_BYTES],
            bars: [None; BARS],
            free: offset::FIRST_CAPABILITY,
            link: offset::CAPABILITIES,
            vectors: None,
        };
        it.put(offset::VENDOR, &identity.vendor.to_le_bytes());
        it.put(offset::DEVICE, &identity.device.to_le_bytes());
        it.put(offset::REVISION, &[identity.revision]);
        it.put(offset::CLASS, &identity.class.to_le_bytes()[..3]);
        it.put(offset::SUBSYSTEM_VENDOR, &identity.subsystem.0.to_le_bytes());
        it.put(offset::SUBSYSTEM, &identity.subsystem.1.to_le_bytes());
        let command = Command::all().bits().to_le_bytes();
        it.writable[offset::COMMAND..offset::COMMAND + 2].copy_from_slice(&command);
        // Nobody reads it but operating systems, which keep a number there.
        it.writable[offset::LINE] = 0xff;
        it
    }

    /// Give it `size` bytes of memory, a power of two of at least a page, behind a base address and
    /// the next, which are one of 64 bits.
    ///
    /// # Panics
    ///
    /// When there are not two, or the size is none.
    #[must_use]
    pub fn with_memory(mut self, bar: usize, size: u64) -> Self {
        assert!(bar + 1 < BARS && size.is_power_of_two() && size >= 4096, "base address {bar}");
        self.bars[bar] = Some(Bar { size, home: 0 });
        let at = offset::BARS + 4 * bar;
        self.writable[at..at + 8].copy_from_slice(&(!(size - 1)).to_le_bytes());
        self.put(at, &BAR_64_BITS.to_le_bytes());
        self
    }

    /// Give it four bytes of registers of its own, of which the guest can write some bits.
    #[must_use]
    pub(super) fn with_register(mut self, at: usize, value: u32, writable: u32) -> Self {
        self.put(at, &value.to_le_bytes());
        self.writable[at..at + 4].copy_from_slice(&writable.to_le_bytes());
        self
    }

    /// It is one of several functions in its slot.
    #[must_use]
    pub(super) fn of_several(mut self) -> Self {
        self.put(offset::HEADER, &[SEVERAL_FUNCTIONS]);
        self
    }

    /// Add a capability: `body` is what follows its identifier and link. Where it is.
    ///
    /// # Panics
    ///
    /// When there is no room for it.
    pub fn add_capability(&mut self, identifier: u8, body: &[u8]) -> usize {
        let at = self.free;
        assert!(at + 2 + body.len() <= CONFIGURATION_BYTES, "too many capabilities");
        self.put(self.link, &[at as u8]);
        self.put(at, &[identifier, 0]);
        self.put(at + 2, body);
        let status = self.word(offset::STATUS) | HAS_CAPABILITIES;
        self.put(offset::STATUS, &status.to_le_bytes());
        self.link = at + 1;
        self.free = (at + 2 + body.len()).next_multiple_of(4);
        at
    }

    /// Have it interrupt by these messages, whose table is behind base address `bar`.
    pub fn add_vectors(&mut self, vectors: Vectors, bar: usize) {
        let count = vectors.count();
        let (table, pending) = (bar as u32, TABLE_BYTES as u32 | bar as u32);
        let mut body = (count - 1).to_le_bytes().to_vec();
        body.extend(table.to_le_bytes());
        body.extend(pending.to_le_bytes());
        let at = self.add_capability(capability::MSI_X, &body);
        let control = (msi_x::ENABLE | msi_x::FUNCTION_MASK).to_le_bytes();
        self.allow_writes(at + msi_x::CONTROL, &control);
        self.vectors = Some((vectors, bar, at));
    }

    /// The bits of `mask` from `at` on can be written.
    pub fn allow_writes(&mut self, at: usize, mask: &[u8]) {
        self.writable[at..at + mask.len()].copy_from_slice(mask);
    }

    /// A load that does not leave its 4 bytes.
    pub fn read(&self, at: usize, size: Size) -> u32 {
        let bytes = self.bytes[at..].iter().take(size.bytes().into());
        bytes.rev().fold(0, |value, byte| value << 8 | u32::from(*byte))
    }

    /// A store that does not leave its 4 bytes.
    pub fn write(&mut self, at: usize, size: Size, value: u32) {
        for (at, byte) in
            (at..CONFIGURATION_BYTES).zip(value.to_le_bytes()).take(size.bytes().into())
        {
            let mask = self.writable[at];
            self.bytes[at] = self.bytes[at] & !mask | byte & mask;
        }
        self.control_vectors();
    }

    /// Base addresses and how many bytes are behind each.
    pub(super) fn sizes(&self) -> Vec<(usize, u64)> {
        let bars = self.bars.iter().enumerate();
        bars.filter_map(|(number, bar)| Some((number, (*bar)?.size))).collect()
    }

    /// Its home is there.
    pub(super) fn place(&mut self, bar: usize, address: u64) {
        if let Some(bar) = &mut self.bars[bar] {
            bar.home = address;
        }
        self.reset();
    }

    /// What the guest has written is undone.
    pub(super) fn reset(&mut self) {
        for at in 0..CONFIGURATION_BYTES {
            self.bytes[at] &= !self.writable[at];
        }
        for number in 0..BARS {
            let Some(bar) = self.bars[number] else { continue };
            let value = bar.home | u64::from(BAR_64_BITS);
            self.put(offset::BARS + 4 * number, &value.to_le_bytes());
            self.put(offset::COMMAND, &Command::MEMORY.bits().to_le_bytes());
        }
        if let Some((vectors, ..)) = &self.vectors {
            vectors.reset();
        }
        self.control_vectors();
    }

    /// What one that goes on from here has to know.
    pub(super) fn save(&self) -> SavedConfiguration {
        let vectors = self.vectors.as_ref().map(|(vectors, ..)| vectors.save());
        SavedConfiguration { bytes: self.bytes.to_vec(), vectors }
    }

    /// Go on from there: what the guest can write is as it was, the rest is as it is.
    pub(super) fn restore(&mut self, saved: &SavedConfiguration) -> Result<(), Unfit> {
        let is_same = |at: &usize| (self.bytes[*at] ^ saved.bytes[*at]) & !self.writable[*at] == 0;
        let fits = saved.bytes.len() == CONFIGURATION_BYTES
            && (0..CONFIGURATION_BYTES).all(|at| is_same(&at));
        saved::check(fits, "a PCI function")?;
        self.bytes.copy_from_slice(&saved.bytes);
        match (&self.vectors, &saved.vectors) {
            (Some((vectors, ..)), Some(saved)) => vectors.restore(saved)?,
            (mine, saved) => saved::check(mine.is_none() && saved.is_none(), "a PCI function")?,
        }
        self.control_vectors();
        Ok(())
    }

    /// Which of its base addresses decodes an address, and which byte behind it that is.
    pub(super) fn decode(&self, address: u64) -> Option<(usize, u64)> {
        if self.word(offset::COMMAND) & Command::MEMORY.bits() == 0 {
            return None;
        }
        self.bars.iter().enumerate().find_map(|(number, bar)| {
            let size = (*bar)?.size;
            let at = offset::BARS + 4 * number;
            let start = u64::from_le_bytes(std::array::from_fn(|n| self.bytes[at + n])) & !0xf;
            let within = address.wrapping_sub(start);
            (within < size).then_some((number, within))
        })
    }

    /// Its messages, if their table is behind this base address.
    pub(super) fn vectors_at(&self, bar: usize) -> Option<&Vectors> {
        self.vectors.as_ref().filter(|(_, its_bar, _)| *its_bar == bar).map(|(vectors, ..)| vectors)
    }

    /// The messages do what the capability says.
    fn control_vectors(&self) {
        if let Some((vectors, _, at)) = &self.vectors {
            vectors.control(self.word(at + msi_x::CONTROL));
        }
    }

    fn word(&self, at: usize) -> u16 {
        u16::from_le_bytes([self.bytes[at], self.bytes[at + 1]])
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }
}
