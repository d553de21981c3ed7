//! Shadow address spaces: the guest's user address spaces, as far as helpers have them mapped.
//!
//! A [`Space`](direct::Space) is a TLB of one processor for one address space, and keeps a TLB's
//! promises, as memory/mirror.rs does for the kernel's half:
//!
//! 1. *Filled on a miss*, with the 2 MiB around it: every page there that the guest's page tables
//!    already allow user code to access. A page is mapped writable only if its dirty bit is set, and not at all if
//!    its accessed bit is clear. After a page fault of the guest's own, the window is [`FAULT_WINDOW`]: a miss before
//!    has looked at what lies farther away, and the guest's kernel has only mapped what is around one page.
//! 2. *Flushed when the guest flushes.* A single page is dropped at once. After anything larger the
//!    space is *stale*: before it runs again each of its pages is compared with the page tables, and
//!    what they no longer say is dropped. A dropped page is *gone*: it counts no more, and is unmapped
//!    before the helper runs ([`Spaces::ready`]), unless another has been mapped over it meanwhile, as for a page
//!    that a guest copies when it is written. Several are unmapped at once, together with the holes between
//!    them: of a process that begins another program nothing stays.
//! 3. *Pages with translations are mapped read-only.* The vCPU that translates from a page first revokes
//!    write access to it ([`Revocable`]); the vCPU that owns the mapping makes it read-only before it runs a helper
//!    again, and until it has left the helper that it runs, the first vCPU waits (vcpu_group.rs).
//! 4. *A page with forbidden instructions is not executable* (page.rs), but a copy of it may be mapped
//!    in its place (copies.rs), which is revoked when the page is written.
//!
//! A space belongs to a root of page tables, and remembers the PCID under which it was last used: a
//! flush names a PCID, and a root that comes with another PCID finds nothing cached.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use direct::{Error, Helpers, Protection, Space, TimeStamp};
use rustc_hash::FxHashMap;

use super::copies::Copies;
use super::page::Forbidden;
use super::revocable::{Mapping, Maps, Revocable};
use crate::memory::paging::{UserPage, user_page, user_pages};
use crate::memory::ram::Ram;
use crate::memory::tlb::index_of;
use crate::memory::{Access, Flush, Linear, PAGE_SIZE, Physical};
use crate::statistics::Statistics;
use crate::stops::Debugging;
use crate::time::cycles;

/// Spaces of one vCPU; the least recently used one is evicted first.
const MAX_SPACES: usize = 24;

/// The window after a page fault of the guest's own: as much as Linux maps around a page of a file, or
/// combines into one larger page for other memory. Both are naturally aligned.
pub(crate) const FAULT_WINDOW: u64 = 64 << 10;

/// If more than one in so many pages is gone, the holes between those pages are looked for.
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

/// What a helper has mapped, and for which address space.
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
    /// The time that its helper has had a core, and when the host was last asked for it.
    time: Duration,
    asked: u64,
    /// Cycles that it has run for since.
    unasked: u64,
}

/// The outcome of a miss.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Filled {
    /// The access can be repeated.
    Mapped,
    /// The page must not be executed natively.
    Forbidden,
    /// It cannot be mapped for the access.
    Refused,
}

/// Counters since the vCPU was made.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counters {
    pub(crate) spaces: u64,
    pub(crate) pages: u64,
    pub(crate) flushes: u64,
}

/// The guest's memory and page tables, as far as mapping them needs.
pub(crate) struct Guest<'a> {
    pub(crate) ram: &'a Ram,
    pub(crate) memory: &'a host::GuestMemory,
    pub(crate) copies: &'a Copies,
    /// Where a debugger has breakpoints.
    pub(crate) debugging: &'a Debugging,
    /// The index of the vCPU in its group.
    pub(crate) vcpu_index: usize,
    pub(crate) cr3: u64,
    /// Whether its time-stamp counter is the host's.
    pub(crate) time_stamp: TimeStamp,
    /// What surrounds a missing page is mapped with it: so many bytes, a page at least.
    pub(crate) window: u64,
}

