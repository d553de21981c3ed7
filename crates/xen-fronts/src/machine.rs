//! A domain of a few frames, and the front-end's side of a ring.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use frames::{FrameRecord, Frames};
use xen_abi::grant::{EntryV1, entry};
use xen_abi::{Mfn, PAGE_BYTES, Wire};
use xen_io::grant::Grants;
use xen_io::{Domain, GrantPlace, MachineAddress, Memory, NoMemory};

/// The first frame of the domain, which is its grant table.
pub const BASE: u64 = 0x10000;

/// Frames that there are.
pub const FRAMES: u64 = 640;

/// The first frame of a ring. Grants of the same numbers are for all frames.
pub const RING: u32 = 1;
/// The first frame with data.
pub const DATA: u32 = 20;

/// A domain's memory, its frames and its grant table.
pub struct Machine {
    words: Vec<AtomicU64>,
    records: Vec<FrameRecord>,
}

impl Machine {
    /// Grant N is for frame N, but for that of the grant table.
    pub fn new() -> Arc<Self> {
        let words = (0..FRAMES * 512).map(|_| AtomicU64::new(0)).collect();
        let records = (0..FRAMES).map(|_| FrameRecord::default()).collect();
        let machine = Self { words, records };
        machine.frames().assign_special(Mfn(BASE), false).expect("it is new");
        for frame in 1..FRAMES {
            machine.frames().assign(Mfn(BASE + frame)).expect("it is new");
        }
        for number in 1..512 {
            machine.permit(number, number, 0);
        }
        Arc::new(machine)
    }

    /// An entry of the grant table.
    pub fn entry(&self, reference: u32) -> EntryV1 {
        let word = self.words[reference as usize].load(Ordering::SeqCst);
        EntryV1::decode(&word.to_le_bytes())
    }

    /// Replace an entry of the grant table.
    pub fn set_entry(&self, reference: u32, entry: EntryV1) {
        let word = u64::from_le_bytes(entry.to_bytes());
        self.words[reference as usize].store(word, Ordering::SeqCst);
    }

    /// Permit access to a frame with more flags.
    pub fn permit(&self, reference: u32, frame: u32, flags: u16) {
        let flags = entry::PERMIT_ACCESS | flags;
        self.set_entry(reference, EntryV1 { flags, domain: 0, frame: BASE as u32 + frame });
    }

    fn word(&self, at: MachineAddress) -> Result<&AtomicU64, NoMemory> {
        let offset = at.0.checked_sub(BASE << 12).filter(|_| at.0.is_multiple_of(8));
        self.words.get((offset.ok_or(NoMemory)? / 8) as usize).ok_or(NoMemory)
    }

    /// Fill a page.
    ///
    /// # Panics
    ///
    /// If there is none.
    pub fn fill(&self, frame: u32, byte: u8) {
        self.write(address(frame), &[byte; PAGE_BYTES]).expect("it is there");
    }

    /// What is in a page.
    ///
    /// # Panics
    ///
    /// If there is none.
    pub fn page(&self, frame: u32) -> [u8; PAGE_BYTES] {
        let mut bytes = [0; PAGE_BYTES];
        self.read(address(frame), &mut bytes).expect("it is there");
        bytes
    }

    /// References of all frames, but for the grant table's own.
    pub fn references(&self) -> u32 {
        (1..FRAMES).map(|frame| self.frames().references(Mfn(BASE + frame))).sum()
    }
}

/// Where a frame begins.
pub fn address(frame: u32) -> MachineAddress {
    MachineAddress::in_frame(Mfn(BASE + u64::from(frame)), 0)
}

impl Memory for Machine {
    fn read(&self, at: MachineAddress, bytes: &mut [u8]) -> Result<(), NoMemory> {
        for (at, byte) in (at.0..).zip(bytes) {
            let word = self.word(MachineAddress(at & !7))?.load(Ordering::SeqCst);
            *byte = word.to_le_bytes()[at as usize % 8];
        }
        Ok(())
    }

