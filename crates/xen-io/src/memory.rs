//! A domain as a back-end sees it: memory by machine addresses, the records of its frames, and its grant table.

use std::sync::atomic::{AtomicU64, Ordering};

use frames::Frames;
use xen_abi::{Mfn, PAGE_BYTES};

/// An address in the domain's machine memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MachineAddress(pub u64);

impl MachineAddress {
    /// The byte at `offset` of a frame.
    pub const fn in_frame(frame: Mfn, offset: u64) -> Self {
        Self(frame.address().wrapping_add(offset))
    }

    /// So many bytes further.
    pub const fn plus(self, bytes: u64) -> Self {
        Self(self.0.wrapping_add(bytes))
    }
}

/// Bytes of the domain's, inside of one frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// The first one.
    pub at: MachineAddress,
    /// How many.
    pub bytes: u32,
}

/// Where an entry of a grant table is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GrantPlace {
    /// The entry itself.
    pub entry: MachineAddress,
    /// The marks that say that it is in use, in version 2; in version 1 they are in the entry.
    pub marks: Option<MachineAddress>,
}

/// There is no memory at the machine address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the domain has no memory at the machine address that was given")]
pub struct NoMemory;

/// A domain's memory, which the domain may change at any time.
pub trait Memory: Send + Sync {
    /// Fill `bytes` from `at` on.
    ///
    /// # Errors
    ///
    /// [`NoMemory`] when the range is not all memory; `bytes` is then unspecified.
    fn read(&self, at: MachineAddress, bytes: &mut [u8]) -> Result<(), NoMemory>;

    /// Store `bytes` from `at` on. Nothing of this crate writes to what may hold translated code without naming the
    /// range to the embedding, but for rings and grant tables.
    ///
    /// # Errors
    ///
    /// [`NoMemory`] when the range is not all memory; part of it may have been written.
    fn write(&self, at: MachineAddress, bytes: &[u8]) -> Result<(), NoMemory>;

    /// Load eight bytes at an aligned address, in one step; what is read after it is as new.
    ///
    /// # Errors
    ///
    /// [`NoMemory`] when there is no memory, or the address is not aligned.
    fn load_word(&self, at: MachineAddress) -> Result<u64, NoMemory>;

    /// Change eight bytes at an aligned address by the atomic operations that `change` does on them, once.
    ///
    /// # Errors
    ///
    /// [`NoMemory`] when there is no memory, or the address is not aligned: `change` is not called then.
    fn change_word(
        &self,
        at: MachineAddress,
        change: &mut dyn FnMut(&AtomicU64),
    ) -> Result<(), NoMemory>;
}

/// A domain that back-ends serve.
pub trait Domain: Memory {
    /// The records of its frames.
    fn frames(&self) -> Frames<'_>;

    /// Where an entry of its grant table is, if the table can be that long.
    fn grant_place(&self, reference: u32) -> Option<GrantPlace>;
}

/// Load the four bytes at an aligned address.
///
/// # Errors
///
/// [`NoMemory`].
pub fn load_index(memory: &dyn Memory, at: MachineAddress) -> Result<u32, NoMemory> {
    let word = memory.load_word(MachineAddress(at.0 & !7))?;
    Ok((word >> shift(at)) as u32)
}

/// Store four bytes at an aligned address, after all that was written before, and before anything is read after it.
///
/// The word's other half may be the front-end's, which stores it meanwhile. One exclusive-or changes only ours, and
/// needs no second attempt; if the front-end has written to our half, it has spoilt its own ring.
///
/// # Errors
///
/// [`NoMemory`].
pub fn store_index(memory: &dyn Memory, at: MachineAddress, value: u32) -> Result<(), NoMemory> {
    let difference = u64::from(load_index(memory, at)? ^ value) << shift(at);
    memory.change_word(MachineAddress(at.0 & !7), &mut |word| {
        word.fetch_xor(difference, Ordering::SeqCst);
    })
}

const fn shift(at: MachineAddress) -> u32 {
    if at.0 & 4 == 0 { 0 } else { 32 }
}

/// Whether so many bytes from an offset on are inside of a page.
pub(crate) const fn fits_page(offset: usize, bytes: usize) -> bool {
    offset <= PAGE_BYTES && bytes <= PAGE_BYTES - offset
}
