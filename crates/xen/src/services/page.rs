//! A page of a domain's that has a ring in it.

use std::sync::atomic::{AtomicU64, Ordering};

use machine::memory::NoMemory;
use vm_memory::GuestAddress;
use xen_abi::{Mfn, PAGE_BYTES};

use crate::memory::MachineMemory;

/// The page. The domain may write to it at any time.
#[derive(Clone)]
pub(crate) struct SharedPage {
    memory: MachineMemory,
    frame: Mfn,
}

impl SharedPage {
    pub(crate) fn new(memory: &MachineMemory, frame: Mfn) -> Self {
        Self { memory: memory.clone(), frame }
    }

    /// Where a byte of it is.
    fn at(&self, offset: usize) -> GuestAddress {
        GuestAddress(self.frame.address() + (offset % PAGE_BYTES) as u64)
    }
}

impl xen_store::ring::Page for SharedPage {
    fn load(&self, offset: usize) -> u32 {
        let word = self.memory.load(self.frame, offset / 8);
        (word >> (offset % 8 * 8)) as u32
    }

    fn store(&mut self, offset: usize, value: u32) {
        let shift = offset % 8 * 8;
        let with = |word: u64| word & !(u64::from(u32::MAX) << shift) | u64::from(value) << shift;
        let change = &mut |word: &AtomicU64| {
            let (set, fetch) = (Ordering::AcqRel, Ordering::Acquire);
            // The closure always gives a value, so that it comes to an end with one.
            let _ = word.fetch_update(set, fetch, |old| Some(with(old)));
        };
        // The page is the domain's, and remains so: the builder has laid it out.
        let _: Result<(), NoMemory> = self.memory.bytes().change_word(self.at(offset & !7), change);
    }

    fn read(&self, offset: usize, bytes: &mut [u8]) {
        if self.memory.bytes().read(self.at(offset), bytes).is_err() {
            bytes.fill(0);
        }
    }

    fn write(&mut self, offset: usize, bytes: &[u8]) {
        let _: Result<(), NoMemory> = self.memory.bytes().write(self.at(offset), bytes);
    }
}
