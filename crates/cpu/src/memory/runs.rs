//! What the mirror has of a paravirtual kernel's memory: pages of 4 KiB, mapped in runs.
//!
//! A paravirtual kernel has no large pages. A mapping of the host's for each of its pages would cost 5 us apiece, and a
//! process may have 65,530: at 256 MiB the host would refuse. But the frames of a domain are numbered as its pages are,
//! so that most tables of the lowest level (L1) map 512 consecutive frames from one that is aligned, differing in what
//! they allow alone: page tables are read-only in the kernel's map of all memory. Such a *region* of 2 MiB is one
//! mapping of the file, whose pages get the protection that their entries have. Any other region, the kernel's stacks
//! for instance, is mapped page by page.
//!
//! Entries change without a flush that would tell of it: the vCPU's TLBs are exact (paravirtual/exact.rs), and so is
//! this.
//!
//! 1. *At every instruction of every vCPU, a page that can be read here has an entry that allows the kernel to read it,
//!    with the accessed bit; a page that can be written, one that allows writing, with the dirty bit, and no
//!    translations.* Both lead to the frame that is mapped. A vCPU that changes an entry is done only when
//!    [`Runs::entry_changed`] has returned, which changes the host's mapping for all threads; a vCPU that enters a page
//!    has read its entry under the same lock. What takes an entry's rights away on one vCPU is gone on the others at
//!    once, which is earlier than hardware promises.
//! 2. Of rule 1 follows that a frame is no page table while it can be written here: an entry that allows writing is a
//!    use of the frame as writable memory, and a frame with such uses is refused as a table (crate `frames`). A
//!    promotion has nothing to revoke here.
//! 3. *Who led here is remembered* ([`Way`]): the tables below the root, which roots have in common, and the
//!    root's entry. A table that ceases to be one, and an entry above the lowest level that changes, take the
//!    regions below with them. A linear page table may be on a way at any level, so levels are told by the place
//!    on the way and not by the type of the frame.
//! 4. *Roots agree.* A region is entered only if all vCPUs' roots have the same entry for it. A vCPU that loads a root
//!    which has another drops what is below.
//! 5. *Rights come late.* What an entry allows anew is allowed here when it is missed. A kernel makes the page of a
//!    table writable before it frees it, and read-only again when it has become a table again; to change a protection
//!    here twice is 6 us and splits a mapping in three. So the first instructions that find such a page read-only,
//!    [`MAX_TABLE_WRITERS`] of them, are taken for those that clear pages and write tables before they are pinned:
//!    they are looked up from then on, and the page stays as it is. Any other write opens it.
//!    The other way round, a kernel that makes its text read-only does so page by page. When it has done that with a
//!    few in a row ([`SEALED`]), the next ones are made read-only here at once, before their entries are
//!    ([`AHEAD_PAGES`]): a write opens them again, and that they are not guessed again in their region.
//! 6. Pages of users are not entered, whatever SMAP is: they are looked up.
//! 7. *The host's mappings are counted* ([`MAX_PIECES`]). With too many, or when the host refuses, all go and are
//!    missed again: a slow machine, not a wrong one.
//! 8. *What is mapped is there.* Memory that has still to be fetched ([`host::backing`]) is missed, page by page.
//!
//! The machine-to-physical table, which no entry of the guest's leads to, is mapped read-only, and stays.

#[cfg(test)]
mod tests;

use rustc_hash::{FxHashMap, FxHashSet};

use super::paging::{ENTRY_ADDRESS, entry, load};
use super::ram::{MAX_VCPUS, Ram};
use super::reverse_map::ReverseMap;
use super::window::{self, populate_around, protection};
use super::{Access, Linear, PAGE_SIZE, Physical};

/// Bytes of a region, which one table of the lowest level maps; and its pages.
const REGION: u64 = 2 << 20;
const PAGES: usize = 512;

/// Pages that are entered into the host's page tables at once.
const CHUNK_BYTES: u64 = 64 << 10;

/// Consecutive pages that are worth a mapping of the whole region.
const MIN_RUN_PAGES: usize = 16;

/// Mappings of the host's, as far as neighbours do not merge. Linux lets a process have 65,530.
const MAX_PIECES: usize = 1 << 15;

/// Pages in a row that the guest has made read-only when the next ones are guessed to come, and how many of these are
/// made read-only at once.
const SEALED: usize = 8;
const AHEAD_PAGES: usize = 64;

