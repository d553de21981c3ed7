//! Which pages of a process hold something of its own, and which of them were written.
//!
//! `PAGEMAP_SCAN` (Linux 6.7) tells ranges, and zero pages from others; before it, /proc/PID/pagemap has a word for
//! each page, in which a zero page looks like any other.
//!
//! *What was written.* Two ways, either of which a host may lack. Memory that a [`WriteWatch`](super::WriteWatch) has
//! can be protected by a scan; the first write to a page ends that by itself, and later scans tell (`PAGE_IS_WRITTEN`).
//! Or the kernel has a bit for each page that [`forget_writes`] clears (`CONFIG_MEM_SOFT_DIRTY`).

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

/// Pages of a process's own that lie together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Their addresses.
    pub range: Range<u64>,
    /// They may have been written since it was noted that they are not.
    pub is_written: bool,
}

/// Bytes of a page.
const PAGE_BYTES: u64 = 4096;
/// Ranges that one scan returns.
const RANGES_AT_ONCE: usize = 512;
/// Words that one read of the file returns.
const WORDS_AT_ONCE: usize = 4096;
/// `PAGEMAP_SCAN`: `_IOWR('f', 16, struct pm_scan_arg)`.
const SCAN: libc::Ioctl = 0xc060_6610;
/// `PM_SCAN_WP_MATCHING`.
const PROTECTS: u64 = 1;
const IS_WATCHED: u64 = 1;
const IS_WRITTEN: u64 = 1 << 1;
const IS_FILE: u64 = 1 << 2;
const IS_PRESENT: u64 = 1 << 3;
const IS_SWAPPED: u64 = 1 << 4;
const IS_ZERO: u64 = 1 << 5;
/// Of a word of the file.
const SOFT_DIRTY: u64 = 1 << 55;

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

