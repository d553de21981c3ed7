//! The software TLB, laid out for translated code.
//!
//! The idea. A [`SpaceTlb`] caches the translations of one address space in one privilege view. Translated code
//! has the address of the active one in its GS base, and looks up linear address `a` for an access of `n` bytes
//! without a change of the flags:
//!
//! ```text
//! lea   s0, [a]
//! pext  s1, s0, 0x3fff000           ; index: bits 25:12
//! mov   rcx, gs:[s1*8 + read]       ; minus the page's address, or a value that cannot match
//! lea   s0, [s0 + rcx]              ; offset in the page, if this is the page
//! lea   rcx, [s0 + n - 1]           ; offset of the last byte
//! pext  rcx, rcx, ~0xfff            ; zero exactly if first and last byte are in the page
//! jrcxz hit
//! ```
//!
//! An access that crosses a page never hits. There are separate tags for reading and writing, so
//! that dirty bits and pages with translations need no further check.
//!
//! The *jump cache* is the instruction side: linear address to translated block, valid under
//! exactly the conditions under which an instruction-TLB entry would be, and flushed with it. An
//! address has two lines: blocks look at the first inline, and at the second out of line. User code
//! that finds neither looks the block up by its physical address (physical_jumps.rs), to which the
//! *fetch entries* lead: linear page to physical page, for pages that user code may execute.
//!
//! CR3, CPL and SMAP select the active one ([`Tlb::activate`]): for each PCID there is one for the user's view and one
//! for the kernel's view with AC set, and all PCIDs share one for the kernel's view. When the address space
//! changes, the shared one drops its entries that are not global.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustc_hash::FxHashSet;

use super::physical_jumps::{PhysicalJumps, Table};
use super::zeroed::{Zero, Zeroed};
use super::{Linear, PAGE_SIZE, Physical};

/// Entries in each array of a [`SpaceTlb`], which is direct-mapped: two pages that are in use at once can
/// evict each other. Among a hundred pages there is such a pair in one of four programs.
pub(crate) const ENTRIES: usize = 1 << INDEX_BITS;

/// Bits of a linear address that choose the entry.
pub(crate) const INDEX_BITS: u32 = 14;

/// Lines of a jump cache. A kernel that forks and executes has some ten thousand blocks in use, to most
/// of which links and returns lead without it.
pub(crate) const LINES: usize = 16384;

/// Fetch entries of a [`SpaceTlb`]: bits 23:12 of the address choose one.
pub(crate) const FETCHES: usize = 4096;

/// Words in the filter of pages that the jump cache has entries in.
const BLOOM_WORDS: usize = 1024;

/// Address spaces that are cached; the least recently used one is evicted first.
const SPACES: usize = 8;

/// Index of the [`SpaceTlb`] that all address spaces share.
const SHARED: usize = 2 * SPACES;

/// Set in the address under which the jump cache has 32-bit code, which makes it one that is not canonical: no address
/// of 64-bit code.
pub(crate) const CODE_32: u64 = 1 << 62;

/// Where the jump cache has code at a linear address.
pub(crate) fn jump_address(at: Linear, is_64_bit: bool) -> Linear {
    if is_64_bit { at } else { Linear(at.0 | CODE_32) }
}

/// The page of the code at an address in the jump cache.
pub(crate) fn code_page(at: u64) -> Linear {
    let is_32_bit = at & (1 << 63 | CODE_32) == CODE_32;
    Linear(if is_32_bit { at & !CODE_32 } else { at }).page()
}

/// One line of the jump cache.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct JumpEntry {
    /// Minus the linear address of the block's first instruction, marked as 32-bit code's if it is.
    pub(crate) negative_tag: AtomicU64,
    /// Host address of the block's cold entry.
    pub(crate) target: AtomicU64,
    /// Host address of its entry with the canonical scratch registers spilled.
    pub(crate) canonical: AtomicU64,
    /// Linear address of the page that the block is executed in.
    pub(crate) page: AtomicU64,
}

/// A page that user code may be executed in.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct FetchEntry {
    /// Minus the linear page address.
    pub(crate) negative_page: AtomicU64,
    /// The physical page address minus the linear one.
    pub(crate) distance: AtomicU64,
}

/// The part of a [`SpaceTlb`] that translated code reads, and whose layout it knows. Other vCPUs revoke
/// tags here while it is in use; only the owner enters them.
#[repr(C)]
pub(crate) struct Entries {
    /// Minus the linear page address, where reading is allowed.
    pub(crate) read: [AtomicU64; ENTRIES],
    /// Minus the linear page address, where writing is allowed.
    pub(crate) write: [AtomicU64; ENTRIES],
    /// Host address of the page.
    pub(crate) host: [AtomicU64; ENTRIES],
    /// The jump cache.
    pub(crate) jumps: [JumpEntry; LINES],
    /// Where to look for blocks that it does not have.
    pub(crate) fetches: [FetchEntry; FETCHES],
}

