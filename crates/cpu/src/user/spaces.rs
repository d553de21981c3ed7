//! The guest's address spaces, as far as helpers have them mapped.
//!
//! A [`Space`](direct::Space) is a TLB of one processor for one address space, and keeps a TLB's
//! promises, as memory/mirror.rs does for the kernel's half:
//!
//! 1. *Filled on a miss*, with the 2 MiB around it: everything there that the guest's page tables
//!    allow user code already. Removable is only what has its dirty bit set; a page whose accessed bit
//!    is clear is not mapped. After a page fault of the guest's own it is [`FAULT_WINDOW`] around it: what
//!    lies farther away was looked at before, and the guest's kernel has entered what is around one page.
//! 2. *Flushed when the guest flushes.* A single page is dropped at once. After anything larger the
//!    space is *stale*: before it runs again each of its pages is compared with the page tables, and
//!    what they no longer say is dropped. A dropped page is *gone*: it counts no more, and is unmapped
//!    before the helper runs ([`Spaces::ready`]), unless another has been mapped over it meanwhile, as for a page
//!    that a guest copies when it is written. Several are unmapped at once, together with the holes between
//!    them: of a process that begins another program nothing stays.
//! 3. *Pages with translations are mapped read-only.* A page that is about to get some is struck
//!    from [`Removable`], by whichever processor translates; the owner of the mapping makes it
//!    read-only before it runs a helper again, and until it has left the one that it runs, the
//!    other waits (package.rs).
//! 4. *A page with forbidden instructions is not executable* (page.rs), but a copy of it may be mapped
//!    in its place (copies.rs), which is struck when the page is written.
//!
//! A space belongs to a root of page tables, and remembers the PCID under which it was last used: a
//! flush names a PCID, and a root that comes with another PCID finds nothing cached.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use direct::{Error, Helpers, Protection, Space, TimeStamp};
use locks::Unpoisoned;
use rustc_hash::FxHashMap;

use super::copies::Copies;
use super::page::Forbidden;
use crate::memory::paging::{UserPage, user_page, user_pages};
use crate::memory::ram::Ram;
use crate::memory::tlb::index_of;
use crate::memory::{Access, Flush, Linear, PAGE_SIZE, Physical};
use crate::statistics::Statistics;
use crate::time::cycles;

/// Spaces of one processor; the one that has not been used for longest goes first.
const MAX_SPACES: usize = 24;

/// What is looked at after a page fault of the guest's own: what Linux maps around a page of a file, and
/// the pages that it makes of several for other memory. Both lie as is natural for their size.
pub(crate) const FAULT_WINDOW: u64 = 64 << 10;

/// One in how many pages has to be gone for the holes between those that are to be looked for.
const MANY_GONE: usize = 8;

/// Mappings of one space before it starts anew: Linux allows a process 65,530 as a rule.
const MAX_MAPPINGS: usize = 50_000;

/// A page that is mapped.
#[derive(Debug, Clone, Copy)]
struct Mapped {
    physical: u64,
    write: bool,
    execute: bool,
    is_piece: bool,
    /// The spare page that is mapped in its place.
    copy: Option<usize>,
}

/// What a helper has mapped, and for whom.
#[derive(Debug)]
struct UserSpace {
    root: u64,
    pcid: u16,
    time_stamp: TimeStamp,
    space: Space,
    /// By linear page number.
    pages: FxHashMap<u64, Mapped>,
    /// Numbers of pages that are no longer in `pages`, but still mapped.
    gone: Vec<u64>,
    /// Mappings made since it was empty.
    mappings: usize,
    stale: bool,
    used: u64,
    /// What its helper has had of a core, and when we last asked.
    time: Duration,
    asked: u64,
    /// Cycles that it has run for since.
    unasked: u64,
}

/// A page in a space.
type Alias = (usize, u64);

/// What helpers of one processor have mapped that must go when a page gets translations, or loses
/// them: pages that are writable, and copies. Other processors strike it out.
#[derive(Debug, Default)]
pub(crate) struct Removable {
    lists: Mutex<Lists>,
    struck: AtomicBool,
}

#[derive(Debug, Default)]
struct Lists {
    /// Writable pages, by physical page number.
    pages: Aliases,
    /// Copies, by that of the page that is copied.
    copies: Aliases,
    /// Still writable, or copies that are still mapped, though they must not be.
    struck: Vec<Alias>,
}

