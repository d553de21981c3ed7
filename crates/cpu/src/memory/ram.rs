//! Guest-physical memory: which addresses are RAM, where they are mapped, which pages hold code
//! that has been translated, and where write tags for a page may be found. All vCPUs of a machine share it;
//! everything in it is atomic.
//!
//! A page either has code or has write tags. Two vCPUs may try for both at once, so each side
//! announces itself before it checks the other. A vCPU that enters a tag notes it, stores it, and then checks
//! whether the page has code (and revokes the tag if so). A vCPU that translates marks the page and then
//! checks for tags. At least one of the two sees the other (`SeqCst` throughout).

use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::tlb::{ENTRIES, INDEX_BITS};
use super::{PAGE_SIZE, Physical};
use crate::config::RamRegion;

/// Bytes that the host is asked for at once. A first touch costs the host an exception and several
/// microseconds for each page; asked for together, a page costs a fraction of that.
const CHUNK_BYTES: u64 = 64 << 10;

/// What is fetched at once, where memory comes from somewhere else.
pub(super) const FETCHED_BYTES: u64 = host::backing::CHUNK_BYTES;

/// vCPUs of one machine, at most: one bit each in [`Writers`].
pub(crate) const MAX_VCPUS: usize = 16;

/// TLB indices remembered for one page.
const MAX_INDICES: u64 = 3;

/// Where write tags for a page may be: in any `SpaceTlb` of these vCPUs, at these indices.
///
/// Bits 15:0 are the vCPUs; bits 17:16 the number of indices; bit 18 says that there were more
/// of them; bits 33:20, 47:34 and 61:48 are the indices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Writers(u64);

impl Writers {
    const OVERFLOW: u64 = 1 << 18;

    /// The first bit of an index.
    fn place(slot: u64) -> u64 {
        20 + u64::from(INDEX_BITS) * slot
    }

    fn with(self, vcpu_index: usize, index: usize) -> Self {
        let mut bits = self.0 | 1 << vcpu_index;
        if bits & Self::OVERFLOW == 0 && !self.indices().any(|known| known == index) {
            let count = bits >> 16 & 3;
            if count == MAX_INDICES {
                bits |= Self::OVERFLOW;
            } else {
                bits += 1 << 16;
                bits |= (index as u64) << Self::place(count);
            }
        }
        Self(bits)
    }

    /// Whether the vCPU `vcpu_index` may have a tag.
    pub(crate) fn includes(self, vcpu_index: usize) -> bool {
        self.0 >> vcpu_index & 1 != 0
    }

    /// Whether no vCPU can have a tag.
    pub(crate) fn is_empty(self) -> bool {
        self.0 & 0xffff == 0
    }

    /// Whether tags may be at other indices than [`Self::indices`].
    pub(crate) fn anywhere(self) -> bool {
        self.0 & Self::OVERFLOW != 0
    }

    /// The indices.
    pub(crate) fn indices(self) -> impl Iterator<Item = usize> {
        (0..self.0 >> 16 & 3)
            .map(move |slot| (self.0 >> Self::place(slot)) as usize & (ENTRIES - 1))
    }
}

/// A region and what is remembered of it.
#[derive(Debug)]
struct Region {
    place: RamRegion,
    /// One flag per chunk: it has been asked for.
    present: Box<[AtomicBool]>,
    /// [`Writers`], one per page.
    writers: Box<[AtomicU64]>,
    /// One bit per page: it has translations.
    code: Box<[AtomicU64]>,
}

/// The guest's RAM.
#[derive(Debug)]
pub(crate) struct Ram {
    regions: Box<[Region]>,
    /// What of it the guest cannot write: a ROM.
    rom: OnceLock<Range<u64>>,
    /// What has to be asked before memory is looked at, where not all of it is there.
    lazy: Option<host::GuestMemory>,
}

// SAFETY: the host pointers are to mappings that outlive the processors and are shared memory by
// nature; all accesses through them are raw. The rest is atomic.
unsafe impl Send for Ram {}
// SAFETY: as above.
unsafe impl Sync for Ram {}

