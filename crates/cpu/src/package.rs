//! What the processors of one machine share: guest memory and the translations of it.
//!
//! The constraints, and how they are met:
//!
//! 1. *One code cache.* Blocks are position independent of the processor that runs them: everything
//!    that belongs to a processor is reached through FS and GS. Everything about blocks that is not
//!    host code is in the [`Translator`], behind a lock that is never held while guest code runs.
//! 2. *Code may be executed while it is patched.* Only displacements of jumps and five-byte `nop`s
//!    are, each in one aligned store (translate/cache.rs).
//! 3. *A block that is dropped is not entered again.* Who drops it holds the lock; it leaves the
//!    table of known blocks, the jumps to it are unlinked, and its lines are struck from the jump
//!    caches of every processor. Its host code stays as it is: a processor that is on the way into
//!    it executes the old bytes once more, as a processor may whose instruction fetch was ahead
//!    (SDM 3A 10.1.3).
//! 4. *A page with translations is not writable by translated code, on any processor* (memory/ram.rs).
//!    Taking a write tag back from another processor is not enough: it may be between its look-up
//!    and its store. Therefore it is also waited for. Until that is done nobody trusts the page's mark
//!    ([`Package::is_protected`]): a second processor that comes to translate waits for the first, as whatever
//!    it read before could still be overwritten unseen.
//! 5. *The cache is dropped whole, when nobody uses it.*
//!
//! Waiting for the others (4, 5) is done by `Vcpu::alone` (exclusive.rs). A processor is *busy* while it is in
//! [`Vcpu::run`]; at the head of every pass of the run loop, where it holds neither a host address
//! of guest memory nor one of a block, it looks whether somebody wants to be alone, and waits if so.
//! Locks are taken in this order: `world`, then `translator`, then `protecting`. Nobody waits for `world`, or
//! for a page to be protected, while busy.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock};

use locks::Unpoisoned;

use crate::config::{Error, RamRegion};
use crate::inspect::{Inspection, Tracer};
use crate::members::Members;
use crate::memory::Physical;
use crate::memory::mirror::Mirror;
use crate::memory::ram::Ram;
use crate::techniques::{Technique, Techniques};
use crate::translate::Translator;
use crate::translate::unchain::Stopper;
use crate::translate::views::Changes;
use crate::user::plan::{Plan, UserExecution};

/// What each processor has of an [`Inspection`].
#[derive(Clone, Default)]
struct Watch {
    tracer: Option<Arc<dyn Tracer>>,
    history_entries: usize,
}

/// What the processors of one machine share.
pub struct Package {
    pub(crate) members: Members,
    pub(crate) stopper: Stopper,
    pub(crate) code_changes: Changes,
    /// The kernel's half of the linear address space, unless it is switched off.
    pub(crate) mirror: Option<Mirror>,
    /// There has been user code while SMAP was off ([`is_user_open`](crate::architectural::Architectural)).
    pub(crate) has_users: AtomicBool,
    /// What blocks and helpers may make use of.
    pub(crate) techniques: Techniques,
    translator: Mutex<Translator>,
    /// Held by the processor that is alone.
    world: Mutex<()>,
    /// Pages that some processor is about to make unwritable.
    protecting: Mutex<Vec<Physical>>,
    /// It has done so with one.
    protected: Condvar,
    /// How often the code cache was dropped.
    generation: AtomicU64,
    /// What a processor that joins is told of an inspection.
    watch: OnceLock<Watch>,
    /// What keeps the memory mapped, where that is ours to do.
    _memory: Option<host::GuestMemory>,
}

impl Package {
    /// A package without processors, in a guest's memory, which stays mapped as long as it lives.
    ///
    /// # Errors
    ///
    /// [`Error`] when the host refuses executable memory.
    pub fn in_memory(memory: &host::GuestMemory) -> Result<Arc<Self>, Error> {
        Self::with_techniques(memory, None, Techniques::ALL)
    }