/// Where pages are mapped.
type Aliases = FxHashMap<u64, Vec<Alias>>;

impl Removable {
    fn lists(&self) -> MutexGuard<'_, Lists> {
        self.lists.lock().unpoisoned()
    }

    /// A page is about to have translations. Whether a helper had it writable.
    pub(crate) fn strike(&self, page: Physical) -> bool {
        let mut lists = self.lists();
        let Some(aliases) = lists.pages.remove(&(page.0 / PAGE_SIZE)) else { return false };
        lists.struck.extend(aliases);
        self.struck.store(true, Ordering::SeqCst);
        true
    }

    /// A page is about to be written, or will no longer be watched. Whether a helper had its copy.
    pub(crate) fn strike_copy(&self, page: Physical) -> bool {
        let mut lists = self.lists();
        let Some(aliases) = lists.copies.remove(&(page.0 / PAGE_SIZE)) else { return false };
        lists.struck.extend(aliases);
        self.struck.store(true, Ordering::SeqCst);
        true
    }

    /// No page is watched any longer.
    pub(crate) fn strike_copies(&self) {
        let mut lists = self.lists();
        let aliases: Vec<Alias> = lists.copies.drain().flat_map(|(_, aliases)| aliases).collect();
        lists.struck.extend(aliases);
        self.struck.store(true, Ordering::SeqCst);
    }

    fn take_struck(&self) -> Vec<Alias> {
        if !self.struck.swap(false, Ordering::SeqCst) {
            return Vec::new();
        }
        std::mem::take(&mut self.lists().struck)
    }
}

fn add(aliases: &mut Aliases, physical: u64, alias: Alias) {
    let aliases = aliases.entry(physical / PAGE_SIZE).or_default();
    if !aliases.contains(&alias) {
        aliases.push(alias);
    }
}

fn remove(aliases: &mut Aliases, physical: u64, alias: Alias) {
    if let Some(places) = aliases.get_mut(&(physical / PAGE_SIZE)) {
        places.retain(|&known| known != alias);
        if places.is_empty() {
            aliases.remove(&(physical / PAGE_SIZE));
        }
    }
}

impl Lists {
    /// A page is mapped no longer.
    fn remove(&mut self, mapped: &Mapped, alias: Alias) {
        let aliases = if mapped.copy.is_some() { &mut self.copies } else { &mut self.pages };
        remove(aliases, mapped.physical, alias);
    }
}

/// What came of a miss.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Filled {
    /// The access can be repeated.
    Mapped,
    /// The page must not be executed natively.
    Forbidden,
    /// It cannot be mapped for the access.
    Refused,
}

/// Counters since the processor was made.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counters {
    pub(crate) spaces: u64,
    pub(crate) pages: u64,
    pub(crate) flushes: u64,
}

/// What guest memory is, as far as mapping it goes.
pub(crate) struct Guest<'a> {
    pub(crate) ram: &'a Ram,
    pub(crate) memory: &'a host::GuestMemory,
    pub(crate) copies: &'a Copies,
    /// The processor's number in its package.
    pub(crate) member: usize,
    pub(crate) cr3: u64,
    /// Whether its time-stamp counter is the host's.
    pub(crate) time_stamp: TimeStamp,
    /// What surrounds a missing page is mapped with it: so many bytes, a page at least.
    pub(crate) window: u64,
}

/// The spaces of one processor.
#[derive(Debug)]
pub(crate) struct Spaces {
    helpers: Arc<Helpers>,
    forbidden: Forbidden,
    slots: Vec<Option<UserSpace>>,
    removable: Arc<Removable>,
    clock: u64,
    /// What the helpers of spaces that are gone have had of a core.
    past_time: Duration,
    pub(crate) counters: Counters,
}

impl Spaces {
    pub(crate) fn new(helpers: Arc<Helpers>) -> Self {
        let forbidden = Forbidden { cpuid: !helpers.cpuid_faults() };
        Self {
            helpers,
            forbidden,
            slots: (0..MAX_SPACES).map(|_| None).collect(),
            removable: Arc::default(),
            clock: 0,
            past_time: Duration::ZERO,
            counters: Counters::default(),
        }
    }

    /// What must not run in helpers.
    pub(crate) fn forbidden(&self) -> Forbidden {
        self.forbidden
    }