/// Ask the host for these pages of guest memory, or of an alias of it, and enter them into its page tables. A
/// refusal does no harm: the pages are then faulted in one by one.
pub(super) fn populate(start: *mut u8, bytes: u64, writable: bool) {
    /// Linux 5.14; not in the libc crate for all targets.
    const MADV_POPULATE_READ: i32 = 22;
    const MADV_POPULATE_WRITE: i32 = 23;
    let advice = if writable { MADV_POPULATE_WRITE } else { MADV_POPULATE_READ };
    // SAFETY: populating changes no byte and no mapping; where nothing is mapped it is refused.
    unsafe { libc::madvise(start.cast(), bytes as usize, advice) };
}

/// Zeroes that cost memory only where they are touched.
fn zeroes(count: u64) -> Box<[AtomicU64]> {
    let plain = vec![0u64; count as usize].into_boxed_slice();
    let raw = Box::into_raw(plain);
    // SAFETY: AtomicU64 has the size, alignment and validity of u64.
    unsafe { Box::from_raw(raw as *mut [AtomicU64]) }
}

impl Region {
    fn new(place: RamRegion) -> Self {
        let pages = place.size / PAGE_SIZE;
        let chunks = place.size.div_ceil(CHUNK_BYTES);
        Self {
            place,
            present: (0..chunks).map(|_| AtomicBool::new(false)).collect(),
            writers: zeroes(pages),
            code: zeroes(pages.div_ceil(64)),
        }
    }

    /// Ask the host for the chunk of so many bytes around `offset`.
    fn populate(&self, offset: u64, bytes: u64) {
        let start = offset / bytes * bytes;
        let length = bytes.min(self.place.size - start);
        populate(self.place.host.wrapping_add(start as usize), length, true);
    }
}

impl Ram {
    /// Take over `regions`, which must not overlap. They are those of `memory`, if there is one.
    pub(crate) fn new(mut regions: Vec<RamRegion>, memory: Option<&host::GuestMemory>) -> Self {
        regions.sort_by_key(|region| region.guest);
        let lazy = memory.filter(|memory| !memory.is_whole()).cloned();
        let regions = regions.into_iter().map(Region::new).collect();
        Self { regions, rom: OnceLock::new(), lazy }
    }

    /// Part of it, in whole pages, is a ROM from now on. There is one; the first call counts.
    pub(crate) fn set_rom(&self, rom: Range<u64>) {
        self.rom.get_or_init(|| rom);
    }

    /// Whether a byte is one of the ROM, which a store does not change.
    #[inline]
    pub(crate) fn is_rom(&self, at: Physical) -> bool {
        self.rom.get().is_some_and(|rom| rom.contains(&at.0))
    }

    /// The region of a guest-physical byte, and the byte's offset in it.
    #[inline]
    fn find(&self, at: Physical) -> Option<(&Region, u64)> {
        self.regions.iter().find_map(|region| {
            let offset = at.0.wrapping_sub(region.place.guest);
            (offset < region.place.size).then_some((region, offset))
        })
    }

    /// Host address of a guest-physical byte, if it is RAM. The rest of its page can be reached by it.
    #[inline]
    pub(crate) fn host(&self, at: Physical) -> Option<*mut u8> {
        let (region, offset) = self.find(at)?;
        if let Some(lazy) = &self.lazy
            && lazy.require(at.0, 1)
        {
            region.populate(offset, FETCHED_BYTES);
        }
        Some(region.place.host.wrapping_add(offset as usize))
    }

    /// The bytes of the page of `at`, if it is RAM. The guest may write it meanwhile: this is a copy, each word of
    /// which was there at some time.
    pub(crate) fn copy_page(&self, at: Physical) -> Option<[u8; PAGE_SIZE as usize]> {
        let words = self.words(at)?;
        let mut bytes = [0; PAGE_SIZE as usize];
        for (place, word) in bytes.chunks_exact_mut(size_of::<u64>()).zip(words) {
            place.copy_from_slice(&word.to_ne_bytes());
        }
        Some(bytes)
    }