/// Instructions that are taken for ones that write tables. Linux has some dozens.
const MAX_TABLE_WRITERS: usize = 96;

/// A bit for each page of a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Pages([u64; PAGES / 64]);

impl Pages {
    fn has(&self, page: usize) -> bool {
        self.0[page / 64] >> (page % 64) & 1 != 0
    }

    fn set(&mut self, page: usize, is_set: bool) {
        let bit = 1 << (page % 64);
        match is_set {
            true => self.0[page / 64] |= bit,
            false => self.0[page / 64] &= !bit,
        }
    }

    fn count(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }
}

/// What an entry of the lowest level allows the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rights {
    None,
    Read,
    Write,
}

impl Rights {
    /// What a processor could do by an entry as it is, without setting a bit in it. `writable_way` says that the
    /// tables above allow writing.
    fn of(value: u64, writable_way: bool) -> Self {
        if value & (entry::PRESENT | entry::ACCESSED | entry::USER)
            != entry::PRESENT | entry::ACCESSED
        {
            return Self::None;
        }
        let writable = entry::WRITABLE | entry::DIRTY;
        if writable_way && value & writable == writable { Self::Write } else { Self::Read }
    }
}

/// How a region is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Way {
    /// The entry of the root, without the accessed bit.
    top: u64,
    /// Where tables are: an L3, an L2, an L1 by their place on the way.
    tables: [u64; 3],
    /// The entries on the way allow writing.
    writable: bool,
}

impl Way {
    /// The way to the region of an address as the tables are now.
    fn to(at: Linear, root: u64, ram: &Ram) -> Option<Self> {
        let mut way = Self { top: top_of(root, slot_of(at), ram), tables: [0; 3], writable: true };
        let mut value = way.top | entry::ACCESSED;
        for (place, shift) in way.tables.iter_mut().zip([30, 21, 12]) {
            let wanted = entry::PRESENT | entry::ACCESSED;
            if value & (wanted | entry::LARGE) != wanted {
                return None;
            }
            way.writable &= value & entry::WRITABLE != 0;
            *place = value & ENTRY_ADDRESS;
            value = load(ram, *place + (at.0 >> shift & 511) * 8, 8);
        }
        Some(way)
    }

    fn lowest(&self) -> u64 {
        self.tables[2]
    }

    /// Whether an entry of a table is on the way to a region.
    fn passes(&self, region: u64, table: u64, index: usize) -> bool {
        let at = region * REGION;
        let upper = self.tables[..2].iter().zip([30, 21]);
        let mut passed = upper.filter(|(place, _)| **place == table);
        passed.any(|(_, shift)| (at >> shift & 511) as usize == index)
    }
}

/// Which entry of a root an address is below.
fn slot_of(at: Linear) -> usize {
    (at.0 >> 39 & 511) as usize
}

/// An entry of a root, without the accessed bit.
fn top_of(root: u64, slot: usize, ram: &Ram) -> u64 {
    load(ram, (root & ENTRY_ADDRESS) + slot as u64 * 8, 8) & !entry::ACCESSED
}

/// What is mapped of 2 MiB of linear addresses.
#[derive(Debug)]
struct Region {
    /// None for what is not the guest's.
    way: Option<Way>,
    /// The whole region is mapped, from this physical address on.
    base: Option<u64>,
    /// Else the pages that are, and where they lead.
    pages: FxHashMap<usize, u64>,
    /// What the host's processor may read, and write.
    readable: Pages,
    writable: Pages,
    /// Pages that could be written until the guest, or translations, made them read-only.
    held: Pages,
    /// Pages that were made read-only before the guest has done that.
    ahead: Pages,
    /// The page behind the last that the guest has made read-only, and how many it has in a row; `None` when a guess
    /// was wrong.
    sealed: Option<(usize, usize)>,
}

impl Region {
    fn new(way: Option<Way>) -> Self {
        let none = Pages::default();
        let pages = FxHashMap::default();
        let (held, ahead, sealed) = (none, none, Some((0, 0)));
        Self { way, base: None, pages, readable: none, writable: none, held, ahead, sealed }
    }

    /// The guest has made a page read-only: whether it will go on with the next.
    fn seal(&mut self, page: usize) -> bool {
        let Some((next, count)) = self.sealed else { return false };
        let count = if page == next { count + 1 } else { 1 };
        self.sealed = Some((page + 1, count));
        count >= SEALED && self.base.is_some()
    }