/// Which pages a scan finds, and what it does.
struct Filter {
    /// Categories that they have.
    wanted: u64,
    /// Categories that they do not have.
    unwanted: u64,
    /// Categories that are told of them.
    told: u64,
    flags: u64,
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
        let unwanted = if pages == Pages::Own { IS_FILE | IS_ZERO } else { IS_ZERO };
        let filter = Filter { wanted: 0, unwanted, told: IS_PRESENT | IS_SWAPPED, flags: 0 };
        let mut found = Vec::new();
        self.scan_all(range, &filter, |region| push(&mut found, region.start..region.end))?;
        Ok(found)
    }

    fn scan_all(
        &self,
        range: Range<u64>,
        filter: &Filter,
        mut tell: impl FnMut(&Region),
    ) -> io::Result<()> {
        let mut start = range.start;
        while start < range.end {
            let mut regions = [Region { start: 0, end: 0, categories: 0 }; RANGES_AT_ONCE];
            let mut scan = Scan {
                size: size_of::<Scan>() as u64,
                flags: filter.flags,
                start,
                end: range.end,
                walk_end: 0,
                ranges: regions.as_mut_ptr().addr() as u64,
                ranges_len: regions.len() as u64,
                max_pages: 0,
                category_inverted: filter.unwanted,
                category_mask: filter.unwanted | filter.wanted,
                category_anyof_mask: IS_PRESENT | IS_SWAPPED,
                return_mask: filter.told,
            };
            // SAFETY: the kernel writes the argument and as many regions as it says, both locals.
            let count = unsafe { libc::ioctl(self.file.as_raw_fd(), SCAN, &raw mut scan) };
            let Ok(count) = usize::try_from(count) else { return Err(io::Error::last_os_error()) };
            regions[..count.min(RANGES_AT_ONCE)].iter().for_each(&mut tell);
            if scan.walk_end <= start {
                return Err(io::ErrorKind::InvalidData.into());
            }
            start = scan.walk_end;
        }
        Ok(())
    }

    /// The process's own pages within `range`, and which of them may have been written since they were protected.
    ///
    /// # Errors
    ///
    /// Where the kernel cannot tell, as any before Linux 6.7.
    pub fn find_watched(&self, range: Range<u64>) -> io::Result<Vec<Found>> {
        let filter = Filter {
            wanted: 0,
            unwanted: IS_FILE | IS_ZERO,
            told: IS_WATCHED | IS_WRITTEN,
            flags: 0,
        };
        let mut found = Vec::new();
        self.scan_all(range, &filter, |region| {
            // What nobody watches is written by whoever likes.
            let is_written = region.categories & (IS_WATCHED | IS_WRITTEN) != IS_WATCHED;
            push_found(&mut found, region.start..region.end, is_written);
        })?;
        Ok(found)
    }

    /// The process's own pages within `range` that are watched and may have been written since they were protected,
    /// which they are from now on.
    ///
    /// # Errors
    ///
    /// Where the kernel cannot tell, as any before Linux 6.7.
    pub fn protect(&self, range: Range<u64>) -> io::Result<Vec<Range<u64>>> {
        let filter = Filter {
            wanted: IS_WRITTEN,
            unwanted: IS_FILE | IS_ZERO,
            told: IS_WRITTEN,
            flags: PROTECTS,
        };
        let mut found = Vec::new();
        self.scan_all(range, &filter, |region| push(&mut found, region.start..region.end))?;
        Ok(found)
    }

    /// The process's own pages within `range`, and which of them may have been written since
    /// [`forget_writes`]: all, where the kernel has no bit for that.
    ///
    /// # Errors
    ///
    /// Where the kernel cannot tell.
    pub fn find_soft_dirty(&self, range: Range<u64>) -> io::Result<Vec<Found>> {
        let (mut found, has_bit) = (Vec::new(), has_soft_dirty());
        self.read_all(range, |page, word| {
            if is_own(word) {
                let range = page * PAGE_BYTES..(page + 1) * PAGE_BYTES;
                push_found(&mut found, range, !has_bit || word & SOFT_DIRTY != 0);
            }
        })?;
        Ok(found)
    }

    fn read(&self, range: Range<u64>, pages: Pages) -> io::Result<Vec<Range<u64>>> {
        let mut found = Vec::new();
        self.read_all(range, |page, word| {
            if is_own(word) || (pages == Pages::Touched && word >> 62 != 0) {
                push(&mut found, page * PAGE_BYTES..(page + 1) * PAGE_BYTES);
            }
        })?;
        Ok(found)
    }

    /// Tells the number of each page, and its word.
    fn read_all(&self, range: Range<u64>, mut tell: impl FnMut(u64, u64)) -> io::Result<()> {
        let (mut page, end) = (range.start / PAGE_BYTES, range.end / PAGE_BYTES);
        let mut bytes = vec![0; WORDS_AT_ONCE * 8];
        while page < end {
            let count = usize::try_from(end - page).unwrap_or(usize::MAX).min(WORDS_AT_ONCE);
            self.file.read_exact_at(&mut bytes[..count * 8], page * 8)?;
            for word in bytes[..count * 8].as_chunks::<8>().0 {
                tell(page, u64::from_le_bytes(*word));
                page += 1;
            }
        }
        Ok(())
    }
}

/// Whether a page is the process's own. Bits 63 present, 62 swapped, 61 a file's or shared.
fn is_own(word: u64) -> bool {
    word >> 62 != 0 && word >> 61 & 1 == 0
}

/// Whether the kernel has a bit for each page that says whether it was written.
#[must_use]
pub fn has_soft_dirty() -> bool {
    // A page is born with it, and nobody has cleared ours.
    let local = 0_u64;
    let page = (&raw const local).addr() as u64 / PAGE_BYTES;
    let mut word = [0; 8];
    let read =
        File::open("/proc/self/pagemap").and_then(|map| map.read_exact_at(&mut word, page * 8));
    read.is_ok() && u64::from_le_bytes(word) & SOFT_DIRTY != 0
}

/// Note of all pages of a process that they are not written.
///
/// # Errors
///
/// Where it is not ours.
pub fn forget_writes(process: u32) -> io::Result<()> {
    std::fs::write(format!("/proc/{process}/clear_refs"), "4")
}