// SAFETY: integers in cells, and padding that is one.
unsafe impl Zero for Entries {}

/// The cached translations of one address space in one privilege view.
pub(crate) struct SpaceTlb {
    entries: Arc<Zeroed<Entries>>,
    /// Indices in use, for pages that are not global and for those that are.
    filled: [Vec<u16>; 2],
    /// Lines of the jump cache in use, likewise.
    jumped: [Vec<u16>; 2],
    /// Fetch entries in use.
    fetched: Vec<u16>,
    /// Which of two occupied lines is replaced next.
    turn: bool,
    /// A Bloom filter of the linear pages that the jump cache has entries in.
    jump_pages: [u64; BLOOM_WORDS],
    /// Regions of 4 MiB and of 1 GiB of which parts were entered as 4 KiB pieces of a larger page:
    /// `invlpg` anywhere in such a page drops all of it (SDM 3A 4.10.4.1).
    large_regions: FxHashSet<u64>,
    huge_regions: FxHashSet<u64>,
}

/// Size of the page that a TLB entry is a piece of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PageSize {
    /// 4 KiB.
    Small,
    /// 2 MiB or 4 MiB.
    Large,
    /// 1 GiB.
    Huge,
}

/// What to enter for one page.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry {
    /// Host address of the page.
    pub(crate) host: *mut u8,
    /// Whether a read tag may be given.
    pub(crate) read: bool,
    /// Whether a write tag may be given.
    pub(crate) write: bool,
    /// Whether the entry survives a change of address space.
    pub(crate) global: bool,
    /// The page it is a piece of.
    pub(crate) size: PageSize,
}

fn set_bit(filter: &mut [u64; BLOOM_WORDS], number: u64) {
    let (word, bit) = bloom_bit(number);
    filter[word] |= bit;
}

fn bloom_bit(number: u64) -> (usize, u64) {
    ((number >> 6) as usize & (BLOOM_WORDS - 1), 1 << (number & 63))
}

/// A tag for entry `index` that no access starting at an address with that index can match, not
/// even one that runs on into the next page: 0 would match the start of page 0, and what wraps into
/// it from the last page.
const fn no_tag(index: usize) -> u64 {
    if index == 0 || index == ENTRIES - 1 {
        (2 * PAGE_SIZE as i64).wrapping_neg() as u64
    } else {
        0
    }
}

/// The index of the TLB entry for an address: bits 25:12.
pub(crate) fn index_of(at: Linear) -> usize {
    (at.0 >> 12) as usize & (ENTRIES - 1)
}

/// The jump-cache line for an address. Translated code computes the same.
pub(crate) fn jump_index_of(at: u64) -> usize {
    at.rotate_right(12).wrapping_add(at) as usize & (LINES - 1)
}

/// The second line for an address, for when another one has the first. Likewise.
pub(crate) fn second_jump_index_of(at: u64) -> usize {
    at.rotate_right(7).wrapping_add(at << 1) as usize & (LINES - 1)
}

/// A jump-cache tag that matches nothing with line `index`.
const fn no_jump(index: usize) -> u64 {
    // Address 0 has line 0, twice; address 1 has lines 1 and 2.
    if index == 0 { (-1i64) as u64 } else { 0 }
}

fn fetch_index_of(at: Linear) -> usize {
    (at.0 >> 12) as usize & (FETCHES - 1)
}

fn lines_of(at: Linear) -> [usize; 2] {
    [jump_index_of(at.0), second_jump_index_of(at.0)]
}

impl Entries {
    fn new() -> Arc<Zeroed<Entries>> {
        let entries = Arc::new(Zeroed::<Entries>::new());
        for index in [0, ENTRIES - 1] {
            entries.drop_entry(index);
        }
        entries.drop_jump(0);
        entries.drop_fetch(0);
        entries
    }

    fn drop_entry(&self, index: usize) {
        self.read[index].store(no_tag(index), Ordering::Relaxed);
        self.write[index].store(no_tag(index), Ordering::Relaxed);
    }

    fn drop_jump(&self, line: usize) {
        self.jumps[line].negative_tag.store(no_jump(line), Ordering::Relaxed);
    }

    fn drop_fetch(&self, index: usize) {
        // 0 would match page 0.
        let none = if index == 0 { no_tag(0) } else { 0 };
        self.fetches[index].negative_page.store(none, Ordering::Relaxed);
    }