    /// The same with helper processes to run user code directly. `helpers` were started for this
    /// memory, in which no guest is running yet. Where they turn out to be of no use, user code is
    /// translated, unless it must not be: see `execution`.
    ///
    /// # Errors
    ///
    /// As [`Self::in_memory`]; [`Error::Direct`] if direct execution is asked for and impossible.
    pub fn with_helpers(
        memory: &host::GuestMemory,
        helpers: &Arc<direct::Helpers>,
        execution: UserExecution,
    ) -> Result<Arc<Self>, Error> {
        Self::with_techniques(memory, Some((helpers, execution)), Techniques::ALL)
    }

    /// The same, with helper processes or without, and without some techniques.
    ///
    /// # Errors
    ///
    /// As [`Self::with_helpers`].
    pub fn with_techniques(
        memory: &host::GuestMemory,
        direct: Option<(&Arc<direct::Helpers>, UserExecution)>,
        techniques: Techniques,
    ) -> Result<Arc<Self>, Error> {
        let plan = match direct {
            None | Some((_, UserExecution::Translate)) => None,
            Some((helpers, execution)) => match Plan::new(execution, helpers, memory) {
                Ok(plan) => Some(Arc::new(plan)),
                Err(error) if execution == UserExecution::Direct => return Err(error.into()),
                Err(error) => {
                    tracing::info!("all user code is translated: {error}");
                    None
                }
            },
        };
        Self::build(regions_of(memory), Some(memory), plan, techniques)
    }

    /// The same in memory that the caller keeps mapped.
    ///
    /// # Errors
    ///
    /// As [`Self::in_memory`].
    ///
    /// # Safety
    ///
    /// Every region must be mapped, readable and writable, for as long as the package lives, and
    /// nothing in them may be relied upon: the guest changes it at will.
    pub unsafe fn new(regions: Vec<RamRegion>) -> Result<Arc<Self>, Error> {
        Self::build(regions, None, None, Techniques::ALL)
    }

    fn build(
        regions: Vec<RamRegion>,
        memory: Option<&host::GuestMemory>,
        plan: Option<Arc<Plan>>,
        techniques: Techniques,
    ) -> Result<Arc<Self>, Error> {
        let translator = Translator::new()?;
        let mirrored = memory.filter(|_| techniques.has(Technique::Mirror));
        Ok(Arc::new(Self {
            members: Members::new(Arc::new(Ram::new(regions, memory)), plan),
            stopper: Stopper::new(translator.cache.views()),
            code_changes: translator.cache.changes(),
            has_users: AtomicBool::new(false),
            techniques,
            translator: Mutex::new(translator),
            world: Mutex::new(()),
            protecting: Mutex::default(),
            protected: Condvar::new(),
            generation: AtomicU64::new(0),
            watch: OnceLock::new(),
            mirror: mirrored.and_then(Mirror::claim),
            _memory: memory.cloned(),
        }))
    }

    /// Have the processors that join from now on looked into. Once for each package, and before
    /// anything is translated; a second call does nothing.
    pub fn inspect(&self, inspection: Inspection) {
        let tracer = inspection.tracer.clone();
        let watch = Watch { tracer, history_entries: inspection.history_entries };
        if self.watch.set(watch).is_ok() && inspection.concerns_blocks() {
            self.translator().inspection = Some(Box::new(inspection));
        }
    }

    /// Tell whoever looks at host code of a place that is filled later.
    pub(crate) fn tell_of_place(&self, bounds: (u64, u64), name: &'static str) {
        if let Some(inspection) = &mut self.translator().inspection {
            inspection.tell_of_place(bounds, name);
        }
    }

    /// Who traces a processor, and how much of the past it remembers.
    pub(crate) fn inspection(&self) -> (Option<Arc<dyn Tracer>>, usize) {
        let Watch { tracer, history_entries } = self.watch.get().cloned().unwrap_or_default();
        (tracer, history_entries)
    }