    /// For the other processors.
    pub(crate) fn removable(&self) -> Arc<Removable> {
        Arc::clone(&self.removable)
    }

    /// The number of the space for a CR3, ready to run.
    ///
    /// # Errors
    ///
    /// [`Error`] when there can be no helper.
    pub(crate) fn select(&mut self, guest: &Guest<'_>, pcid: u16) -> Result<usize, Error> {
        let root = root_of(guest.cr3);
        self.clock += 1;
        self.settle_struck();
        let time_stamp = guest.time_stamp;
        let known =
            self.slots.iter().position(|slot| slot.as_ref().is_some_and(|it| it.root == root));
        let suits = |number: &usize| {
            self.slots[*number].as_ref().is_some_and(|it| it.time_stamp == time_stamp)
        };
        let number = match known.filter(suits) {
            Some(number) => number,
            None => {
                known.into_iter().for_each(|number| self.discard(number));
                self.make(root, pcid, time_stamp)?
            }
        };
        let clock = self.clock;
        let it = self.slots[number].as_mut().expect("it was found, or made");
        it.used = clock;
        let moved = std::mem::replace(&mut it.pcid, pcid) != pcid;
        if std::mem::take(&mut it.stale) || moved {
            self.counters.flushes += 1;
            self.compare(number, guest);
        }
        Ok(number)
    }

    /// The helper of a space, with nothing mapped that should not be.
    ///
    /// # Errors
    ///
    /// As of [`Self::select`].
    pub(crate) fn ready(&mut self, number: usize) -> Result<&mut Space, Error> {
        let it = self.slots[number].as_mut().expect("the number comes from `select`");
        if let Err(error) = it.unmap_gone() {
            self.discard(number);
            return Err(error);
        }
        Ok(&mut self.slots[number].as_mut().expect("it was there").space)
    }

    fn make(&mut self, root: u64, pcid: u16, time_stamp: TimeStamp) -> Result<usize, Error> {
        let free = self.slots.iter().position(Option::is_none);
        let number = free.unwrap_or_else(|| {
            let oldest = self.slots.iter().enumerate();
            let oldest = oldest.min_by_key(|(_, slot)| slot.as_ref().map(|it| it.used));
            oldest.map_or(0, |(number, _)| number)
        });
        self.discard(number);
        let space = self.helpers.space(time_stamp)?;
        self.counters.spaces += 1;
        self.slots[number] = Some(UserSpace::new(root, pcid, time_stamp, space));
        Ok(number)
    }

    /// End a helper.
    pub(crate) fn discard(&mut self, number: usize) {
        if let Some(mut it) = self.slots[number].take() {
            self.past_time += it.ask_time(self.clock);
            drop(it);
            self.forget_aliases(number);
        }
    }

    /// End all helpers.
    pub(crate) fn discard_all(&mut self) {
        (0..MAX_SPACES).for_each(|number| self.discard(number));
    }

    /// What helpers have had of the host's cores.
    pub(crate) fn time(&mut self) -> Duration {
        let clock = self.clock;
        let present = self.slots.iter_mut().flatten().map(|it| it.ask_time(clock));
        present.sum::<Duration>() + self.past_time
    }

    /// How many of the cycles of the run that has just ended its helper had a core for. The host is asked
    /// after a long run only: if a core was taken away in a short one, it is not much that is taken for
    /// computing.
    pub(crate) fn had_core(&mut self, number: usize, run: u64, long: u64, tsc_khz: u32) -> u64 {
        let clock = self.clock;
        let Some(it) = self.slots[number].as_mut() else { return run };
        it.unasked = it.unasked.saturating_add(run);
        if run < long {
            return run;
        }
        let (before, ran) = (it.time, it.unasked);
        let had = cycles(it.ask_time(clock).saturating_sub(before), tsc_khz);
        share(run, had, ran)
    }

    fn forget_aliases(&self, number: usize) {
        let mut lists = self.removable.lists();
        lists.struck.retain(|alias| alias.0 != number);
        let Lists { pages, copies, .. } = &mut *lists;
        for aliases in [pages, copies] {
            aliases.retain(|_, places| {
                places.retain(|alias| alias.0 != number);
                !places.is_empty()
            });
        }
    }

    /// Unmap everything of a space: what is mapped is not known, or it is too much.
    ///
    /// # Errors
    ///
    /// As of [`Self::select`].
    pub(crate) fn empty(&mut self, number: usize) -> Result<(), Error> {
        self.forget_aliases(number);
        let it = self.slots[number].as_mut().expect("the number comes from `select`");
        it.pages.clear();
        it.unmap_all()
    }

