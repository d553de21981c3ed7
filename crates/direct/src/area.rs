//! The file that the domain shares with the helpers: one slot for each helper.

use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd};

use crate::error::{Error, host};
use crate::layout::{BASE, MAX_SPACES, RESERVED, SLOT_BYTES};
use crate::stub;

const AREA_BYTES: usize = (MAX_SPACES + 1) * SLOT_BYTES as usize;

/// The file, mapped as a whole.
#[derive(Debug)]
pub(crate) struct Area {
    pub file: File,
    base: *mut u8,
}

// SAFETY: the mapping belongs to the process, not to a thread; what may be accessed when is up to
// the owners of the slots.
unsafe impl Send for Area {}
// SAFETY: as above.
unsafe impl Sync for Area {}

impl Area {
    /// An empty area with the stub in its first page.
    pub(crate) fn new() -> Result<Self, Error> {
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        // SAFETY: the name is a C string.
        let fd = unsafe { libc::memfd_create(c"bivouac-helpers".as_ptr(), flags) };
        if fd < 0 {
            return Err(host("create the helpers' memory file"));
        }
        // SAFETY: the descriptor is new and nobody else's.
        let file = unsafe { File::from_raw_fd(fd) };
        file.set_len(AREA_BYTES as u64)
            .map_err(|source| Error::Host { action: "size the helpers' memory file", source })?;
        let seals = libc::F_SEAL_GROW | libc::F_SEAL_SHRINK | libc::F_SEAL_SEAL;
        // SAFETY: touches no memory.
        if unsafe { libc::fcntl(fd, libc::F_ADD_SEALS, seals) } < 0 {
            return Err(host("seal the helpers' memory file"));
        }
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_NORESERVE;
        // SAFETY: a new mapping where there was none.
        let base = unsafe {
            libc::mmap(std::ptr::null_mut(), AREA_BYTES, protection, flags, file.as_raw_fd(), 0)
        };
        if base == libc::MAP_FAILED {
            return Err(host("map the helpers' memory file"));
        }
        // SAFETY: the range is the new mapping. Without the advice the zygote would inherit the
        // mapping for the moment until it unmaps everything, which is no harm.
        unsafe { libc::madvise(base, AREA_BYTES, libc::MADV_DONTFORK) };
        let area = Self { file, base: base.cast() };
        let code = stub::code();
        // SAFETY: the stub fits into the first page, which nobody else uses yet.
        unsafe { area.base.copy_from_nonoverlapping(code.as_ptr(), code.len()) };
        Ok(area)
    }

    /// Where the helper's `address` in slot `slot` is in the domain's memory.
    fn place(&self, slot: usize, address: u64, bytes: usize) -> *mut u8 {
        let end = address + bytes as u64;
        let fits = slot <= MAX_SPACES && RESERVED.contains(&address) && end <= RESERVED.end;
        assert!(fits, "{address:#x} is not in a slot");
        let offset = slot * SLOT_BYTES as usize + (address - BASE) as usize;
        // SAFETY: the slot is inside the mapping, and the address inside the slot.
        unsafe { self.base.add(offset) }
    }

    /// Read what is at the helper's `address`. `T` must be made of integers.
    pub(crate) fn read<T: Copy>(&self, slot: usize, address: u64) -> T {
        let place = self.place(slot, address, size_of::<T>());
        // SAFETY: `place` is mapped for that many bytes, any bits are a value of `T`, and the
        // slot's owner reads while the runner is held.
        unsafe { place.cast::<T>().read_unaligned() }
    }

    /// Write to the helper's `address`.
    pub(crate) fn write<T: Copy>(&self, slot: usize, address: u64, value: T) {
        let place = self.place(slot, address, size_of::<T>());
        // SAFETY: as for `read`.
        unsafe { place.cast::<T>().write_unaligned(value) };
    }

    /// The bytes at the helper's `address`, for as long as its runner is held.
    #[allow(clippy::mut_from_ref)]
    pub(crate) fn bytes(&self, slot: usize, address: u64, length: usize) -> &mut [u8] {
        let place = self.place(slot, address, length);
        // SAFETY: the range is mapped. Only the slot's owner asks for it, through a `&mut` of its
        // own, one range at a time, while the runner is held in the kernel and writes nothing.
        unsafe { std::slice::from_raw_parts_mut(place, length) }
    }

    /// Make a slot zero again.
    pub(crate) fn clear(&self, slot: usize) {
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        let offset = slot as i64 * SLOT_BYTES.cast_signed();
        // SAFETY: touches no memory but the slot, which has no owner.
        unsafe {
            libc::fallocate(self.file.as_raw_fd(), mode, offset, SLOT_BYTES.cast_signed());
        }
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and with the last owner of a slot all references are gone.
        unsafe { libc::munmap(self.base.cast(), AREA_BYTES) };
    }
}