    /// The words of the page of `at`, if it is RAM, each as it is when the iterator comes to it.
    pub(crate) fn words(&self, at: Physical) -> Option<impl Iterator<Item = u64>> {
        let host = self.host(at.page())?.cast::<u64>();
        Some((0..PAGE_SIZE as usize / size_of::<u64>()).map(move |number| {
            // SAFETY: a word of a page of RAM, which is mapped as long as the processors live and is aligned as
            // pages are; memory that others write is read only atomically.
            let word = unsafe { AtomicU64::from_ptr(host.wrapping_add(number)) };
            word.load(Ordering::Relaxed)
        }))
    }

    /// Have the host provide the memory around `at`, if that was not done yet.
    #[inline]
    pub(crate) fn make_present(&self, at: Physical) {
        let Some((region, offset)) = self.find(at) else { return };
        let chunk = &region.present[(offset / CHUNK_BYTES) as usize];
        if !chunk.load(Ordering::Relaxed) {
            let start = Physical(at.0 & !(CHUNK_BYTES - 1));
            if self.is_absent(start, CHUNK_BYTES) {
                // What is still to be fetched needs no room yet.
                return;
            }
            chunk.store(true, Ordering::Relaxed);
            region.populate(offset, CHUNK_BYTES);
        }
    }

    /// Whether some of the bytes from `at` on have still to be fetched.
    pub(crate) fn is_absent(&self, at: Physical, length: u64) -> bool {
        self.lazy.as_ref().is_some_and(|lazy| lazy.is_absent(at.0, length))
    }

    /// Memory was given back to the host: it will have to be asked for again.
    pub(crate) fn forget_present(&self) {
        let chunks = self.regions.iter().flat_map(|region| &region.present);
        chunks.for_each(|chunk| chunk.store(false, Ordering::Relaxed));
    }

    /// Bytes were given back to the host. A chunk of which all were is asked for again when it is used; one
    /// of which some were is not, or these would come back with the rest.
    pub(crate) fn note_discarded(&self, at: Physical, length: u64) {
        for region in &self.regions {
            let start = at.0.max(region.place.guest);
            let end = at.0.saturating_add(length).min(region.place.guest + region.place.size);
            if start >= end {
                continue;
            }
            let (start, end) = (start - region.place.guest, end - region.place.guest);
            for number in start / CHUNK_BYTES..end.div_ceil(CHUNK_BYTES) {
                let all = number * CHUNK_BYTES..(number + 1) * CHUNK_BYTES;
                let is_whole = start <= all.start && all.end.min(region.place.size) <= end;
                region.present[number as usize].store(!is_whole, Ordering::Relaxed);
            }
        }
    }

    /// Announce that a write tag for the page of `at` is about to be put into the TLB of the vCPU
    /// `vcpu_index`.
    pub(crate) fn note_writer(&self, at: Physical, vcpu_index: usize, index: usize) {
        let Some((region, offset)) = self.find(at) else { return };
        let slot = &region.writers[(offset / PAGE_SIZE) as usize];
        let mut old = slot.load(Ordering::Relaxed);
        loop {
            let new = Writers(old).with(vcpu_index, index).0;
            // Always a locked store: it orders the note before the look at the page's code.
            match slot.compare_exchange_weak(old, new, Ordering::SeqCst, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => old = now,
            }
        }
    }

    /// The vCPUs that may have a write tag for this page. The list is cleared, because the caller revokes the tags.
    pub(crate) fn take_writers(&self, at: Physical) -> Writers {
        let Some((region, offset)) = self.find(at) else { return Writers(0) };
        Writers(region.writers[(offset / PAGE_SIZE) as usize].swap(0, Ordering::SeqCst))
    }

    /// Whether any byte of the page of `at` has been translated, or nobody may write it: for whom it is mapped, that is
    /// the same.
    #[inline]
    pub(crate) fn has_code(&self, at: Physical) -> bool {
        self.is_rom(at)
            || self.find(at).is_some_and(|(region, offset)| {
                let page = offset / PAGE_SIZE;
                region.code[(page / 64) as usize].load(Ordering::SeqCst) >> (page % 64) & 1 != 0
            })
    }