    /// Everything known about blocks. A panic elsewhere does not make it wrong: what it holds is
    /// changed in steps that leave it usable.
    pub(crate) fn translator(&self) -> MutexGuard<'_, Translator> {
        self.translator.lock().unpoisoned()
    }

    pub(crate) fn world(&self) -> MutexGuard<'_, ()> {
        self.world.lock().unpoisoned()
    }

    fn protecting(&self) -> MutexGuard<'_, Vec<Physical>> {
        self.protecting.lock().unpoisoned()
    }

    /// Whether a page is marked as having translations, and no processor can write it unseen.
    pub(crate) fn is_protected(&self, page: Physical) -> bool {
        self.members.ram.has_code(page) && !self.protecting().contains(&page)
    }

    /// Wait until nobody is about to protect a page. The caller is not busy.
    pub(crate) fn await_protected(&self, page: Physical) {
        let pages = self.protecting();
        let waited = self.protected.wait_while(pages, |pages| pages.contains(&page));
        drop(waited.unpoisoned());
    }

    /// How often the code cache was dropped.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::SeqCst)
    }

    /// A device has written `length` bytes at a guest-physical address, from any thread and through a
    /// mapping of its own; it has not told the guest yet. Translations of what was there are dropped.
    ///
    /// *After* the write, not before it: what is dropped before could be translated again from the old
    /// bytes. That nothing survives which was translated from old bytes:
    ///
    /// 1. Who translates marks the page, then compares the bytes that it has decoded with memory,
    ///    under the translator's lock, and enters the block under it (translate/mod.rs).
    /// 2. We write, pass a full fence, and then look at the mark. If it is not there, it is set after
    ///    our write can be seen, and the comparison sees the new bytes. If it is there, we take the
    ///    lock: a block that is entered before us is dropped here, and a comparison after us sees the
    ///    new bytes.
    ///
    /// Until then processors may execute old translations, as they may execute old bytes until a
    /// device says that it is done; once it does, rule 3 holds. A copy of the page (user/copies.rs)
    /// goes with its translations.
    pub fn note_written(&self, at: u64, length: u64) {
        fence(Ordering::SeqCst);
        let end = at.saturating_add(length);
        let mut at = at;
        while at < end {
            let next = ((at | (crate::memory::PAGE_SIZE - 1)).saturating_add(1)).min(end);
            if self.members.ram.has_code(Physical(at)) {
                self.translator().invalidate(Physical(at), (next - at) as usize, &self.members);
            }
            at = next;
        }
    }

    /// `length` bytes at guest-physical `at` were given back to the host, and read as zeroes: as if they
    /// had been written ([`Self::note_written`]).
    pub fn note_discarded(&self, at: u64, length: u64) {
        self.members.ram.note_discarded(Physical(at), length);
        self.note_written(at, length);
    }

    /// Drop all blocks. The caller is alone.
    pub(crate) fn drop_blocks(&self) {
        self.translator().clear();
        self.stopper.clear();
        self.members.ram.clear_code();
        if let Some(plan) = &self.members.plan {
            plan.copies.drop_all();
            let all = self.members.iter().filter_map(|(_, member)| member.removable.as_ref());
            all.for_each(|removable| removable.strike_copies());
        }
        self.generation.fetch_add(1, Ordering::SeqCst);
    }
}

fn regions_of(memory: &host::GuestMemory) -> Vec<RamRegion> {
    let regions = memory.regions().into_iter();
    regions
        .map(|region| RamRegion { guest: region.guest, size: region.size, host: region.host })
        .collect()
}

/// To protect a page; there is one at a time for each.
pub(crate) struct Turn<'a> {
    package: &'a Package,
    page: Physical,
}

impl<'a> Turn<'a> {
    /// None if another processor has it.
    pub(crate) fn take(package: &'a Package, page: Physical) -> Option<Self> {
        let mut pages = package.protecting();
        if pages.contains(&page) {
            return None;
        }
        pages.push(page);
        Some(Self { package, page })
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.package.protecting().retain(|&page| page != self.page);
        self.package.protected.notify_all();
    }
}