/// The spaces of one vCPU.
#[derive(Debug)]
pub(crate) struct Spaces {
    helpers: Arc<Helpers>,
    forbidden: Forbidden,
    slots: Vec<Option<UserSpace>>,
    revocable: Arc<Revocable>,
    clock: u64,
    /// The time that the helpers of evicted spaces have had a core.
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
            revocable: Arc::default(),
            clock: 0,
            past_time: Duration::ZERO,
            counters: Counters::default(),
        }
    }

    /// The instructions that must not be executed in helpers.
    pub(crate) fn forbidden(&self) -> Forbidden {
        self.forbidden
    }

    /// What the other vCPUs may revoke.
    pub(crate) fn revocable(&self) -> Arc<Revocable> {
        Arc::clone(&self.revocable)
    }

    /// The number of the space for a CR3, ready to run.
    ///
    /// # Errors
    ///
    /// [`Error`] when there can be no helper.
    pub(crate) fn select(&mut self, guest: &Guest<'_>, pcid: u16) -> Result<usize, Error> {
        let root = root_of(guest.cr3);
        self.clock += 1;
        self.apply_revocations();
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
            self.revocable.forget_space(number);
        }
    }

    /// End all helpers.
    pub(crate) fn discard_all(&mut self) {
        (0..MAX_SPACES).for_each(|number| self.discard(number));
    }

    /// The time that helpers have had one of the host's cores.
    pub(crate) fn time(&mut self) -> Duration {
        let clock = self.clock;
        let present = self.slots.iter_mut().flatten().map(|it| it.ask_time(clock));
        present.sum::<Duration>() + self.past_time
    }

    /// For how many of the cycles of the run that has just ended its helper had a core. The host is asked
    /// only after a long run: if it takes the core away in a short one, few cycles are mistaken for
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

    /// Unmap all pages of a space, because it is not known what is mapped, or because it is too much.
    ///
    /// # Errors
    ///
    /// As of [`Self::select`].
    pub(crate) fn empty(&mut self, number: usize) -> Result<(), Error> {
        self.revocable.forget_space(number);
        let it = self.slots[number].as_mut().expect("the number comes from `select`");
        it.pages.clear();
        it.unmap_all()
    }

    /// Apply revocations: write-protect pages that have translations, and unmap copies of pages that have changed.
    fn apply_revocations(&mut self) {
        for Mapping { space: number, page } in self.revocable.take_revoked() {
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
        let mut maps = self.revocable.maps();
        let mut want = |page: UserPage| {
            let mapped = guest.wanted(&page, &it.pages, self.forbidden, page.linear == at.page());
            let Some(mapped) = mapped else { return };
            let mapping = Mapping { space: number, page: page.linear.0 / PAGE_SIZE };
            if mapped.write {
                guest.ram.note_writer(page.physical, guest.vcpu_index, index_of(page.linear));
                maps.writable.insert(page.physical, mapping);
            }
            if mapped.copy.is_some() {
                maps.copies.insert(page.physical, mapping);
            }
            wanted.push((page.linear.0, mapped));
        };
        match guest.window {
            PAGE_SIZE => want(missed),
            window => user_pages(guest.ram, guest.cr3, at, window, want),
        }
        // A page may have got translations since the check above; the vCPU that translates has not seen the new
        // entry in the reverse map then (memory/ram.rs).
        for (linear, mapped) in wanted.iter_mut().filter(|(_, mapped)| mapped.write) {
            if guest.ram.has_code(Physical(mapped.physical)) {
                mapped.write = false;
                let page = *linear / PAGE_SIZE;
                maps.writable.remove(Physical(mapped.physical), Mapping { space: number, page });
            }
        }
        // Likewise a copy may have been dropped.
        wanted.retain(|(linear, mapped)| {
            let stays = mapped.copy.is_none()
                || guest.copies.find(Physical(mapped.physical)) == mapped.copy;
            if !stays {
                let page = *linear / PAGE_SIZE;
                maps.copies.remove(Physical(mapped.physical), Mapping { space: number, page });
            }
            stays
        });
        drop(maps);
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
        let mut maps = self.revocable.maps();
        for page in &gone {
            if let Some(mapped) = it.pages.remove(page) {
                maps.remove_mapped(&mapped, Mapping { space: number, page: *page });
            }
        }
        drop(maps);
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
        if it.pages.get(&(at.0 / PAGE_SIZE)).is_some_and(|mapped| mapped.is_piece) {
            // All of the large page goes (SDM 3A 4.10.4.1).
            it.stale = true;
            return;
        }
        self.unmap_page(number, at);
    }

    /// Have no space map the page of `at` any more, until it is missed.
    pub(crate) fn drop_page(&mut self, at: Linear) {
        let all = (0..MAX_SPACES).filter(|&number| self.slots[number].is_some());
        all.collect::<Vec<_>>().into_iter().for_each(|number| self.unmap_page(number, at));
    }

    fn unmap_page(&mut self, number: usize, at: Linear) {
        let it = self.slots[number].as_mut().expect("the caller knows it");
        let page = at.0 / PAGE_SIZE;
        let Some(&mapped) = it.pages.get(&page) else { return };
        self.revocable.maps().remove_mapped(&mapped, Mapping { space: number, page });
        it.pages.remove(&page);
        it.gone.push(page);
    }
}

/// For how many of `run` cycles the helper had a core, if it had one for `had` of the last `ran` cycles.
fn share(run: u64, had: u64, ran: u64) -> u64 {
    let share = u128::from(run) * u128::from(had) / u128::from(ran.max(1));
    run.min(share.try_into().unwrap_or(u64::MAX))
}

/// Ranges with all of the pages `gone` and none of those `staying`, if there are any. They may contain pages that
/// are in neither list. Both lists are in ascending order.
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
        let executable = page.executable && !self.debugging.breaks_in(page.linear);
        let copy = if executable { self.copies.find(physical) } else { None };
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
        let execute = executable && !forbidden.is_in(&self.ram.copy_page(physical)?);
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

    /// The time that its helper has had a core. The host is asked only if the helper has run since the last time.
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

impl Maps {
    /// A page is mapped no longer.
    fn remove_mapped(&mut self, mapped: &Mapped, mapping: Mapping) {
        let map = if mapped.copy.is_some() { &mut self.copies } else { &mut self.writable };
        map.remove(Physical(mapped.physical), mapping);
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
