//! Large byte buffers that are cheap to fill.
//!
//! Filling fresh memory costs a page fault for every 4 KiB; for a kernel of 50 MiB that takes longer
//! than reading it. A [`Buffer`] asks for huge pages, so that there is one fault for every 2 MiB.

use std::fs::File;
use std::io::{self, Read as _};
use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::ptr::NonNull;

use rustix::mm::{Advice, MapFlags, ProtFlags};

/// What a huge page is aligned to.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Most that is read from something that does not know its length.
const MAX_STREAM_BYTES: u64 = 1 << 30;

/// Bytes of its own, zero at first.
#[derive(Debug)]
pub struct Buffer {
    mapping: NonNull<u8>,
    mapped: usize,
    /// Where in the mapping the bytes start: at a huge page.
    start: usize,
    length: usize,
}

// SAFETY: a buffer owns its mapping, as a `Vec<u8>` owns its allocation.
unsafe impl Send for Buffer {}
// SAFETY: and `&Buffer` gives out nothing but `&[u8]`.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// A buffer of zeros.
    ///
    /// # Errors
    ///
    /// What Linux says if there is no room in the address space.
    pub fn new(length: usize) -> io::Result<Self> {
        let mapped = length.checked_add(HUGE_PAGE_BYTES).ok_or(io::ErrorKind::OutOfMemory)?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choosing touches no other memory.
        let mapping =
            unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), mapped, protection, flags)? };
        let mapping = NonNull::new(mapping.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        let start = mapping.as_ptr().align_offset(HUGE_PAGE_BYTES).min(HUGE_PAGE_BYTES);
        // SAFETY: the range is the mapping just made; the advice does not change its contents, and a
        // kernel without huge pages refuses it, which loses nothing but time.
        let _ =
            unsafe { rustix::mm::madvise(mapping.as_ptr().cast(), mapped, Advice::LinuxHugepage) };
        Ok(Self { mapping, mapped, start, length })
    }

    /// A whole file. What does not know its length (a pipe, a device, a file in `/proc`) is read to
    /// its end, up to a limit.
    ///
    /// # Errors
    ///
    /// What Linux says, that the file became shorter meanwhile, or that there is no end in sight.
    pub fn read(path: &Path) -> io::Result<Self> {
        let mut file = File::open(path)?;
        let metadata = file.metadata()?;
        if metadata.is_file() && metadata.len() > 0 {
            let mut buffer = Self::new(usize::try_from(metadata.len()).map_err(io::Error::other)?)?;
            file.read_exact(&mut buffer)?;
            return Ok(buffer);
        }
        let mut bytes = Vec::new();
        file.take(MAX_STREAM_BYTES + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > MAX_STREAM_BYTES {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it does not end"));
        }
        let mut buffer = Self::new(bytes.len())?;
        buffer.copy_from_slice(&bytes);
        Ok(buffer)
    }

    /// Forget what is beyond `length`.
    pub fn truncate(&mut self, length: usize) {
        self.length = self.length.min(length);
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `start + length` is at most `mapped`, so the range is inside our own mapping,
        // readable and initialized (to zero by the kernel) until it is unmapped by `drop`.
        unsafe { std::slice::from_raw_parts(self.mapping.as_ptr().add(self.start), self.length) }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `deref`; `&mut self` makes this the only reference.
        unsafe {
            std::slice::from_raw_parts_mut(self.mapping.as_ptr().add(self.start), self.length)
        }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: this is exactly the mapping made by `new`, and no reference outlives `self`.
        let _ = unsafe { rustix::mm::munmap(self.mapping.as_ptr().cast(), self.mapped) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_zero_and_keeps_what_is_written() {
        for length in [0, 1, 4096, (2 << 20) - 1, 5 << 20] {
            let mut buffer = Buffer::new(length).unwrap();
            assert_eq!(buffer.len(), length);
            assert!(buffer.iter().all(|&byte| byte == 0));
            buffer.fill(7);
            assert!(buffer.iter().all(|&byte| byte == 7));
            buffer.truncate(length / 2);
            assert_eq!(buffer.len(), length / 2);
            buffer.truncate(length);
            assert_eq!(buffer.len(), length / 2);
        }
    }

    #[test]
    fn what_cannot_be_had_is_an_error() {
        assert!(Buffer::new(usize::MAX).is_err());
        assert!(Buffer::new(1 << 60).is_err());
    }

    #[test]
    fn files_and_other_things_are_read() {
        let path = std::env::temp_dir().join(format!("bivouac-{}-buffer", std::process::id()));
        let bytes: Vec<u8> = (0..100_000_u32).map(|index| index as u8).collect();
        std::fs::write(&path, &bytes).unwrap();
        assert!(*Buffer::read(&path).unwrap() == bytes);
        std::fs::remove_file(&path).unwrap();
        assert!(Buffer::read(&path).is_err());
        assert!(Buffer::read(Path::new("/dev/null")).unwrap().is_empty());
        assert!(!Buffer::read(Path::new("/proc/self/status")).unwrap().is_empty());
    }
}