    /// Remove the block entered for `at`, if it is there. Any vCPU may call this that keeps
    /// blocks from being entered meanwhile.
    pub(crate) fn remove_jump(&self, at: Linear) {
        for line in lines_of(at) {
            if self.jumps[line].negative_tag.load(Ordering::Relaxed) == at.0.wrapping_neg() {
                self.drop_jump(line);
            }
        }
    }

    /// Whether entry `index` has a write tag for the page mapped at `host`.
    pub(crate) fn may_write(&self, index: usize, host: *mut u8) -> bool {
        self.host[index].load(Ordering::SeqCst) == host as u64
            && self.write[index].load(Ordering::SeqCst) != no_tag(index)
    }

    /// Revoke the write tag of an entry that maps this host page.
    pub(crate) fn revoke_write(&self, index: usize, host: *mut u8) {
        if self.host[index].load(Ordering::SeqCst) == host as u64 {
            self.write[index].store(no_tag(index), Ordering::SeqCst);
        }
    }
}

impl SpaceTlb {
    fn new() -> SpaceTlb {
        SpaceTlb {
            entries: Entries::new(),
            filled: [Vec::new(), Vec::new()],
            jumped: [Vec::new(), Vec::new()],
            fetched: Vec::new(),
            turn: false,
            jump_pages: [0; BLOOM_WORDS],
            large_regions: FxHashSet::default(),
            huge_regions: FxHashSet::default(),
        }
    }

    /// The part that translated code sees.
    pub(crate) fn entries(&self) -> &Entries {
        &self.entries
    }

    /// Where translated code finds it.
    pub(crate) fn address(&self) -> u64 {
        self.entries.address()
    }

    fn drop_entries(&mut self, global: bool) {
        let mut indices = std::mem::take(&mut self.filled[usize::from(global)]);
        for index in indices.drain(..) {
            self.entries.drop_entry(usize::from(index));
        }
        self.filled[usize::from(global)] = indices;
        self.drop_jumps(global);
    }

    fn drop_jumps(&mut self, global: bool) {
        for index in self.fetched.drain(..) {
            self.entries.drop_fetch(usize::from(index));
        }
        let mut lines = std::mem::take(&mut self.jumped[usize::from(global)]);
        for line in lines.drain(..) {
            self.entries.drop_jump(usize::from(line));
        }
        self.jumped[usize::from(global)] = lines;
        if self.jumped[0].is_empty() && self.jumped[1].is_empty() {
            self.jump_pages = [0; BLOOM_WORDS];
        }
    }

    fn drop_all(&mut self) {
        self.drop_entries(false);
        self.drop_entries(true);
        self.large_regions.clear();
        self.huge_regions.clear();
    }

    fn drop_page(&mut self, at: Linear, has: Content) {
        if self.may_be_in_larger_page(at) {
            return self.drop_all();
        }
        let index = index_of(at);
        let negative = at.page().0.wrapping_neg();
        let entries = &self.entries;
        let tags = [&entries.read[index], &entries.write[index]];
        if tags.iter().any(|tag| tag.load(Ordering::Relaxed) == negative) {
            entries.drop_entry(index);
        }
        if has == Content::Data {
            return;
        }
        let fetch = &entries.fetches[fetch_index_of(at)];
        if fetch.negative_page.load(Ordering::Relaxed) == negative {
            entries.drop_fetch(fetch_index_of(at));
        }
        // A block at the end of the page before may reach into this one.
        for page in [at.page().0, at.page().0.wrapping_sub(PAGE_SIZE)] {
            if self.may_jump_to(Linear(page)) {
                self.drop_jumps_to(page);
            }
        }
    }

    fn drop_jumps_to(&mut self, page: u64) {
        for (line, entry) in self.entries.jumps.iter().enumerate() {
            let tag = entry.negative_tag.load(Ordering::Relaxed);
            if code_page(tag.wrapping_neg()).0 == page {
                self.entries.drop_jump(line);
            }
        }
    }

    fn may_jump_to(&self, at: Linear) -> bool {
        let (word, bit) = bloom_bit(at.0 >> 12);
        self.jump_pages[word] & bit != 0
    }

    /// Whether a piece of a page larger than 4 KiB that contains `at` may be entered. A 4 MiB page
    /// has two 2 MiB regions.
    fn may_be_in_larger_page(&self, at: Linear) -> bool {
        self.large_regions.contains(&(at.0 >> 22)) || self.huge_regions.contains(&(at.0 >> 30))
    }