    fn write(&self, at: MachineAddress, bytes: &[u8]) -> Result<(), NoMemory> {
        for (at, byte) in (at.0..).zip(bytes) {
            let (word, shift) = (self.word(MachineAddress(at & !7))?, at % 8 * 8);
            let others = word.load(Ordering::SeqCst) & !(0xff << shift);
            word.store(others | u64::from(*byte) << shift, Ordering::SeqCst);
        }
        Ok(())
    }

    fn load_word(&self, at: MachineAddress) -> Result<u64, NoMemory> {
        Ok(self.word(at)?.load(Ordering::SeqCst))
    }

    fn change_word(
        &self,
        at: MachineAddress,
        change: &mut dyn FnMut(&AtomicU64),
    ) -> Result<(), NoMemory> {
        change(self.word(at)?);
        Ok(())
    }
}

impl Domain for Machine {
    fn frames(&self) -> Frames<'_> {
        Frames::new(Mfn(BASE), &self.records)
    }

    fn grant_place(&self, reference: u32) -> Option<GrantPlace> {
        let entry = MachineAddress::in_frame(Mfn(BASE), u64::from(reference) * 8);
        (reference < 512).then_some(GrantPlace { entry, marks: None })
    }
}

/// A front-end's side of a ring in the frames from [`RING`] on.
pub struct Front {
    /// Whose it is.
    pub machine: Arc<Machine>,
    /// What the back-end has of it.
    pub grants: Arc<Grants>,
    entry_bytes: usize,
    entries: u32,
    /// Requests that were put.
    pub produced: u32,
    /// Responses that were taken.
    pub consumed: u32,
}

impl Front {
    /// Of a ring of so many pages.
    pub fn new(pages: usize, entry_bytes: usize) -> Self {
        let machine = Machine::new();
        let grants = Grants::new(Arc::clone(&machine) as Arc<dyn Domain>);
        let entries = xen_abi::ring::entries(pages * PAGE_BYTES, entry_bytes) as u32;
        let front = Self { machine, grants, entry_bytes, entries, produced: 0, consumed: 0 };
        front.set(4, 1);
        front.set(12, 1);
        front
    }

    /// Write a word of the ring's first page.
    ///
    /// # Panics
    ///
    /// If it is not in the domain.
    pub fn set(&self, offset: u64, value: u32) {
        let at = address(RING).plus(offset);
        self.machine.write(at, &value.to_le_bytes()).expect("it is there");
    }

    /// Read a word of the ring's first page.
    ///
    /// # Panics
    ///
    /// If it is not in the domain.
    pub fn get(&self, offset: u64) -> u32 {
        let mut bytes = [0; 4];
        self.machine.read(address(RING).plus(offset), &mut bytes).expect("it is there");
        u32::from_le_bytes(bytes)
    }

    fn place(&self, index: u32) -> MachineAddress {
        address(RING).plus(64 + u64::from(index % self.entries) * self.entry_bytes as u64)
    }

    /// Put a request, which the back-end does not see yet.
    ///
    /// # Panics
    ///
    /// If there is no room.
    pub fn put(&mut self, bytes: &[u8]) {
        assert!(self.produced.wrapping_sub(self.consumed) < self.entries, "the ring is full");
        self.machine.write(self.place(self.produced), bytes).expect("it is there");
        self.produced = self.produced.wrapping_add(1);
    }

    /// Have the requests seen; whether the back-end wants to be notified.
    pub fn push(&self) -> bool {
        let old = self.get(0);
        self.set(0, self.produced);
        self.produced.wrapping_sub(self.get(4)) < self.produced.wrapping_sub(old)
    }

    /// Take the responses that are there, and want an event for the next.
    ///
    /// # Panics
    ///
    /// If the ring is not in the domain.
    pub fn take<T: Wire>(&mut self) -> Vec<T> {
        let (mut list, producer) = (Vec::new(), self.get(8));
        while self.consumed != producer {
            let mut bytes = vec![0; T::BYTES];
            self.machine.read(self.place(self.consumed), &mut bytes).expect("it is there");
            list.push(T::decode(&bytes));
            self.consumed = self.consumed.wrapping_add(1);
        }
        self.set(12, self.consumed.wrapping_add(1));
        list
    }
}
