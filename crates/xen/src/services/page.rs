//! A page of a domain's that has a ring in it.

use xen_abi::{Mfn, PAGE_BYTES};
use xen_io::{MachineAddress, Memory, load_index, store_index};

use crate::memory::MachineMemory;

/// The page. The domain may write to it at any time. It remains the domain's: the builder has laid it out.
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
    fn at(&self, offset: usize) -> MachineAddress {
        MachineAddress::in_frame(self.frame, (offset % PAGE_BYTES) as u64)
    }
}

impl xen_store::ring::Page for SharedPage {
    fn load(&self, offset: usize) -> u32 {
        load_index(&self.memory, self.at(offset)).unwrap_or(0)
    }

    fn store(&mut self, offset: usize, value: u32) {
        let _ = store_index(&self.memory, self.at(offset), value);
    }

    fn read(&self, offset: usize, bytes: &mut [u8]) {
        if self.memory.read(self.at(offset), bytes).is_err() {
            bytes.fill(0);
        }
    }

    fn write(&mut self, offset: usize, bytes: &[u8]) {
        let _ = self.memory.write(self.at(offset), bytes);
    }
}
