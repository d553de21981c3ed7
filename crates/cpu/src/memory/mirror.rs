//! The guest kernel's half of the linear address space, mapped by the host's MMU.
//!
//! A Linux process owns addresses below 2^47, and a 64-bit kernel lives above 0xffff_8000_0000_0000.
//! With the GS base at `place::BASE`, `gs:[g]` for a kernel address `g` reaches host address `g + BASE`
//! (modulo 2^64), which is in the lower half for all of the kernel's half but its first 2 MiB, and not an
//! address at all for a user's `g`; place.rs says why, and where this process is meanwhile.
//! Translated kernel code therefore reaches memory with no check at all.
//!
//! The mirror is a TLB, and keeps a TLB's promises:
//!
//! 1. *Filled on a miss.* An access to what is not mapped is a host fault; the guest's page tables
//!    are walked, accessed and dirty bits set, and the page is mapped: 2 MiB at a time where the
//!    guest's page is that large, and writable only if the dirty bit is set.
//! 2. *Never wider than the guest's rights.* What the walk refuses is the guest's own page fault.
//! 3. *Flushed when the guest flushes.* After a flush of everything each mapping is compared with
//!    the page tables as they are now, and only what differs is dropped: a kernel flushes often and
//!    changes little.
//! 4. *Pages with translations are mapped read-only* (memory/ram.rs). A store to one is a host
//!    fault; the instruction is then translated again, with a look-up.
//! 5. Pages that are not global belong to one address space. When CR3 is loaded they are compared with the page
//!    tables, too, and where several processors share the mirror they are entered only if all of them have the same
//!    (local.rs). A global page is taken to be the same for all processors, as a kernel that shares its page tables
//!    has it.
//!
//! A paravirtual kernel has neither global nor large pages, and tells of every change: its memory is mapped as
//! runs.rs has it, which keeps the same promises (but for the rules 3 and 5).
//!
//! What cannot be mapped (devices, where this process lies) is reached by looking it up, as user memory is.
//! Where a kernel may mean memory of its users ([`Architectural::is_user_open`]), every access is looked up, except
//! those to its stack and its variables. These may turn out to be a user's all the same: right after `syscall` RSP and
//! GS are, and a kernel without SMAP may use them. There, and if a kernel means a user's memory anywhere else, the
//! host's processor refuses the address. The instruction is then translated again with a look-up, which says what
//! the guest's page tables say.
//!
//! [`Architectural::is_user_open`]: crate::architectural::Architectural::is_user_open

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use locks::Unpoisoned;
use rustc_hash::FxHashMap;

use super::local::Local;
use super::paging::{Translation, peek};
use super::place::{FIRST, Place};
use super::ram::{FETCHED_BYTES, Ram};
use super::reverse_map::ReverseMap;
use super::runs::Runs;
use super::tlb::PageSize;
use super::window::{self, populate_around, protect, protection, unmap};
use super::{Access, Linear, PAGE_SIZE, Physical};

const LARGE: u64 = 2 << 20;

/// Pages that are entered into the host's page tables at once.
const CHUNK_BYTES: u64 = 64 << 10;

// A large page has as many chunks as [`Region::closed`] has bits.
const _: () = assert!(LARGE / FETCHED_BYTES == 64);

/// A page, of either size, that is mapped.
#[derive(Debug, Clone, Copy)]
struct Mapped {
    physical: u64,
    writable: bool,
}

/// Everything mapped in 2 MiB of linear addresses.
#[derive(Debug, Default)]
struct Region {
    large: Option<Mapped>,
    /// Chunks ([`FETCHED_BYTES`]) of `large` that cannot be accessed yet, a bit for each: what is there has
    /// still to be fetched ([`host::backing`]).
    closed: u64,
    /// By linear page number.
    small: FxHashMap<u64, Mapped>,
}

