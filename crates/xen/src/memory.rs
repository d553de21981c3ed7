//! A domain's machine memory, by frames.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use frames::{FrameRecord, Frames, Words};
use machine::memory::{Memory, NoMemory};
use vm_memory::GuestAddress;
use xen_abi::Mfn;
use xen_io::{GrantPlace, MachineAddress};

use crate::geometry::{self, Geometry};
use crate::grant_layout::Version;

/// Words of a frame.
pub(crate) const WORDS: usize = 512;

/// The domain's memory in words, by machine addresses.
#[derive(Clone)]
pub(crate) struct MachineMemory(Arc<dyn Memory>);

impl MachineMemory {
    pub(crate) fn new(memory: Arc<dyn Memory>) -> Self {
        Self(memory)
    }

    /// The memory by guest-physical addresses, which machine addresses are.
    pub(crate) fn bytes(&self) -> &dyn Memory {
        &*self.0
    }

    /// A word of a frame that there is; zero of another.
    pub(crate) fn load(&self, frame: Mfn, index: usize) -> u64 {
        self.0.load_word(word(frame, index)).unwrap_or(0)
    }

    /// All words of a frame that there is; of another they stay as they are.
    pub(crate) fn load_all(&self, frame: Mfn, words: &mut Words) {
        // A frame with a type is one that there is.
        let _: Result<(), NoMemory> = self.0.read(GuestAddress(frame.address()), words.bytes_mut());
    }

    /// Write a word of a frame that there is.
    pub(crate) fn store(&self, frame: Mfn, index: usize, value: u64) {
        let store = &mut |word: &AtomicU64| word.store(value, Ordering::SeqCst);
        // There is no other frame whose number gets here.
        let _: Result<(), NoMemory> = self.0.change_word(word(frame, index), store);
    }

    /// Write a word if it is `expected`.
    ///
    /// # Errors
    ///
    /// What it is instead.
    pub(crate) fn compare_exchange(
        &self,
        frame: Mfn,
        index: usize,
        expected: u64,
        value: u64,
    ) -> Result<(), u64> {
        let mut result = Err(0);
        let exchange = &mut |word: &AtomicU64| {
            let order = Ordering::SeqCst;
            result = word.compare_exchange(expected, value, order, order).map(drop);
        };
        let _: Result<(), NoMemory> = self.0.change_word(word(frame, index), exchange);
        result
    }
}

impl xen_io::Memory for MachineMemory {
    fn read(&self, at: MachineAddress, bytes: &mut [u8]) -> Result<(), xen_io::NoMemory> {
        self.0.read(GuestAddress(at.0), bytes).map_err(|_| xen_io::NoMemory)
    }

    fn write(&self, at: MachineAddress, bytes: &[u8]) -> Result<(), xen_io::NoMemory> {
        self.0.write(GuestAddress(at.0), bytes).map_err(|_| xen_io::NoMemory)
    }

    fn load_word(&self, at: MachineAddress) -> Result<u64, xen_io::NoMemory> {
        self.0.load_word(GuestAddress(at.0)).map_err(|_| xen_io::NoMemory)
    }

    fn change_word(
        &self,
        at: MachineAddress,
        change: &mut dyn FnMut(&AtomicU64),
    ) -> Result<(), xen_io::NoMemory> {
        self.0.change_word(GuestAddress(at.0), change).map_err(|_| xen_io::NoMemory)
    }
}

/// The address of a word.
fn word(frame: Mfn, index: usize) -> GuestAddress {
    GuestAddress(frame.address() + (index as u64 & 511) * 8)
}

/// What of a domain its back-ends use: the memory, the frames' records, the grant table.
pub(crate) struct Owned {
    pub(crate) geometry: Geometry,
    pub(crate) memory: MachineMemory,
    /// A record for each machine frame from [`geometry::BASE`] on.
    records: Box<[FrameRecord]>,
    /// The number of the grant table's version.
    grant_version: AtomicU32,
}

impl Owned {
    /// With records of frames that are nobody's yet.
    pub(crate) fn new(geometry: Geometry, memory: MachineMemory) -> Self {
        let count = usize::try_from(geometry.records()).unwrap_or(usize::MAX);
        let records = std::iter::repeat_with(FrameRecord::default).take(count).collect();
        let grant_version = AtomicU32::new(Version::default().number());
        Self { geometry, memory, records, grant_version }
    }

    /// The frames' types and counts.
    pub(crate) fn frames(&self) -> Frames<'_> {
        Frames::new(geometry::BASE, &self.records)
    }

    /// The layout of the grant table.
    pub(crate) fn grant_version(&self) -> Version {
        Version::of_number(self.grant_version.load(Ordering::SeqCst)).unwrap_or_default()
    }

    /// The grant table has this layout now.
    pub(crate) fn set_grant_version(&self, version: Version) {
        self.grant_version.store(version.number(), Ordering::SeqCst);
    }
}

impl xen_io::Memory for Owned {
    fn read(&self, at: MachineAddress, bytes: &mut [u8]) -> Result<(), xen_io::NoMemory> {
        self.memory.read(at, bytes)
    }

    fn write(&self, at: MachineAddress, bytes: &[u8]) -> Result<(), xen_io::NoMemory> {
        self.memory.write(at, bytes)
    }

    fn load_word(&self, at: MachineAddress) -> Result<u64, xen_io::NoMemory> {
        self.memory.load_word(at)
    }

    fn change_word(
        &self,
        at: MachineAddress,
        change: &mut dyn FnMut(&AtomicU64),
    ) -> Result<(), xen_io::NoMemory> {
        self.memory.change_word(at, change)
    }
}

impl xen_io::Domain for Owned {
    fn frames(&self) -> Frames<'_> {
        Owned::frames(self)
    }

    fn grant_place(&self, reference: u32) -> Option<GrantPlace> {
        self.grant_version().place(&self.geometry, reference)
    }
}
