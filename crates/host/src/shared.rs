//! Words that several processes have mapped from one file.
//!
//! The other processes may be hostile. They change words at any time, so that each is an atomic variable; they cannot
//! change where it is. An access raises a signal if somebody has made the file shorter meanwhile. So the file must be
//! one that only processes which are trusted can open, or that is sealed against it.

use std::fs::File;
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// Bytes of a page, which is all that is mapped.
const PAGE_BYTES: usize = 4096;

/// A page of shared words.
#[derive(Debug)]
pub struct SharedPage {
    start: NonNull<u8>,
}

// SAFETY: it owns a mapping of the process's, which any of its threads may use; all accesses are atomic.
unsafe impl Send for SharedPage {}
// SAFETY: as above.
unsafe impl Sync for SharedPage {}

impl SharedPage {
    /// The first page of a file.
    ///
    /// # Errors
    ///
    /// The file is shorter, or the host's.
    pub fn map(file: &File) -> io::Result<Self> {
        if file.metadata()?.len() < PAGE_BYTES as u64 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the host chooses an address at which nothing is, and nothing refers to the mapping but what is lent
        // out below for as long as it lives.
        let start =
            unsafe { mmap(std::ptr::null_mut(), PAGE_BYTES, access, MapFlags::SHARED, file, 0) }?;
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start })
    }

    /// The word at an offset in bytes, which is a multiple of its size and is never used as one of another size.
    ///
    /// # Panics
    ///
    /// If it is not in the page.
    #[must_use]
    pub fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8) && offset < PAGE_BYTES, "there is no such word");
        // SAFETY: the offset is in the mapping, which is aligned to pages and lives as long as `self`.
        unsafe { self.start.add(offset).cast().as_ref() }
    }

    /// The same with half as many bits, for which threads can wait (futex(2)).
    ///
    /// # Panics
    ///
    /// If it is not in the page.
    #[must_use]
    pub fn half(&self, offset: usize) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4) && offset < PAGE_BYTES, "there is no such word");
        // SAFETY: as above.
        unsafe { self.start.add(offset).cast().as_ref() }
    }
}

impl Drop for SharedPage {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's, and what it has lent out is gone.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), PAGE_BYTES) };
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn two_mappings_are_of_the_same_words() {
        let name = std::env::temp_dir().join(format!("biv-shared-{}", std::process::id()));
        let options = File::options().read(true).write(true).create(true).truncate(true).clone();
        let file = options.open(&name).expect("a temporary file");
        assert!(SharedPage::map(&file).is_err());
        file.set_len(PAGE_BYTES as u64).expect("there is room");
        let pages = [SharedPage::map(&file), SharedPage::map(&file)].map(Result::unwrap);
        std::fs::remove_file(&name).expect("it is there");
        pages[0].word(8).store(7, Ordering::SeqCst);
        pages[1].half(4092).store(9, Ordering::SeqCst);
        assert_eq!(pages[1].word(8).load(Ordering::SeqCst), 7);
        assert_eq!(pages[0].half(4092).load(Ordering::SeqCst), 9);
    }
}