fn push_found(found: &mut Vec<Found>, range: Range<u64>, is_written: bool) {
    match found.last_mut() {
        Some(last) if last.range.end == range.start && last.is_written == is_written => {
            last.range.end = range.end;
        }
        _ => found.push(Found { range, is_written }),
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
    use std::os::fd::{FromRawFd, OwnedFd};

    use super::*;
    use crate::processes::WriteWatch;

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

    /// A userfaultfd of this process; none where the host has or allows none, which is said.
    fn watch() -> Option<WriteWatch> {
        // SAFETY: the call has no pointers.
        let number = unsafe { libc::syscall(libc::SYS_userfaultfd, WriteWatch::FLAGS) };
        let number = i32::try_from(number).unwrap_or(-1);
        if number < 0 {
            println!("skipped: there is no userfaultfd: {}", io::Error::last_os_error());
            return None;
        }
        // SAFETY: the kernel has just made it, for us.
        let descriptor = unsafe { OwnedFd::from_raw_fd(number) };
        let watch = WriteWatch::new(descriptor);
        watch.map_err(|error| println!("skipped: it watches nothing asynchronously: {error}")).ok()
    }

    #[test]
    fn what_is_written_to_watched_memory_is_found() {
        let Some(watch) = watch() else { return };
        let mut memory = rustix_map(8 * PAGE_BYTES as usize);
        let start = memory.start();
        let pages = |from: u64, to: u64| start + from * PAGE_BYTES..start + to * PAGE_BYTES;
        let found = |from, to, is_written| Found { range: pages(from, to), is_written };
        let map = PageMap::open(std::process::id()).expect("we may read our own");
        for page in [1, 2, 5] {
            memory.write(page * PAGE_BYTES as usize, 7);
        }
        let all = || map.find_watched(pages(0, 8)).expect("it can be scanned");
        // Nobody watches it yet.
        assert_eq!(map.protect(pages(0, 8)).expect("it can be scanned"), []);
        assert_eq!(all(), [found(1, 3, true), found(5, 6, true)]);
        watch.add(pages(0, 8)).expect("it is ours");
        watch.add(pages(0, 8)).expect("again is no harm");
        assert_eq!(
            map.protect(pages(0, 8)).expect("it can be scanned"),
            [pages(1, 3), pages(5, 6)]
        );
        assert_eq!(all(), [found(1, 3, false), found(5, 6, false)]);
        memory.write(2 * PAGE_BYTES as usize, 8);
        memory.write(6 * PAGE_BYTES as usize, 8);
        assert_eq!(
            all(),
            [found(1, 2, false), found(2, 3, true), found(5, 6, false), found(6, 7, true)]
        );
        // The kernel's writes count, too.
        let source = [9; 8];
        let place = rustix::io::read(
            rustix::fs::open("/dev/zero", rustix::fs::OFlags::RDONLY, rustix::fs::Mode::empty())
                .expect("it is there"),
            memory.bytes(5 * PAGE_BYTES as usize, source.len()),
        );
        assert_eq!(place.expect("it is endless"), source.len());
        assert_eq!(
            map.protect(pages(0, 8)).expect("it can be scanned"),
            [pages(2, 3), pages(5, 7)]
        );
        drop(watch);
        assert!(all().iter().all(|found| found.is_written), "nobody watches it any more");
    }

    #[test]
    fn every_page_counts_as_written_where_the_kernel_does_not_tell() {
        let mut memory = rustix_map(2 * PAGE_BYTES as usize);
        memory.write(0, 1);
        let start = memory.start();
        let map = PageMap::open(std::process::id()).expect("we may read our own");
        let found = map.find_soft_dirty(start..start + 2 * PAGE_BYTES).expect("it can be read");
        assert_eq!(found, [Found { range: start..start + PAGE_BYTES, is_written: true }]);
        println!("the kernel has a bit for what is written: {}", has_soft_dirty());
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

        fn bytes(&mut self, offset: usize, count: usize) -> &mut [u8] {
            assert!(offset + count <= self.1);
            // SAFETY: within the mapping, which is ours, and as long as it is borrowed.
            unsafe { std::slice::from_raw_parts_mut(self.0.add(offset), count) }
        }
    }

    impl Drop for Mapping {
        fn drop(&mut self) {
            // SAFETY: nobody refers to it any more.
            let _ = unsafe { rustix::mm::munmap(self.0.cast(), self.1) };
        }
    }
}