    /// Take write access away where another processor, or ours, has translated something, and copies
    /// of what has changed.
    fn settle_struck(&mut self) {
        for (number, page) in self.removable.take_struck() {
            let Some(it) = self.slots[number].as_mut() else { continue };
            let Some(mapped) = it.pages.get_mut(&page) else { continue };
            if mapped.copy.is_some() {
                it.pages.remove(&page);
                it.gone.push(page);
                continue;
            }
            mapped.write = false;
            let protection = Protection { write: false, execute: mapped.execute };
            if it.space.protect(page * PAGE_SIZE, PAGE_SIZE, protection).is_err() {
                self.discard(number);
            }
        }
    }

    /// Map what is around `at`, for an access that the page tables allow.
    ///
    /// # Errors
    ///
    /// As of [`Self::select`]; [`Error::Range`] for an address that no helper can have.
    pub(crate) fn fill(
        &mut self,
        number: usize,
        guest: &Guest<'_>,
        at: Linear,
        access: Access,
    ) -> Result<Filled, Error> {
        let Some(missed) = user_page(guest.ram, guest.cr3, at) else { return Ok(Filled::Refused) };
        if self.slots[number].as_ref().is_some_and(|it| it.mappings > MAX_MAPPINGS) {
            self.empty(number)?;
        }
        let mut wanted = Vec::with_capacity(512);
        let it = self.slots[number].as_mut().expect("the number comes from `select`");
        let mut lists = self.removable.lists();
        let mut want = |page: UserPage| {
            let mapped = guest.wanted(&page, &it.pages, self.forbidden, page.linear == at.page());
            let Some(mapped) = mapped else { return };
            let alias = (number, page.linear.0 / PAGE_SIZE);
            if mapped.write {
                guest.ram.note_writer(page.physical, guest.member, index_of(page.linear));
                add(&mut lists.pages, page.physical.0, alias);
            }
            if mapped.copy.is_some() {
                add(&mut lists.copies, page.physical.0, alias);
            }
            wanted.push((page.linear.0, mapped));
        };
        match guest.window {
            PAGE_SIZE => want(missed),
            window => user_pages(guest.ram, guest.cr3, at, window, want),
        }
        // A page may have got translations since we looked; who translates has not seen our entry
        // in the lists then (memory/ram.rs).
        for (linear, mapped) in wanted.iter_mut().filter(|(_, mapped)| mapped.write) {
            if guest.ram.has_code(Physical(mapped.physical)) {
                mapped.write = false;
                remove(&mut lists.pages, mapped.physical, (number, *linear / PAGE_SIZE));
            }
        }
        // Likewise a copy may have been dropped.
        wanted.retain(|(linear, mapped)| {
            let stays = mapped.copy.is_none()
                || guest.copies.find(Physical(mapped.physical)) == mapped.copy;
            if !stays {
                remove(&mut lists.copies, mapped.physical, (number, *linear / PAGE_SIZE));
            }
            stays
        });
        drop(lists);
        self.counters.pages += wanted.len() as u64;
        it.map(&wanted, guest.memory)?;
        Ok(match (access, it.pages.get(&(at.0 / PAGE_SIZE))) {
            (Access::Execute, Some(mapped)) if !mapped.execute => Filled::Forbidden,
            (Access::Write, Some(mapped)) if !mapped.write => Filled::Refused,
            (_, Some(_)) => Filled::Mapped,
            (_, None) => Filled::Refused,
        })
    }

    /// Compare all pages with the page tables.
    fn compare(&mut self, number: usize, guest: &Guest<'_>) {
        let it = self.slots[number].as_mut().expect("the caller knows it");
        let is_gone = |(&page, mapped): (&u64, &Mapped)| {
            let now = user_page(guest.ram, guest.cr3, Linear(page * PAGE_SIZE));
            (!now.is_some_and(|now| mapped.is_still(&now))).then_some(page)
        };
        let gone: Vec<u64> = it.pages.iter().filter_map(is_gone).collect();
        let mut lists = self.removable.lists();
        for page in &gone {
            if let Some(mapped) = it.pages.remove(page) {
                lists.remove(&mapped, (number, *page));
            }
        }
        drop(lists);
        it.gone.extend(gone);
    }