#[derive(Debug, Default)]
struct State {
    /// By linear address divided by 2 MiB.
    regions: FxHashMap<u64, Region>,
    /// Where pages of 4 KiB and of 2 MiB are mapped: the first address of each mapping.
    small_aliases: ReverseMap<Linear, PAGE_SIZE>,
    large_aliases: ReverseMap<Linear, LARGE>,
    /// The mappings that are not global.
    local: Local,
}

/// The outcome of a miss.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Entered {
    /// The access can be repeated.
    Mapped,
    /// The page cannot be mapped for this access.
    Refused,
}

/// Counters since the mirror was made.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// Pages of 4 KiB and of 2 MiB mapped.
    pub(crate) small: AtomicU64,
    pub(crate) large: AtomicU64,
    /// Pages dropped or made read-only.
    pub(crate) dropped: AtomicU64,
}

/// The mirror of one machine.
#[derive(Debug)]
pub(crate) struct Mirror {
    memory: host::GuestMemory,
    state: Mutex<State>,
    /// What there is of a paravirtual kernel's memory, instead of `state`.
    runs: Mutex<Runs>,
    /// The addresses that must never be mapped.
    place: Place,
    is_given_up: AtomicBool,
    pub(crate) counters: Counters,
}

/// The addresses of the mirror are taken: a process has one.
static TAKEN: AtomicBool = AtomicBool::new(false);

impl Mirror {
    /// An empty mirror of a guest's memory; none if the process has one already, or if it lies where every
    /// kernel has something.
    pub(crate) fn claim(memory: &host::GuestMemory) -> Option<Self> {
        if TAKEN.swap(true, Ordering::SeqCst) {
            return None;
        }
        let Some(place) = Place::of_this_process() else {
            tracing::info!("kernel memory is looked up: this process has something in its place");
            TAKEN.store(false, Ordering::SeqCst);
            return None;
        };
        Some(Self {
            memory: memory.clone(),
            state: Mutex::default(),
            runs: Mutex::default(),
            place,
            is_given_up: AtomicBool::new(false),
            counters: Counters::default(),
        })
    }

    /// Give the mirror up for good if page tables have something where this process lies; whether they have.
    /// The mappings stay until [`Self::clear`]: other vCPUs may be using them.
    pub(crate) fn make_way(&self, cr3: u64, ram: &Ram) -> bool {
        if self.is_given_up() || !self.place.is_used_by(cr3, ram) {
            return false;
        }
        tracing::info!("kernel memory is looked up: the guest has some where this process lies");
        !self.is_given_up.swap(true, Ordering::SeqCst)
    }

    /// Whether it must not be used any more.
    pub(crate) fn is_given_up(&self) -> bool {
        self.is_given_up.load(Ordering::Relaxed)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unpoisoned()
    }

    /// Map the page of `at`, which `walk` finds under the lock, for an access by the vCPU `vcpu_index`.
    ///
    /// # Errors
    ///
    /// What `walk` returns.
    pub(crate) fn enter<E>(
        &self,
        at: Linear,
        access: Access,
        vcpu_index: usize,
        ram: &Ram,
        walk: impl FnOnce() -> Result<Translation, E>,
    ) -> Result<Entered, E> {
        let mut state = self.state();
        let found = walk()?;
        if !self.has_room(at)
            || !found.global && !state.local.is_everybodys(at, found, vcpu_index, ram)
        {
            return Ok(Entered::Refused);
        }
        Ok(self.map(&mut state, at, access, found, ram))
    }

    fn map(
        &self,
        state: &mut State,
        at: Linear,
        access: Access,
        found: Translation,
        ram: &Ram,
    ) -> Entered {
        let writable = found.writable_now && !ram.has_code(found.physical);
        let known = state.regions.get(&(at.0 / LARGE));
        let here = known.and_then(|region| region.at(at));
        if let Some(mapped) = here {
            if self.open_chunk(state, at, mapped, ram) {
                return Entered::Mapped;
            }
            return match access {
                Access::Write if writable && mapped.writable => self.unprotect(at, found, ram),
                Access::Write if writable => self.widen(state, at, found, ram),
                Access::Write => Entered::Refused,
                _ => Entered::Mapped,
            };
        }
        let empty = known.is_none_or(Region::is_empty);
        if found.size != PageSize::Small && empty && self.map_large(state, at, found, ram) {
            return Entered::Mapped;
        }
        if access == Access::Write && !writable {
            return Entered::Refused;
        }
        self.map_small(state, at, found, writable, ram)
    }