    /// Where a page leads that is mapped.
    fn physical(&self, page: usize) -> Option<u64> {
        let base = self.base.map(|base| base + page as u64 * PAGE_SIZE);
        base.or_else(|| self.pages.get(&page).copied())
    }

    fn rights(&self, page: usize) -> Rights {
        match (self.readable.has(page), self.writable.has(page)) {
            (false, _) => Rights::None,
            (true, false) => Rights::Read,
            (true, true) => Rights::Write,
        }
    }

    fn set_rights(&mut self, page: usize, rights: Rights) {
        self.readable.set(page, rights >= Rights::Read);
        self.writable.set(page, rights == Rights::Write);
    }

    /// The mappings of the host's that it takes.
    fn pieces(&self) -> usize {
        if self.base.is_none() {
            return self.pages.len();
        }
        let changes = |pages: &Pages| {
            let mut before = pages.0[0] & 1;
            pages.0.map(|word| {
                let changed = word ^ (word << 1 | before);
                before = word >> 63;
                changed
            })
        };
        let (readable, writable) = (changes(&self.readable), changes(&self.writable));
        let both = readable.iter().zip(&writable).map(|(one, other)| (one | other).count_ones());
        1 + both.sum::<u32>() as usize
    }
}

/// A page that is to be entered.
struct Wanted {
    at: Linear,
    way: Way,
    physical: u64,
    /// What it gets.
    rights: Rights,
}

impl Wanted {
    fn region(&self) -> u64 {
        self.at.0 / REGION
    }

    fn page(&self) -> usize {
        page_of(self.at)
    }
}

/// The index of a page in its region.
fn page_of(at: Linear) -> usize {
    (at.0 % REGION / PAGE_SIZE) as usize
}

fn address(region: u64, page: usize) -> Linear {
    Linear(region * REGION + page as u64 * PAGE_SIZE)
}

/// See above.
#[derive(Debug, Default)]
pub(crate) struct Runs {
    /// By linear address divided by 2 MiB.
    regions: FxHashMap<u64, Region>,
    /// Regions whose pages are not consecutive.
    scattered: FxHashSet<u64>,
    /// The regions that a table is the lowest of.
    lowest: FxHashMap<u64, Vec<u64>>,
    /// The tables that are on a way above that, or were since everything was dropped.
    above: FxHashSet<u64>,
    /// The entry of all roots, for each of which something is mapped.
    tops: FxHashMap<usize, u64>,
    /// The root of each vCPU that uses the mirror.
    roots: [Option<u64>; MAX_VCPUS],
    /// Where single pages, and whole regions, are mapped.
    page_aliases: ReverseMap<Linear, PAGE_SIZE>,
    region_aliases: ReverseMap<Linear, REGION>,
    /// The sum of [`Region::pieces`].
    pieces: usize,
    /// Instructions that were taken for ones that write tables.
    table_writers: usize,
}

impl Runs {
    /// Map the page of `at` for an access of a vCPU that has loaded a root, and that has walked to the page under this
    /// lock; whether the access can be repeated.
    pub(super) fn enter(
        &mut self,
        at: Linear,
        access: Access,
        (vcpu_index, root): (usize, u64),
        (memory, ram): (&host::GuestMemory, &Ram),
    ) -> bool {
        let Some(wanted) = self.wanted(at, (vcpu_index, root), ram) else { return false };
        if wanted.rights == Rights::None || access == Access::Write && wanted.rights < Rights::Write
        {
            return false;
        }
        if self.pieces >= MAX_PIECES {
            self.clear();
        }
        self.prepare(&wanted, (memory, ram));
        let (number, page) = (wanted.region(), wanted.page());
        let Some(region) = self.regions.get_mut(&number) else { return false };
        if access == Access::Write && region.ahead.has(page) {
            region.sealed = None;
        }
        let may_write_table = access == Access::Write && region.held.has(page);
        if may_write_table && self.table_writers < MAX_TABLE_WRITERS {
            self.table_writers += 1;
            return false;
        }
        if region.rights(page) >= wanted.rights {
            return true;
        }
        if region.base.is_some() || region.rights(page) != Rights::None {
            return self.change(number, page, wanted.rights);
        }
        self.map_page(&wanted, memory)
    }

