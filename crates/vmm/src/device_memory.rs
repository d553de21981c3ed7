//! Guest memory as devices write it: through a mapping that stays writable whatever the vCPUs have write-protected.
//! After each write the translations of what was overwritten are dropped ([`cpu::VcpuGroup::note_written`] says why any
//! thread may do so).

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use cpu::VcpuGroup;
use devices::virtio::Segment;
use host::GuestMemory;
use machine::memory::{Memory, NoMemory};
use vm_memory::{GuestAddress, GuestMemoryMmap};

/// Segments as the host takes them: addresses and bytes.
pub(crate) fn ranges(segments: &[Segment]) -> impl Iterator<Item = (u64, usize)> + use<'_> {
    segments.iter().map(|segment| (segment.address, segment.length as usize))
}

/// See above. Clones are the same memory.
#[derive(Clone)]
pub(crate) struct DeviceMemory {
    memory: GuestMemory,
    group: Arc<VcpuGroup>,
}

impl DeviceMemory {
    pub(crate) fn new(memory: &GuestMemory, group: &Arc<VcpuGroup>) -> Self {
        Self { memory: memory.clone(), group: Arc::clone(group) }
    }

    /// Give memory back to the host; it reads as zeroes from now on.
    ///
    /// # Errors
    ///
    /// The host does not take it.
    pub(crate) fn discard(&self, address: u64, length: u64) -> Result<(), host::Error> {
        self.memory.discard(address, length)?;
        self.group.note_discarded(address, length);
        Ok(())
    }

    /// The mapping, for the host's kernel, where it was required; the caller that lets it write there calls
    /// [`Self::note_written`].
    pub(crate) fn map(&self) -> &GuestMemoryMmap {
        self.memory.map()
    }

    /// So many bytes were written, and the guest has not been told.
    pub(crate) fn note_written(&self, address: u64, length: u64) {
        self.group.note_written(address, length);
    }

    /// The first `bytes` of the segments were written, and the guest has not been told.
    pub(crate) fn note_filled(&self, segments: &[Segment], bytes: u64) {
        let mut left = bytes;
        for segment in segments {
            if left == 0 {
                return;
            }
            let here = left.min(segment.length.into());
            self.note_written(segment.address, here);
            left -= here;
        }
    }
}

impl Memory for DeviceMemory {
    fn read(&self, address: GuestAddress, bytes: &mut [u8]) -> Result<(), NoMemory> {
        self.memory.require(address.0, bytes.len() as u64);
        self.map().read(address, bytes)
    }

    fn write(&self, address: GuestAddress, bytes: &[u8]) -> Result<(), NoMemory> {
        // Part of it may have been written if it fails.
        self.memory.require(address.0, bytes.len() as u64);
        let written = self.map().write(address, bytes);
        self.note_written(address.0, bytes.len() as u64);
        written
    }

    fn require(&self, address: GuestAddress, length: u64) {
        self.memory.require(address.0, length);
    }

    fn discard(&self, address: GuestAddress, length: u64) -> Result<(), NoMemory> {
        DeviceMemory::discard(self, address.0, length).map_err(|_| NoMemory)
    }

    fn load(&self, address: GuestAddress) -> Result<u16, NoMemory> {
        self.memory.require(address.0, 2);
        Memory::load(self.map(), address)
    }

    fn store(&self, address: GuestAddress, value: u16) -> Result<(), NoMemory> {
        self.memory.require(address.0, 2);
        Memory::store(self.map(), address, value)?;
        self.note_written(address.0, 2);
        Ok(())
    }

    fn load_word(&self, address: GuestAddress) -> Result<u64, NoMemory> {
        self.memory.require(address.0, 8);
        self.map().load_word(address)
    }

    fn change_word(
        &self,
        address: GuestAddress,
        change: &mut dyn FnMut(&AtomicU64),
    ) -> Result<(), NoMemory> {
        self.memory.require(address.0, 8);
        self.map().change_word(address, change)?;
        self.note_written(address.0, 8);
        Ok(())
    }

    fn swap_byte(&self, address: GuestAddress, value: u8) -> Result<u8, NoMemory> {
        self.memory.require(address.0, 1);
        let old = self.map().swap_byte(address, value)?;
        self.note_written(address.0, 1);
        Ok(old)
    }
}