    /// Make a page writable again that was read-only because it had translations.
    fn unprotect(&self, at: Linear, found: Translation, ram: &Ram) -> Entered {
        let done = protect(at.page(), PAGE_SIZE, true);
        self.keep_code_safe(at, found, ram);
        if done { Entered::Mapped } else { Entered::Refused }
    }

    /// Make a page writable whose dirty bit was not set before.
    fn widen(&self, state: &mut State, at: Linear, found: Translation, ram: &Ram) -> Entered {
        self.drop_page(state, at);
        self.map_small(state, at, found, true, ram)
    }

    fn map_large(&self, state: &mut State, at: Linear, found: Translation, ram: &Ram) -> bool {
        let base = found.physical.0 & !(LARGE - 1);
        let start = Linear(at.0 & !(LARGE - 1));
        let Some(offset) = self.memory.file_offset(base, LARGE) else { return false };
        let is_absent = ram.is_absent(Physical(base), LARGE);
        let mut pages = (base..base + LARGE).step_by(PAGE_SIZE as usize).map(Physical);
        let has_code = !is_absent && found.writable_now && pages.any(|page| ram.has_code(page));
        let access = match is_absent {
            true => libc::PROT_NONE,
            // Where there is code, never writable for a moment. Who marks a page later finds this alias.
            false => protection(found.writable_now && !has_code),
        };
        if !self.map_file(start, LARGE, offset, access) {
            return false;
        }
        self.counters.large.fetch_add(1, Ordering::Relaxed);
        let mapped = Mapped { physical: base, writable: found.writable_now };
        let region = state.regions.entry(start.0 / LARGE).or_default();
        region.large = Some(mapped);
        region.closed = if is_absent { u64::MAX } else { 0 };
        state.large_aliases.insert_new(Physical(base), start);
        if !found.global {
            state.local.add(start);
        }
        if is_absent {
            return self.open_chunk(state, at, mapped, ram);
        }
        if has_code && !allow(start, mapped, LARGE, ram) {
            self.drop_page(state, start);
            return false;
        }
        populate_around(at, CHUNK_BYTES, found.writable_now);
        true
    }

    /// Let the chunk around `at` of a large page be accessed, if that is still to be done; what is there
    /// has been fetched.
    fn open_chunk(&self, state: &mut State, at: Linear, mapped: Mapped, ram: &Ram) -> bool {
        let bit = 1 << (at.0 % LARGE / FETCHED_BYTES);
        let region = state.regions.get_mut(&(at.0 / LARGE));
        let Some(region) = region.filter(|it| it.large.is_some() && it.closed & bit != 0) else {
            return false;
        };
        let start = Linear(at.0 & !(FETCHED_BYTES - 1));
        if !allow(start, mapped, FETCHED_BYTES, ram) {
            self.drop_page(state, at);
            return false;
        }
        region.closed &= !bit;
        populate_around(at, FETCHED_BYTES, mapped.writable);
        true
    }

    fn map_small(
        &self,
        state: &mut State,
        at: Linear,
        found: Translation,
        writable: bool,
        ram: &Ram,
    ) -> Entered {
        let (page, physical) = (at.page(), found.physical.page().0);
        let Some(offset) = self.memory.file_offset(physical, PAGE_SIZE) else {
            return Entered::Refused;
        };
        if !self.map_file(page, PAGE_SIZE, offset, protection(writable)) {
            return Entered::Refused;
        }
        self.counters.small.fetch_add(1, Ordering::Relaxed);
        let number = page.0 / PAGE_SIZE;
        let region = state.regions.entry(page.0 / LARGE).or_default();
        region.small.insert(number, Mapped { physical, writable });
        state.small_aliases.insert_new(Physical(physical), page);
        if !found.global {
            state.local.add(page);
        }
        if writable {
            self.keep_code_safe(at, found, ram);
        }
        Entered::Mapped
    }