    /// What a page would be entered with, if it may be.
    fn wanted(
        &mut self,
        at: Linear,
        (vcpu_index, root): (usize, u64),
        ram: &Ram,
    ) -> Option<Wanted> {
        if self.roots.get(vcpu_index) != Some(&Some(root)) {
            self.load_root(vcpu_index, root, ram);
        }
        let (slot, way) = (slot_of(at), Way::to(at, root, ram)?);
        let known = self.tops.get(&slot);
        let agree = known.is_none_or(|top| *top == way.top)
            && self.roots.iter().flatten().all(|root| top_of(*root, slot, ram) == way.top);
        if !agree {
            return None;
        }
        let value = load(ram, way.lowest() + page_of(at) as u64 * 8, 8);
        let physical = value & ENTRY_ADDRESS;
        let rights = match Rights::of(value, way.writable) {
            Rights::Write if ram.has_code(Physical(physical)) => Rights::Read,
            rights => rights,
        };
        Some(Wanted { at, way, physical, rights })
    }

    /// See to it that there is the region of a page, which has led here by the same way, and has room for the page.
    fn prepare(&mut self, wanted: &Wanted, host: (&host::GuestMemory, &Ram)) {
        let number = wanted.region();
        if let Some(region) = self.regions.get(&number) {
            let fits = region.physical(wanted.page()).is_none_or(|it| it == wanted.physical);
            if region.way == Some(wanted.way) && fits {
                return;
            }
            if !fits {
                self.scattered.insert(number);
            }
            self.drop_region(number);
        }
        let whole = (!self.scattered.contains(&number)).then(|| map_whole(wanted, host)).flatten();
        if let Some(base) = whole.as_ref().and_then(|region| region.base) {
            self.region_aliases.insert_new(Physical(base), address(number, 0));
        }
        let region = whole.unwrap_or_else(|| Region::new(Some(wanted.way)));
        self.pieces += region.pieces();
        self.regions.insert(number, region);
        self.lowest.entry(wanted.way.lowest()).or_default().push(number);
        self.above.extend(&wanted.way.tables[..2]);
        self.tops.insert(slot_of(wanted.at), wanted.way.top);
    }

    /// Map a page by itself.
    fn map_page(&mut self, wanted: &Wanted, memory: &host::GuestMemory) -> bool {
        let (number, page) = (wanted.region(), wanted.page());
        let Some(offset) = memory.file_offset(wanted.physical, PAGE_SIZE) else { return false };
        let protection = protection(wanted.rights == Rights::Write);
        if !window::map(memory, wanted.at.page(), PAGE_SIZE, offset, protection) {
            return false;
        }
        let Some(region) = self.regions.get_mut(&number) else { return false };
        region.pages.insert(page, wanted.physical);
        region.set_rights(page, wanted.rights);
        self.page_aliases.insert(Physical(wanted.physical), wanted.at.page());
        self.pieces += 1;
        true
    }

    /// Change what a mapped page can be accessed for; whether the host could. If not, nothing is mapped any more.
    fn change(&mut self, number: u64, page: usize, rights: Rights) -> bool {
        let Some(region) = self.regions.get_mut(&number) else { return false };
        let (at, before) = (address(number, page), region.pieces());
        let is_done = match (rights, region.base) {
            (Rights::None, None) => {
                if let Some(physical) = region.pages.remove(&page) {
                    self.page_aliases.remove(Physical(physical), at);
                }
                window::unmap(at, PAGE_SIZE)
            }
            (Rights::None, Some(_)) => window::close(at, PAGE_SIZE),
            _ => window::protect(at, PAGE_SIZE, rights == Rights::Write),
        };
        let was_writable = region.writable.has(page);
        region.set_rights(page, rights);
        region.held.set(page, was_writable && rights == Rights::Read);
        region.ahead.set(page, false);
        self.pieces = self.pieces + region.pieces() - before;
        if !is_done {
            self.clear();
        }
        is_done
    }

    /// Map what is not the guest's to change, read-only, as far as it lies in the region of `at`: `bytes` from
    /// `physical` on, which are at `start`. Whether the page of `at` can be read now.
    pub(super) fn enter_fixed(
        &mut self,
        at: Linear,
        (start, physical, bytes): (Linear, u64, u64),
        memory: &host::GuestMemory,
    ) -> bool {
        let number = at.0 / REGION;
        if let Some(region) = self.regions.get(&number) {
            return region.readable.has(page_of(at));
        }
        let first = start.0.max(number * REGION);
        let end = start.0.saturating_add(bytes).min((number + 1) * REGION);
        if !(first..end).contains(&at.0) {
            return false;
        }
        let length = end - first;
        let offset = memory.file_offset(physical + (first - start.0), length);
        let Some(offset) = offset else { return false };
        memory.require(physical + (first - start.0), length);
        if !window::map(memory, Linear(first), length, offset, protection(false)) {
            return false;
        }
        let mut region = Region::new(None);
        let pages =
            page_of(Linear(first))..PAGES.min(((end - number * REGION) / PAGE_SIZE) as usize);
        pages.for_each(|page| region.readable.set(page, true));
        region.base = Some(physical.wrapping_sub(start.0).wrapping_add(number * REGION));
        self.pieces += region.pieces();
        self.regions.insert(number, region);
        true
    }