    /// Add what was counted.
    pub(crate) fn count_in(&self, statistics: &mut Statistics) {
        statistics.direct_spaces = self.counters.spaces;
        statistics.direct_pages = self.counters.pages;
        statistics.direct_flushes = self.counters.flushes;
    }

    /// The guest has flushed.
    pub(crate) fn flush(&mut self, what: Flush, pcid: u16) {
        for number in 0..MAX_SPACES {
            let Some(it) = self.slots[number].as_mut() else { continue };
            match what {
                Flush::All | Flush::AllPcids => it.stale = true,
                Flush::Pcid(pcid) => it.stale |= it.pcid == pcid,
                Flush::Page(at) if it.pcid == pcid => self.flush_page(number, at),
                Flush::PagePcid(at, pcid) if it.pcid == pcid => self.flush_page(number, at),
                Flush::Page(_) | Flush::PagePcid(..) => {}
            }
        }
    }

    fn flush_page(&mut self, number: usize, at: Linear) {
        let it = self.slots[number].as_mut().expect("the caller knows it");
        let page = at.0 / PAGE_SIZE;
        let Some(&mapped) = it.pages.get(&page) else { return };
        if mapped.is_piece {
            // All of the large page goes (SDM 3A 4.10.4.1).
            it.stale = true;
            return;
        }
        self.removable.lists().remove(&mapped, (number, page));
        it.pages.remove(&page);
        it.gone.push(page);
    }
}

/// What a run of so many cycles had of a core, if all runs since a time had `had` of `ran`.
fn share(run: u64, had: u64, ran: u64) -> u64 {
    let share = u128::from(run) * u128::from(had) / u128::from(ran.max(1));
    run.min(share.try_into().unwrap_or(u64::MAX))
}

/// Ranges with all of the pages `gone` and none of those `staying`, if there are any: what is neither may
/// be in them. Both lists are in ascending order.
fn ranges(gone: &[u64], staying: &[u64]) -> Vec<Range<u64>> {
    let goes_on = |&a: &u64, &b: &u64| {
        a + 1 >= b
            || staying.get(staying.partition_point(|&page| page < a)).is_some_and(|&it| it > b)
    };
    let runs = gone.chunk_by(goes_on);
    runs.filter_map(|run| Some(*run.first()?..run.last()? + 1)).collect()
}

impl Guest<'_> {
    /// How a page is to be mapped; `None` if it is so already, or not memory.
    fn wanted(
        &self,
        page: &UserPage,
        known: &FxHashMap<u64, Mapped>,
        forbidden: Forbidden,
        missed: bool,
    ) -> Option<Mapped> {
        let physical = page.physical;
        let write = page.writable_now && !self.ram.has_code(physical);
        let copy = if page.executable { self.copies.find(physical) } else { None };
        if copy.is_some() {
            let is_new = known.get(&(page.linear.0 / PAGE_SIZE)).is_none_or(|before| {
                before.physical != physical.0 || before.copy != copy || missed
            });
            let (physical, is_piece) = (physical.0, page.is_piece);
            return is_new.then_some(Mapped {
                physical,
                write: false,
                execute: true,
                is_piece,
                copy,
            });
        }
        let before = known.get(&(page.linear.0 / PAGE_SIZE));
        let before = before.filter(|before| before.physical == physical.0);
        if let Some(before) = before
            && !missed
            && (before.write || !write)
        {
            return None;
        }
        if !missed && self.ram.is_absent(physical, PAGE_SIZE) {
            // It is fetched when it is needed.
            return None;
        }
        self.ram.host(physical)?;
        self.ram.make_present(physical);
        // The guest may change it meanwhile; then what is found is as good as what would have been found later.
        let execute = page.executable && !forbidden.is_in(&self.ram.copy_page(physical)?);
        let copy = None;
        Some(Mapped { physical: physical.0, write, execute, is_piece: page.is_piece, copy })
    }
}

impl UserSpace {
    fn new(root: u64, pcid: u16, time_stamp: TimeStamp, space: Space) -> Self {
        let (pages, time) = (FxHashMap::default(), Duration::ZERO);
        let (gone, mappings, stale) = (Vec::new(), 0, false);
        let (used, asked, unasked) = (0, 0, 0);
        Self {
            root,
            pcid,
            time_stamp,
            space,
            pages,
            gone,
            mappings,
            stale,
            used,
            time,
            asked,
            unasked,
        }
    }