    /// A page may have got translations while it was being mapped writable.
    fn keep_code_safe(&self, at: Linear, found: Translation, ram: &Ram) {
        if ram.has_code(found.physical) {
            protect(at.page(), PAGE_SIZE, false);
        }
    }

    fn map_file(&self, at: Linear, length: u64, offset: u64, protection: i32) -> bool {
        window::map(&self.memory, at, length, offset, protection)
    }

    /// Make every mapping of a page read-only, because it is about to have translations.
    pub(crate) fn write_protect(&self, page: Physical) {
        self.runs().write_protect(page);
        let mut state = self.state();
        let small = state.small_aliases.places(page).iter().copied();
        let large = state.large_aliases.places(page).iter();
        let large = large.map(|start| Linear(start.0 + page.0 % LARGE));
        let is_done = small.chain(large).all(|at| protect(at.page(), PAGE_SIZE, false));
        if !is_done {
            // The host has no room for another mapping: have fewer.
            self.drop_everything(&mut state);
        }
    }

    /// Drop the page of `at`, or the large page that it is in.
    fn drop_page(&self, state: &mut State, at: Linear) {
        let Some(region) = state.regions.get_mut(&(at.0 / LARGE)) else { return };
        let number = at.0 / PAGE_SIZE;
        let is_unmapped = if let Some(mapped) = region.small.remove(&number) {
            state.small_aliases.remove(Physical(mapped.physical), at.page());
            state.local.remove(at.page());
            unmap(at.page(), PAGE_SIZE)
        } else if let Some(mapped) = region.large.take() {
            let start = Linear(at.0 & !(LARGE - 1));
            state.large_aliases.remove(Physical(mapped.physical), start);
            state.local.remove(start);
            unmap(start, LARGE)
        } else {
            return;
        };
        self.counters.dropped.fetch_add(1, Ordering::Relaxed);
        if !is_unmapped {
            // The host has no room for the two parts of a mapping. All of them together have no parts.
            self.drop_everything(state);
        }
    }

    fn drop_everything(&self, state: &mut State) {
        let mut numbers: Vec<u64> = state.regions.keys().copied().collect();
        numbers.sort_unstable();
        for run in numbers.chunk_by(|a, b| a + 1 == *b) {
            unmap(Linear(run[0] * LARGE), run.len() as u64 * LARGE);
        }
        state.local.clear();
        *state = State { local: std::mem::take(&mut state.local), ..State::default() };
    }

    /// `invlpg`.
    pub(crate) fn flush_page(&self, at: Linear) {
        if at.0 >= FIRST {
            self.drop_page(&mut self.state(), at);
        }
    }

    /// From here on, the vCPU `vcpu_index` uses the mirror under this CR3 (it has loaded it, or has flushed what is not
    /// global), or does not use it. Drop what the page tables do not say.
    pub(crate) fn flush_local(&self, vcpu_index: usize, cr3: Option<u64>, ram: &Ram) {
        let mut state = self.state();
        let State { local, regions, .. } = &mut *state;
        local.set_root(vcpu_index, cr3);
        let Some(cr3) = cr3 else { return };
        let stale = local.compare(cr3, ram, |at, now| {
            let region = regions.get(&(at.0 / LARGE));
            region.is_some_and(|region| {
                region.at(at).is_some_and(|mapped| mapped.agrees(at, region.large.is_some(), now))
            })
        });
        for at in stale {
            self.drop_page(&mut state, at);
        }
    }