    /// A vCPU uses the mirror under this root from here on: drop what the root does not lead to.
    pub(crate) fn load_root(&mut self, vcpu_index: usize, root: u64, ram: &Ram) {
        if let Some(place) = self.roots.get_mut(vcpu_index) {
            *place = Some(root);
        }
        let others =
            |(slot, top): (&usize, &u64)| (top_of(root, *slot, ram) != *top).then_some(*slot);
        let slots: Vec<usize> = self.tops.iter().filter_map(others).collect();
        slots.into_iter().for_each(|slot| self.drop_slot(slot));
    }

    fn drop_slot(&mut self, slot: usize) {
        self.drop_regions(|number, region| {
            region.way.is_some() && slot_of(Linear(number * REGION)) == slot
        });
        self.tops.remove(&slot);
    }

    /// An entry of a table has changed, of a level from 1 up.
    pub(crate) fn entry_changed(&mut self, (table, level): (u64, u8), index: usize, new: u64) {
        // A table is the lowest of one region as a rule.
        let mut place = 0;
        while let Some(&number) = self.lowest.get(&table).and_then(|numbers| numbers.get(place)) {
            self.narrow(number, index, new);
            place += 1;
        }
        if self.above.contains(&table) {
            let passes = |number, region: &Region| {
                region.way.is_some_and(|way| way.passes(number, table, index))
            };
            self.drop_regions(passes);
        }
        /// The level of roots.
        const ROOT: u8 = 4;
        if level == ROOT && self.tops.get(&index).is_some_and(|top| *top != new & !entry::ACCESSED)
        {
            self.drop_slot(index);
        }
    }

    /// A page's entry is another now: nothing is allowed here that it does not allow.
    fn narrow(&mut self, number: u64, page: usize, new: u64) {
        let Some(region) = self.regions.get_mut(&number) else { return };
        let (Some(way), rights) = (region.way, region.rights(page)) else { return };
        let leads_there = region.physical(page) == Some(new & ENTRY_ADDRESS);
        let allowed = if leads_there { Rights::of(new, way.writable) } else { Rights::None };
        let was_ahead = region.ahead.has(page);
        let seals = allowed == Rights::Read && (rights == Rights::Write || was_ahead);
        let goes_on = seals && region.seal(page);
        if seals && was_ahead {
            region.ahead.set(page, false);
            region.held.set(page, true);
        }
        if allowed < rights {
            self.change(number, page, allowed);
        }
        if goes_on {
            self.seal_ahead(number, page + 1);
        }
    }

    /// Make pages read-only that the guest is about to, from one on, as far as they can be written.
    fn seal_ahead(&mut self, number: u64, first: usize) {
        let Some(region) = self.regions.get_mut(&number) else { return };
        let (before, limit) = (region.pieces(), PAGES.min(first + AHEAD_PAGES));
        let end = (first..limit).find(|page| !region.writable.has(*page)).unwrap_or(limit);
        if end <= first {
            return;
        }
        for page in first..end {
            region.set_rights(page, Rights::Read);
            region.ahead.set(page, true);
        }
        self.pieces = self.pieces + region.pieces() - before;
        let length = (end - first) as u64 * PAGE_SIZE;
        if !window::protect(address(number, first), length, false) {
            self.clear();
        }
    }

    /// A frame is no table any more.
    pub(crate) fn demoted(&mut self, table: u64) {
        for root in &mut self.roots {
            if *root == Some(table) {
                *root = None;
            }
        }
        for number in self.lowest.get(&table).cloned().unwrap_or_default() {
            self.drop_region(number);
        }
        if self.above.contains(&table) {
            self.drop_regions(|_, region| {
                region.way.is_some_and(|way| way.tables[..2].contains(&table))
            });
            self.above.remove(&table);
        }
    }

