//! Which pages of a process hold something of its own.
//!
//! `PAGEMAP_SCAN` (Linux 6.7) tells ranges, and zero pages from others; before it, /proc/PID/pagemap has a word for
//! each page, in which a zero page looks like any other.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

/// Which pages are looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pages {
    /// Of private mappings: those that are the process's own, not a file's and not the zero page.
    Own,
    /// Of shared memory: those that this process has touched.
    Touched,
}

/// Bytes of a page.
const PAGE_BYTES: u64 = 4096;
/// Ranges that one scan returns.
const RANGES_AT_ONCE: usize = 512;
/// Words that one read of the file returns.
const WORDS_AT_ONCE: usize = 4096;
/// `PAGEMAP_SCAN`: `_IOWR('f', 16, struct pm_scan_arg)`.
const SCAN: libc::Ioctl = 0xc060_6610;
const IS_FILE: u64 = 1 << 2;
const IS_PRESENT: u64 = 1 << 3;
const IS_SWAPPED: u64 = 1 << 4;
const IS_ZERO: u64 = 1 << 5;

/// The kernel's `struct pm_scan_arg` (linux/fs.h).
#[repr(C)]
struct Scan {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    ranges: u64,
    ranges_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// The kernel's `struct page_region`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Region {
    start: u64,
    end: u64,
    categories: u64,
}

/// The page map of one process.
#[derive(Debug)]
pub struct PageMap {
    file: File,
    scans: bool,
}

impl PageMap {
    /// That of `process`.
    ///
    /// # Errors
    ///
    /// Where we may not read it.
    pub fn open(process: u32) -> io::Result<Self> {
        Ok(Self { file: File::open(format!("/proc/{process}/pagemap"))?, scans: true })
    }

    /// The addresses of such pages within `range`, as ranges in order.
    ///
    /// # Errors
    ///
    /// Where the kernel cannot tell.
    pub fn find(&mut self, range: Range<u64>, pages: Pages) -> io::Result<Vec<Range<u64>>> {
        if self.scans {
            match self.scan(range.clone(), pages) {
                Err(error) if error.raw_os_error() == Some(libc::ENOTTY) => self.scans = false,
                result => return result,
            }
        }
        self.read(range, pages)
    }

    fn scan(&self, range: Range<u64>, pages: Pages) -> io::Result<Vec<Range<u64>>> {
        let (mut found, mut start) = (Vec::new(), range.start);
        let unwanted = if pages == Pages::Own { IS_FILE | IS_ZERO } else { IS_ZERO };
        while start < range.end {
            let mut regions = [Region { start: 0, end: 0, categories: 0 }; RANGES_AT_ONCE];
            let mut scan = Scan {
                size: size_of::<Scan>() as u64,
                flags: 0,
                start,
                end: range.end,
                walk_end: 0,
                ranges: regions.as_mut_ptr().addr() as u64,
                ranges_len: regions.len() as u64,
                max_pages: 0,
                category_inverted: unwanted,
                category_mask: unwanted,
                category_anyof_mask: IS_PRESENT | IS_SWAPPED,
                return_mask: IS_PRESENT | IS_SWAPPED,
            };
            // SAFETY: the kernel writes the argument and as many regions as it says, both locals.
            let count = unsafe { libc::ioctl(self.file.as_raw_fd(), SCAN, &raw mut scan) };
            let Ok(count) = usize::try_from(count) else { return Err(io::Error::last_os_error()) };
            for region in &regions[..count.min(RANGES_AT_ONCE)] {
                push(&mut found, region.start..region.end);
            }
            if scan.walk_end <= start {
                return Err(io::ErrorKind::InvalidData.into());
            }
            start = scan.walk_end;
        }
        Ok(found)
    }

    fn read(&self, range: Range<u64>, pages: Pages) -> io::Result<Vec<Range<u64>>> {
        let (mut found, mut page) = (Vec::new(), range.start / PAGE_BYTES);
        let end = range.end / PAGE_BYTES;
        let mut bytes = vec![0; WORDS_AT_ONCE * 8];
        while page < end {
            let count = usize::try_from(end - page).unwrap_or(usize::MAX).min(WORDS_AT_ONCE);
            self.file.read_exact_at(&mut bytes[..count * 8], page * 8)?;
            for word in bytes[..count * 8].as_chunks::<8>().0 {
                let word = u64::from_le_bytes(*word);
                // Bits 63 present, 62 swapped, 61 a file's or shared.
                let is_wanted = word >> 62 != 0 && (pages == Pages::Touched || word >> 61 & 1 == 0);
                if is_wanted {
                    push(&mut found, page * PAGE_BYTES..(page + 1) * PAGE_BYTES);
                }
                page += 1;
            }
        }
        Ok(found)
    }
}

fn push(found: &mut Vec<Range<u64>>, range: Range<u64>) {
    match found.last_mut() {
        Some(last) if last.end == range.start => last.end = range.end,
        _ => found.push(range),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_find_the_pages_that_were_written() {
        let mut memory = rustix_map(8 * PAGE_BYTES as usize);
        for page in [1, 2, 5] {
            memory.write(page * PAGE_BYTES as usize, 7);
        }
        let start = memory.start();
        let mut map = PageMap::open(std::process::id()).expect("we may read our own");
        let range = start..start + 8 * PAGE_BYTES;
        let expected =
            [(1, 3), (5, 6)].map(|(from, to)| start + from * PAGE_BYTES..start + to * PAGE_BYTES);
        assert_eq!(map.read(range.clone(), Pages::Own).expect("it can be read"), expected);
        assert_eq!(map.find(range, Pages::Own).expect("it can be scanned"), expected);
    }

    struct Mapping(*mut u8, usize);

    fn rustix_map(bytes: usize) -> Mapping {
        use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping, where the kernel likes.
        let start = unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, protection, flags) };
        Mapping(start.expect("there is memory").cast(), bytes)
    }

    impl Mapping {
        fn start(&self) -> u64 {
            self.0.addr() as u64
        }

        fn write(&mut self, offset: usize, value: u8) {
            assert!(offset < self.1);
            // SAFETY: within the mapping, which is ours.
            unsafe { self.0.add(offset).write_volatile(value) }
        }
    }

    impl Drop for Mapping {
        fn drop(&mut self) {
            // SAFETY: nobody refers to it any more.
            let _ = unsafe { rustix::mm::munmap(self.0.cast(), self.1) };
        }
    }
}
