//! The guest's physical memory, as devices that read and write it by address see it.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use vm_memory::{Bytes, GuestAddress, GuestMemoryBackend, GuestMemoryMmap, VolatileMemory};

/// No RAM at the address that the guest gave, or not that much.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("there is no memory at the guest-physical address that was given")]
pub struct NoMemory;

/// Guest memory. An implementation also drops the translations of code that is overwritten.
pub trait Memory: Send + Sync {
    /// Fill `bytes` from `address` on.
    ///
    /// # Errors
    ///
    /// [`NoMemory`] when the range is not all RAM; `bytes` is then unspecified.
    fn read(&self, address: GuestAddress, bytes: &mut [u8]) -> Result<(), NoMemory>;

    /// Store `bytes` from `address` on.
    ///
    /// # Errors
    ///
    /// [`NoMemory`] when the range is not all RAM; part of it may have been written.
    fn write(&self, address: GuestAddress, bytes: &[u8]) -> Result<(), NoMemory>;

    /// Load two bytes at an even address, in one step; what is read after it is as new.
    ///
    /// # Errors
    ///
    /// [`NoMemory`] when there is no RAM, or the address is odd.
    fn load(&self, address: GuestAddress) -> Result<u16, NoMemory>;

    /// Store two bytes at an even address, in one step, after what was written before.
    ///
    /// # Errors
    ///
    /// [`NoMemory`] when there is no RAM, or the address is odd.
    fn store(&self, address: GuestAddress, value: u16) -> Result<(), NoMemory>;

    /// Load eight bytes at an aligned address, in one step; what is read after it is as new.
    ///
    /// # Errors
    ///
    /// [`NoMemory`] when there is no RAM, or the address is not aligned.
    fn load_word(&self, address: GuestAddress) -> Result<u64, NoMemory>;

    /// Change eight bytes at an aligned address by the atomic operations that `change` does on them, once.
    ///
    /// # Errors
    ///
    /// [`NoMemory`] when there is no RAM, or the address is not aligned: `change` is not called then.
    fn change_word(
        &self,
        address: GuestAddress,
        change: &mut dyn FnMut(&AtomicU64),
    ) -> Result<(), NoMemory>;

    /// Bytes from `address` on are about to be moved by the host, which must find them there.
    fn require(&self, address: GuestAddress, length: u64) {
        let _ = (address, length);
    }

    /// What is from `address` on is not needed any more, and reads as zeroes; where that is possible, the host has the
    /// memory again. Whole pages.
    ///
    /// # Errors
    ///
    /// [`NoMemory`] when the range is not all RAM.
    fn discard(&self, address: GuestAddress, length: u64) -> Result<(), NoMemory> {
        const PAGE: [u8; 4096] = [0; _];
        (0..length)
            .step_by(PAGE.len())
            .try_for_each(|offset| self.write(GuestAddress(address.0 + offset), &PAGE))
    }

    /// Exchange one byte, in one step as other processors see it.
    ///
    /// # Errors
    ///
    /// [`NoMemory`] when there is no RAM.
    fn swap_byte(&self, address: GuestAddress, value: u8) -> Result<u8, NoMemory>;
}

impl Memory for GuestMemoryMmap {
    fn read(&self, address: GuestAddress, bytes: &mut [u8]) -> Result<(), NoMemory> {
        self.read_slice(bytes, address).map_err(|_| NoMemory)
    }

    fn write(&self, address: GuestAddress, bytes: &[u8]) -> Result<(), NoMemory> {
        self.write_slice(bytes, address).map_err(|_| NoMemory)
    }

    fn load(&self, address: GuestAddress) -> Result<u16, NoMemory> {
        Bytes::load(self, address, Ordering::Acquire).map_err(|_| NoMemory)
    }

    fn store(&self, address: GuestAddress, value: u16) -> Result<(), NoMemory> {
        Bytes::store(self, value, address, Ordering::Release).map_err(|_| NoMemory)
    }

    fn load_word(&self, address: GuestAddress) -> Result<u64, NoMemory> {
        Bytes::load(self, address, Ordering::Acquire).map_err(|_| NoMemory)
    }

    fn change_word(
        &self,
        address: GuestAddress,
        change: &mut dyn FnMut(&AtomicU64),
    ) -> Result<(), NoMemory> {
        let slice = self.get_slice(address, 8).map_err(|_| NoMemory)?;
        change(slice.get_atomic_ref::<AtomicU64>(0).map_err(|_| NoMemory)?);
        Ok(())
    }

    fn swap_byte(&self, address: GuestAddress, value: u8) -> Result<u8, NoMemory> {
        let slice = self.get_slice(address, 1).map_err(|_| NoMemory)?;
        let byte = slice.get_atomic_ref::<AtomicU8>(0).map_err(|_| NoMemory)?;
        Ok(byte.swap(value, Ordering::SeqCst))
    }
}