    /// Make a frame read-only wherever it is mapped, because it is about to have translations.
    pub(super) fn write_protect(&mut self, frame: Physical) {
        let single = self.page_aliases.places(frame).iter().copied();
        let whole = self.region_aliases.places(frame).iter();
        let whole = whole.map(|start| Linear(start.0 + frame.page().0 % REGION));
        for at in single.chain(whole).collect::<Vec<_>>() {
            let (number, page) = (at.0 / REGION, page_of(at));
            let is_writable =
                self.regions.get(&number).is_some_and(|region| region.writable.has(page));
            if is_writable {
                self.change(number, page, Rights::Read);
            }
        }
    }

    fn drop_regions(&mut self, is_meant: impl Fn(u64, &Region) -> bool) {
        let meant = self.regions.iter().filter(|(number, region)| is_meant(**number, region));
        let numbers: Vec<u64> = meant.map(|(number, _)| *number).collect();
        numbers.into_iter().for_each(|number| self.drop_region(number));
    }

    fn drop_region(&mut self, number: u64) {
        let Some(region) = self.regions.remove(&number) else { return };
        self.pieces -= region.pieces();
        for (page, physical) in &region.pages {
            self.page_aliases.remove(Physical(*physical), address(number, *page));
        }
        if let Some(way) = region.way {
            if let Some(base) = region.base {
                self.region_aliases.remove(Physical(base), address(number, 0));
            }
            if let Some(list) = self.lowest.get_mut(&way.lowest()) {
                list.retain(|known| *known != number);
                if list.is_empty() {
                    self.lowest.remove(&way.lowest());
                }
            }
        }
        if !window::unmap(address(number, 0), REGION) {
            // The host has no room for the parts of a mapping. All of them together have no parts.
            self.clear();
        }
    }

    /// Drop everything. Whose roots these are remains.
    pub(super) fn clear(&mut self) {
        let mut numbers: Vec<u64> = self.regions.keys().copied().collect();
        numbers.sort_unstable();
        for run in numbers.chunk_by(|a, b| a + 1 == *b) {
            window::unmap(Linear(run[0] * REGION), run.len() as u64 * REGION);
        }
        let (roots, table_writers) = (self.roots, self.table_writers);
        *self = Self { roots, table_writers, ..Self::default() };
    }
}

/// Map a whole region with one mapping, if its table has consecutive frames from an aligned one on.
fn map_whole(wanted: &Wanted, (memory, ram): (&host::GuestMemory, &Ram)) -> Option<Region> {
    let base = wanted.physical.checked_sub(wanted.page() as u64 * PAGE_SIZE)?;
    if !base.is_multiple_of(REGION) {
        return None;
    }
    let offset = memory.file_offset(base, REGION)?;
    let entries = ram.copy_page(Physical(wanted.way.lowest()))?;
    let mut region = Region { base: Some(base), ..Region::new(Some(wanted.way)) };
    for (page, bytes) in entries.as_chunks::<8>().0.iter().enumerate() {
        let value = u64::from_ne_bytes(*bytes);
        let rights = Rights::of(value, wanted.way.writable);
        let physical = base + page as u64 * PAGE_SIZE;
        if value & entry::PRESENT != 0 && value & ENTRY_ADDRESS != physical {
            return None;
        }
        let has_code = rights == Rights::Write && ram.has_code(Physical(physical));
        region.set_rights(page, if has_code { Rights::Read } else { rights });
    }
    if region.readable.count() < MIN_RUN_PAGES {
        return None;
    }
    if ram.is_absent(Physical(base), REGION) {
        let is_absent = |page| ram.is_absent(Physical(base + page as u64 * PAGE_SIZE), PAGE_SIZE);
        let absent = (0..PAGES).filter(|page| is_absent(*page));
        absent.for_each(|page| region.set_rights(page, Rights::None));
    }
    let start = address(wanted.region(), 0);
    if !window::map(memory, start, REGION, offset, libc::PROT_NONE) {
        return None;
    }
    let all: Vec<Rights> = (0..PAGES).map(|page| region.rights(page)).collect();
    let mut first = 0;
    for run in all.chunk_by(|one, next| one == next) {
        let (at, length) = (address(wanted.region(), first), run.len() as u64 * PAGE_SIZE);
        if run[0] != Rights::None && !window::protect(at, length, run[0] == Rights::Write) {
            window::unmap(start, REGION);
            return None;
        }
        first += run.len();
    }
    populate_around(wanted.at, CHUNK_BYTES, wanted.rights == Rights::Write);
    Some(region)
}