    fn remember(list: &mut [Vec<u16>; 2], global: bool, index: usize) {
        let list = &mut list[usize::from(global)];
        // Only when the list would have to grow, so that many distinct indices do not make every
        // call sort.
        if list.len() == list.capacity() && list.len() >= 4 * ENTRIES {
            list.sort_unstable();
            list.dedup();
        }
        list.push(index as u16);
    }

    /// Enter a page.
    pub(crate) fn insert(&mut self, at: Linear, entry: Entry) {
        let Entry { host, read, write, global, size } = entry;
        let index = index_of(at);
        match size {
            PageSize::Small => {}
            PageSize::Large => _ = self.large_regions.insert(at.0 >> 22),
            PageSize::Huge => _ = self.huge_regions.insert(at.0 >> 30),
        }
        let negative = at.page().0.wrapping_neg();
        let entries = &self.entries;
        let tag = |given: bool| if given { negative } else { no_tag(index) };
        entries.write[index].store(no_tag(index), Ordering::Relaxed);
        entries.host[index].store(host as u64, Ordering::SeqCst);
        entries.read[index].store(tag(read), Ordering::Relaxed);
        entries.write[index].store(tag(write), Ordering::SeqCst);
        Self::remember(&mut self.filled, global, index);
    }

    /// Enter a block under its linear address, marked with [`CODE_32`] if it is 32-bit code.
    pub(crate) fn insert_jump(&mut self, at: Linear, target: u64, canonical: u64, global: bool) {
        let line = self.line_for(at);
        let entry = &self.entries.jumps[line];
        entry.target.store(target, Ordering::Relaxed);
        entry.canonical.store(canonical, Ordering::Relaxed);
        entry.page.store(code_page(at.0).0, Ordering::Relaxed);
        entry.negative_tag.store(at.0.wrapping_neg(), Ordering::Relaxed);
        set_bit(&mut self.jump_pages, at.0 >> 12);
        Self::remember(&mut self.jumped, global, line);
    }

    /// Enter a page that user code is executed in. Nothing at physical address 0 can be found there.
    pub(crate) fn insert_fetch(&mut self, at: Linear, to: Physical) {
        let (linear, physical) = (at.page().0, to.page().0);
        let index = fetch_index_of(at);
        let entry = &self.entries.fetches[index];
        let tag = linear.wrapping_neg();
        if physical == 0 || entry.negative_page.load(Ordering::Relaxed) == tag {
            return;
        }
        entry.distance.store(physical.wrapping_sub(linear), Ordering::Relaxed);
        entry.negative_page.store(tag, Ordering::Relaxed);
        self.fetched.push(index as u16);
    }

    /// The block entered for `at`, if there is one.
    pub(crate) fn jump_to(&self, at: Linear) -> Option<u64> {
        let tag = at.0.wrapping_neg();
        let mut entries = lines_of(at).into_iter().map(|line| &self.entries.jumps[line]);
        let hit = entries.find(|entry| entry.negative_tag.load(Ordering::Relaxed) == tag);
        hit.map(|entry| entry.target.load(Ordering::Relaxed))
    }

    /// Where to enter a block for `at`: a line that is free, else either of the two in turn.
    fn line_for(&mut self, at: Linear) -> usize {
        let lines = lines_of(at);
        let free = lines.into_iter().find(|&line| {
            let tag = self.entries.jumps[line].negative_tag.load(Ordering::Relaxed);
            tag == no_jump(line) || tag == at.0.wrapping_neg()
        });
        self.turn = !self.turn;
        free.unwrap_or(lines[usize::from(self.turn)])
    }

    /// Revoke the write tag that entry `index` may have.
    pub(crate) fn revoke(&self, index: usize) {
        self.entries.write[index].store(no_tag(index), Ordering::SeqCst);
    }
}

/// The part of a vCPU's TLB that other vCPUs reach.
pub(crate) struct Shared {
    /// Of each [`SpaceTlb`].
    pub(crate) entries: Vec<Arc<Zeroed<Entries>>>,
    /// Its blocks by physical address.
    pub(crate) blocks: Arc<Table>,
}

/// What to flush (SDM 3A 4.10.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flush {
    /// Everything, global entries included.
    All,
    /// Entries of one PCID that are not global.
    Pcid(u16),
    /// One page, as `invlpg` does: in the current address space, and global entries for it.
    Page(Linear),
    /// One page in one PCID.
    PagePcid(Linear, u16),
    /// Everything that is not global, in every address space: `invpcid` type 3.
    AllPcids,
}

/// What a page that is dropped was mapped for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content {
    /// It could not be executed, so that no jump cache leads to it. Looking for one that does takes microseconds.
    Data,
    /// Anything.
    Any,
}