    /// Unmap what is gone and has nothing else in its place.
    fn unmap_gone(&mut self) -> Result<(), Error> {
        if self.gone.is_empty() {
            return Ok(());
        }
        let Self { gone, pages, .. } = self;
        gone.retain(|page| !pages.contains_key(page));
        if pages.is_empty() {
            return self.unmap_all();
        }
        gone.sort_unstable();
        let mut staying = Vec::new();
        if gone.len() * MANY_GONE > pages.len() {
            staying.extend(pages.keys().copied());
            staying.sort_unstable();
        }
        for range in ranges(gone, &staying) {
            let bytes = (range.end - range.start) * PAGE_SIZE;
            self.space.unmap(range.start * PAGE_SIZE, bytes)?;
        }
        self.gone.clear();
        Ok(())
    }

    fn unmap_all(&mut self) -> Result<(), Error> {
        self.gone.clear();
        self.mappings = 0;
        self.space.unmap_all()
    }

    /// What its helper has had of a core. The host is asked only if it has run since the last time.
    fn ask_time(&mut self, clock: u64) -> Duration {
        if self.used >= self.asked {
            (self.asked, self.unasked) = (clock + 1, 0);
            // A helper that is gone tells no more.
            self.time = self.space.time().unwrap_or(self.time);
        }
        self.time
    }

    /// Map pages, in as few pieces as possible.
    fn map(&mut self, wanted: &[(u64, Mapped)], memory: &host::GuestMemory) -> Result<(), Error> {
        let goes_on = |(at, a): &(u64, Mapped), (next, b): &(u64, Mapped)| {
            at + PAGE_SIZE == *next
                && a.physical + PAGE_SIZE == b.physical
                && (a.write, a.execute) == (b.write, b.execute)
                && a.copy.is_none()
                && b.copy.is_none()
        };
        for run in wanted.chunk_by(goes_on) {
            let (linear, first) = run[0];
            let length = run.len() as u64 * PAGE_SIZE;
            let place = match first.copy {
                Some(spare) => Some(memory.spare_offset(spare)),
                None => memory.file_offset(first.physical, length),
            };
            let Some(offset) = place else { continue };
            let protection = Protection { write: first.write, execute: first.execute };
            self.space.map(linear, length, offset, protection, true)?;
            self.mappings += 1;
            self.pages.extend(run.iter().map(|&(at, mapped)| (at / PAGE_SIZE, mapped)));
        }
        Ok(())
    }
}

impl Mapped {
    /// Whether the page tables still allow what this mapping allows.
    fn is_still(&self, now: &UserPage) -> bool {
        now.physical.0 == self.physical
            && (now.writable_now || !self.write)
            && (now.executable || !self.execute)
            && now.is_piece == self.is_piece
    }
}

/// The address of the page tables in a CR3.
pub(crate) fn root_of(cr3: u64) -> u64 {
    cr3 & !0xfff
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_gone_is_unmapped_with_the_holes_between() {
        let check = |gone: &[u64], staying: &[u64], expected: &[(u64, u64)]| {
            let found = ranges(gone, staying).into_iter().map(|range| (range.start, range.end));
            assert_eq!(found.collect::<Vec<_>>(), expected, "{gone:?} {staying:?}");
        };
        check(&[], &[5], &[]);
        check(&[3, 4, 4, 5, 9], &[], &[(3, 6), (9, 10)]);
        check(&[3, 9, 20], &[1, 30], &[(3, 21)]);
        check(&[3, 9, 20], &[10, 30], &[(3, 10), (20, 21)]);
        // Nothing stays behind them: it is not known then that nothing is between them.
        check(&[3, 9], &[1], &[(3, 4), (9, 10)]);
        // What stays is in none of them, and what is gone in one.
        let staying: Vec<u64> = (0..1000).filter(|page| page % 7 == 3).collect();
        let gone: Vec<u64> = (0..1000).filter(|page| page % 7 != 3 && page % 3 != 0).collect();
        let found = ranges(&gone, &staying);
        assert!(found.len() < gone.len() / 2);
        let is_in = |page| found.iter().filter(|range| range.contains(&page)).count();
        assert!(staying.iter().all(|&page| is_in(page) == 0));
        assert!(gone.iter().all(|&page| is_in(page) == 1));
    }
}