    /// Everything was flushed, under this CR3: drop what the page tables no longer say.
    pub(crate) fn flush_all(&self, cr3: u64, ram: &Ram) {
        let mut state = self.state();
        let mut stale = Vec::new();
        for (&number, region) in &state.regions {
            let large = region.large.map(|mapped| (Linear(number * LARGE), mapped, true));
            let small = region.small.iter();
            let small = small.map(|(&page, &mapped)| (Linear(page * PAGE_SIZE), mapped, false));
            for (at, mapped, is_large) in large.into_iter().chain(small) {
                if !mapped.is_still(at, is_large, cr3, ram) {
                    stale.push(at);
                }
            }
        }
        for at in stale {
            self.drop_page(&mut state, at);
        }
    }

    /// Drop everything.
    pub(crate) fn clear(&self) {
        self.runs().clear();
        self.drop_everything(&mut self.state());
    }

    /// What there is of a paravirtual kernel's memory.
    pub(crate) fn runs(&self) -> MutexGuard<'_, Runs> {
        self.runs.lock().unpoisoned()
    }

    /// Map the page of `at`, which `walk` finds under the lock, for an access by a vCPU of a paravirtual guest that has
    /// loaded a root; whether the access can be repeated.
    pub(crate) fn enter_run<E>(
        &self,
        at: Linear,
        access: Access,
        vcpu: (usize, u64),
        ram: &Ram,
        walk: impl FnOnce() -> Result<Translation, E>,
    ) -> bool {
        let mut runs = self.runs();
        let can_be = walk().is_ok() && self.has_room(at);
        can_be && runs.enter(at, access, vcpu, (&self.memory, ram))
    }

    /// Map what is the hypervisor's (`bytes` from a physical address on, which are at a linear address), if `at` is of
    /// it, for reading; whether the access can be repeated.
    pub(crate) fn enter_fixed(&self, at: Linear, place: (Linear, u64, u64)) -> bool {
        self.has_room(at) && self.runs().enter_fixed(at, place, &self.memory)
    }

    /// Whether an address can be in the mirror.
    fn has_room(&self, at: Linear) -> bool {
        at.0 >= FIRST && !self.place.has(at) && !self.is_given_up()
    }
}

impl Drop for Mirror {
    fn drop(&mut self) {
        self.clear();
        TAKEN.store(false, Ordering::SeqCst);
    }
}

impl Region {
    fn at(&self, at: Linear) -> Option<Mapped> {
        self.large.or_else(|| self.small.get(&(at.0 / PAGE_SIZE)).copied())
    }

    fn is_empty(&self) -> bool {
        self.large.is_none() && self.small.is_empty()
    }
}

impl Mapped {
    /// Whether the page tables still say what this mapping says.
    fn is_still(&self, at: Linear, is_large: bool, cr3: u64, ram: &Ram) -> bool {
        peek(ram, cr3, at).is_some_and(|now| self.agrees(at, is_large, now))
    }

    /// Whether the page tables say what this mapping says if this is what they say of `at`.
    fn agrees(&self, at: Linear, is_large: bool, now: Translation) -> bool {
        now.page_of(at).0 == self.physical
            && (now.writable_now || !self.writable)
            && (now.size != PageSize::Small || !is_large)
    }
}

/// Let `length` bytes of a large page be accessed, and written where there is no code.
fn allow(start: Linear, mapped: Mapped, length: u64, ram: &Ram) -> bool {
    let physical = mapped.physical + start.0 % LARGE;
    let pages = (0..length).step_by(PAGE_SIZE as usize);
    let pages = pages.map(|page| (page, !ram.has_code(Physical(physical + page))));
    let pages: Vec<_> = pages.map(|(page, is_free)| (page, mapped.writable && is_free)).collect();
    pages.chunk_by(|one, next| one.1 == next.1).all(|run| {
        let (first, writable) = run[0];
        protect(Linear(start.0 + first), run.len() as u64 * PAGE_SIZE, writable)
    })
}