/// One address space that is cached.
#[derive(Debug, Clone, Copy)]
struct Space {
    pcid: u16,
    last_used: u64,
}

/// The privilege view that the vCPU's mode selects (QEMU: MMU index).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum View {
    /// CPL 3.
    User,
    /// CPL below 3, user pages not accessible (SMAP and AC clear), or SMAP off.
    Kernel,
    /// CPL below 3 with AC set while SMAP is on.
    KernelUserAccess,
}

/// The TLB of one vCPU.
pub(crate) struct Tlb {
    tlbs: Vec<SpaceTlb>,
    spaces: [Option<Space>; SPACES],
    clock: u64,
    /// Blocks by physical address, for the user's view of any address space.
    pub(crate) physical_jumps: PhysicalJumps,
    /// CR3 (without the PCID-irrelevant bits) under which the shared one was filled.
    shared_cr3: u64,
}

impl Tlb {
    pub(crate) fn new() -> Self {
        let tlbs = (0..=SHARED).map(|_| SpaceTlb::new()).collect();
        let physical_jumps = PhysicalJumps::new();
        Self { tlbs, spaces: [None; SPACES], clock: 0, physical_jumps, shared_cr3: 0 }
    }

    /// The index of the [`SpaceTlb`] for `view` of the address space `cr3`.
    pub(crate) fn activate(&mut self, cr3: u64, pcid: u16, view: View) -> usize {
        if view == View::Kernel {
            if cr3 != self.shared_cr3 {
                self.shared_cr3 = cr3;
                self.tlbs[SHARED].drop_entries(false);
            }
            return SHARED;
        }
        let space = self.space(pcid);
        2 * space + usize::from(view == View::KernelUserAccess)
    }

    fn space(&mut self, pcid: u16) -> usize {
        self.clock += 1;
        let mut oldest = (u64::MAX, 0);
        for (number, space) in self.spaces.iter_mut().enumerate() {
            match space {
                Some(space) if space.pcid == pcid => {
                    space.last_used = self.clock;
                    return number;
                }
                Some(space) if space.last_used >= oldest.0 => {}
                other => oldest = (other.map_or(0, |space| space.last_used), number),
            }
        }
        let number = oldest.1;
        self.tlbs[2 * number].drop_all();
        self.tlbs[2 * number + 1].drop_all();
        self.spaces[number] = Some(Space { pcid, last_used: self.clock });
        number
    }

    pub(crate) fn space_tlb(&mut self, number: usize) -> &mut SpaceTlb {
        &mut self.tlbs[number]
    }

    /// Drop what `flush` names.
    pub(crate) fn flush(&mut self, flush: Flush) {
        match flush {
            Flush::All => self.tlbs.iter_mut().for_each(|tlb| tlb.drop_all()),
            Flush::AllPcids => {
                self.tlbs.iter_mut().for_each(|tlb| tlb.drop_entries(false));
            }
            Flush::Pcid(pcid) => {
                self.for_space(pcid, |tlb| tlb.drop_entries(false));
                self.tlbs[SHARED].drop_entries(false);
            }
            Flush::Page(at) => self.drop_page(at, None, Content::Any),
            Flush::PagePcid(at, pcid) => self.drop_page(at, Some(pcid), Content::Any),
        }
    }

    /// Drop a page, in all address spaces or in one.
    pub(crate) fn drop_page(&mut self, at: Linear, pcid: Option<u16>, has: Content) {
        match pcid {
            None => self.tlbs.iter_mut().for_each(|tlb| tlb.drop_page(at, has)),
            Some(pcid) => {
                self.for_space(pcid, |tlb| tlb.drop_page(at, has));
                self.tlbs[SHARED].drop_page(at, has);
            }
        }
    }

    fn for_space(&mut self, pcid: u16, mut act: impl FnMut(&mut SpaceTlb)) {
        for number in 0..SPACES {
            if self.spaces[number].is_some_and(|space| space.pcid == pcid) {
                act(&mut self.tlbs[2 * number]);
                act(&mut self.tlbs[2 * number + 1]);
            }
        }
    }

    /// Empty the jump caches.
    pub(crate) fn drop_all_jumps(&mut self) {
        for tlb in &mut self.tlbs {
            tlb.drop_jumps(false);
            tlb.drop_jumps(true);
        }
    }

    /// The parts of it that translated code sees.
    pub(crate) fn shared(&self) -> Shared {
        let entries = self.tlbs.iter().map(|tlb| Arc::clone(&tlb.entries)).collect();
        Shared { entries, blocks: self.physical_jumps.table() }
    }
}