    /// Set whether the page of `at` has translations.
    pub(crate) fn set_code(&self, at: Physical, has: bool) {
        let Some((region, offset)) = self.find(at) else { return };
        let page = offset / PAGE_SIZE;
        let word = &region.code[(page / 64) as usize];
        if has {
            word.fetch_or(1 << (page % 64), Ordering::SeqCst);
        } else {
            word.fetch_and(!(1 << (page % 64)), Ordering::SeqCst);
        }
    }

    /// No page has translations any more.
    pub(crate) fn clear_code(&self) {
        let words = self.regions.iter().flat_map(|region| &region.code);
        for word in words {
            if word.load(Ordering::Relaxed) != 0 {
                word.store(0, Ordering::SeqCst);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_discarded_whole_is_asked_for_again() {
        let mut bytes = vec![0_u8; 4 * CHUNK_BYTES as usize];
        let host = bytes.as_mut_ptr();
        let place = |guest, size| RamRegion { guest, size, host };
        let places = vec![place(0, 2 * CHUNK_BYTES), place(1 << 20, 3 * CHUNK_BYTES / 2)];
        let ram = Ram::new(places, None);
        let check = |at, length, expected: [&[bool]; 2]| {
            let chunks = ram.regions.iter().flat_map(|region| &region.present);
            chunks.for_each(|chunk| chunk.store(true, Ordering::Relaxed));
            ram.note_discarded(Physical(at), length);
            let is_present = |region: &Region| {
                region.present.iter().map(|it| it.load(Ordering::Relaxed)).collect()
            };
            let found: Vec<Vec<bool>> = ram.regions.iter().map(is_present).collect();
            assert_eq!(found, expected, "{at:#x} {length:#x}");
        };
        check(0, PAGE_SIZE, [&[true, true], &[true, true]]);
        check(0, CHUNK_BYTES, [&[false, true], &[true, true]]);
        check(PAGE_SIZE, 2 * CHUNK_BYTES, [&[true, false], &[true, true]]);
        check(0, u64::MAX, [&[false, false], &[false, false]]);
        check((1 << 20) + CHUNK_BYTES, CHUNK_BYTES / 2, [&[true, true], &[true, false]]);
        check(1 << 30, CHUNK_BYTES, [&[true, true], &[true, true]]);
        check(u64::MAX - PAGE_SIZE, PAGE_SIZE, [&[true, true], &[true, true]]);
        ram.regions.iter().for_each(|region| region.present[0].store(false, Ordering::Relaxed));
        ram.note_discarded(Physical(0), PAGE_SIZE);
        assert!(ram.regions[0].present[0].load(Ordering::Relaxed), "the page stays away");
    }

    #[test]
    fn a_rom_is_never_to_be_written() {
        let mut bytes = vec![0_u8; 2 * PAGE_SIZE as usize];
        let place = RamRegion { guest: 0, size: 2 * PAGE_SIZE, host: bytes.as_mut_ptr() };
        let ram = Ram::new(vec![place], None);
        ram.set_rom(PAGE_SIZE..2 * PAGE_SIZE);
        ram.set_code(Physical(PAGE_SIZE), true);
        ram.clear_code();
        let is_protected =
            [0, PAGE_SIZE - 1, PAGE_SIZE, 2 * PAGE_SIZE].map(|at| ram.has_code(Physical(at)));
        assert_eq!(is_protected, [false, false, true, false]);
    }

    #[test]
    fn writers_are_remembered_until_there_are_too_many() {
        let none = Writers(0);
        assert!(none.is_empty());
        let two = none.with(3, 7).with(15, ENTRIES - 1).with(3, 7);
        assert!(two.includes(3) && two.includes(15) && !two.includes(0) && !two.anywhere());
        assert_eq!(two.indices().collect::<Vec<_>>(), [7, ENTRIES - 1]);
        let full = two.with(0, 0);
        assert!(!full.anywhere());
        assert!(full.with(0, 1).anywhere());
    }
}
