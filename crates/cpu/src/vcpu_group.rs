//! What the vCPUs of one machine share: guest memory and the translations of it.
//!
//! The constraints, and how they are met:
//!
//! 1. *One code cache.* Blocks do not depend on the vCPU that executes them: a block reaches everything
//!    that belongs to a vCPU through FS and GS. All data about blocks, except the host code itself, is in the
//!    [`Translator`], behind a lock that no thread holds while it executes guest code.
//! 2. *Code may be executed while it is patched.* A patch changes only the displacement of a jump or a five-byte
//!    `nop`, each in one aligned store (translate/cache.rs).
//! 3. *A block that is dropped is not entered again.* The vCPU that drops it holds the lock. It removes the block from
//!    the table of known blocks, unlinks the jumps to it, and removes its lines from the jump
//!    caches of every vCPU. The host code stays as it is: a vCPU that is about to enter
//!    it executes the old bytes once more, as a processor may whose instruction fetch was ahead
//!    (SDM 3A 10.1.3).
//! 4. *A page with translations is not writable by translated code, on any vCPU* (memory/ram.rs).
//!    To revoke another vCPU's write tag is not enough: that vCPU may be between its look-up
//!    and its store. So the revoking vCPU also waits for it. Until the wait is over, no vCPU trusts the page's mark
//!    ([`VcpuGroup::is_protected`]): a second vCPU that is to translate from the page waits for the first one, because
//!    translated code could still overwrite, unseen, what the second one has read.
//! 5. *The cache is dropped as a whole, when no vCPU uses it.*
//!
//! `Vcpu::alone` (exclusive.rs) waits for the other vCPUs (4, 5). A vCPU is *busy* while it is in
//! [`Vcpu::run`]. At the head of every pass of the run loop, where it holds neither a host address
//! of guest memory nor one of a block, it checks whether another vCPU wants to be alone, and waits if so.
//! Locks are taken in this order: `world`, then `translator`, then `protecting`. No vCPU waits for `world`, or
//! for a page to be protected, while it is busy.
//!
//! [`Vcpu::run`]: crate::Vcpu::run

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock};

use locks::Unpoisoned;

use crate::config::{Error, RamRegion};
use crate::inspect::{Inspection, Tracer};
use crate::memory::Physical;
use crate::memory::mirror::Mirror;
use crate::memory::ram::Ram;
use crate::peers::Peers;
use crate::techniques::{Technique, Techniques};
use crate::translate::Translator;
use crate::translate::unchain::Unchainer;
use crate::translate::views::Changes;
use crate::user::plan::{Plan, UserExecution};

/// The part of an [`Inspection`] that each vCPU has.
#[derive(Clone, Default)]
struct Watch {
    tracer: Option<Arc<dyn Tracer>>,
    history_entries: usize,
}

/// What the processors of one machine share.
pub struct VcpuGroup {
    pub(crate) peers: Peers,
    pub(crate) unchainer: Unchainer,
    pub(crate) code_changes: Changes,
    /// The mirror of the kernel's half of the linear address space, unless it is switched off.
    pub(crate) mirror: Option<Mirror>,
    /// There has been user code while SMAP was off ([`is_user_open`](crate::architectural::Architectural)).
    pub(crate) has_users: AtomicBool,
    /// How often something was taken away from page tables of a paravirtual guest.
    pub(crate) taken_away: AtomicU64,
    /// The techniques that blocks and helpers may use.
    pub(crate) techniques: Techniques,
    translator: Mutex<Translator>,
    /// Held by the vCPU that is alone.
    world: Mutex<()>,
    /// Pages that a vCPU is about to write-protect.
    protecting: Mutex<Vec<Physical>>,
    /// Signalled when one of `protecting` is done.
    protected: Condvar,
    /// How often the code cache was dropped.
    generation: AtomicU64,
    /// The inspection, for vCPUs that join.
    watch: OnceLock<Watch>,
    /// Keeps the memory mapped, unless the caller does.
    _memory: Option<host::GuestMemory>,
}

impl VcpuGroup {
    /// A group without vCPUs, in a guest's memory, which stays mapped as long as the group lives.
    ///
    /// # Errors
    ///
    /// [`Error`] when the host refuses executable memory.
    pub fn in_memory(memory: &host::GuestMemory) -> Result<Arc<Self>, Error> {
        Self::with_techniques(memory, None, Techniques::ALL)
    }

    /// The same with helper processes for direct execution. `helpers` were started for this
    /// memory, in which no guest is running yet. If the helpers turn out not to work, user code is
    /// translated, unless `execution` forbids that.
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
    /// Every region must be mapped, readable and writable, for as long as the group lives, and
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
            peers: Peers::new(Arc::new(Ram::new(regions, memory)), plan),
            unchainer: Unchainer::new(translator.cache.views()),
            code_changes: translator.cache.changes(),
            has_users: AtomicBool::new(false),
            taken_away: AtomicU64::new(0),
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

    /// Bytes of memory from `start` on, whole pages, are a ROM: what a vCPU writes there is an exit, as to a device. To
    /// be called once, before a vCPU runs.
    pub fn set_rom(&self, start: u64, bytes: u64) {
        self.peers.ram.set_rom(start..start.saturating_add(bytes));
    }

    /// Have the vCPUs that join from now on inspected. To be called once for each group, and before
    /// anything is translated; a second call does nothing.
    pub fn inspect(&self, inspection: Inspection) {
        let tracer = inspection.tracer.clone();
        let watch = Watch { tracer, history_entries: inspection.history_entries };
        if self.watch.set(watch).is_ok() && inspection.concerns_blocks() {
            self.translator().inspection = Some(Box::new(inspection));
        }
    }

    /// Tell the inspection of a range of host code that is filled later.
    pub(crate) fn tell_of_place(&self, bounds: (u64, u64), name: &'static str) {
        if let Some(inspection) = &mut self.translator().inspection {
            inspection.tell_of_place(bounds, name);
        }
    }

    /// The tracer of a vCPU, and the entries of its history.
    pub(crate) fn inspection(&self) -> (Option<Arc<dyn Tracer>>, usize) {
        let Watch { tracer, history_entries } = self.watch.get().cloned().unwrap_or_default();
        (tracer, history_entries)
    }

    /// All data about blocks. A panic of a thread that holds the lock does not make it wrong: each
    /// change is made in steps that leave it usable.
    pub(crate) fn translator(&self) -> MutexGuard<'_, Translator> {
        self.translator.lock().unpoisoned()
    }

    pub(crate) fn world(&self) -> MutexGuard<'_, ()> {
        self.world.lock().unpoisoned()
    }

    fn protecting(&self) -> MutexGuard<'_, Vec<Physical>> {
        self.protecting.lock().unpoisoned()
    }

    /// Whether a page is marked as having translations, and no vCPU can write it unseen.
    pub(crate) fn is_protected(&self, page: Physical) -> bool {
        self.peers.ram.has_code(page) && !self.protecting().contains(&page)
    }

    /// Wait until no vCPU is about to protect a page. The caller is not busy.
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
    /// bytes. Why no translation of old bytes survives:
    ///
    /// 1. The vCPU that translates marks the page, then compares the bytes that it has decoded with memory,
    ///    under the translator's lock, and enters the block under the same lock (translate/mod.rs).
    /// 2. The device's thread writes, executes a full fence, and then reads the mark. If the mark is not there, it is
    ///    set after the write can be seen, and the comparison sees the new bytes. If the mark is there, the thread
    ///    takes the lock: it drops a block that was entered before, and a later comparison sees the new bytes.
    ///
    /// Until then vCPUs may execute old translations, as a processor may execute old bytes until a
    /// device says that it is done; once it does, rule 3 holds. A copy of the page (user/copies.rs)
    /// goes with its translations.
    pub fn note_written(&self, at: u64, length: u64) {
        fence(Ordering::SeqCst);
        let end = at.saturating_add(length);
        let mut at = at;
        while at < end {
            let next = ((at | (crate::memory::PAGE_SIZE - 1)).saturating_add(1)).min(end);
            if self.peers.ram.has_code(Physical(at)) {
                self.translator().invalidate(Physical(at), (next - at) as usize, &self.peers);
            }
            at = next;
        }
    }

    /// `length` bytes at guest-physical `at` were given back to the host, and read as zeroes. To the vCPUs this is
    /// a device's write ([`Self::note_written`]).
    pub fn note_discarded(&self, at: u64, length: u64) {
        self.peers.ram.note_discarded(Physical(at), length);
        self.note_written(at, length);
    }

    /// Drop all blocks. The caller is alone.
    pub(crate) fn drop_blocks(&self) {
        self.translator().clear();
        self.unchainer.clear();
        self.peers.ram.clear_code();
        if let Some(plan) = &self.peers.plan {
            plan.copies.drop_all();
            let all = self.peers.iter().filter_map(|(_, peer)| peer.revocable.as_ref());
            all.for_each(|revocable| _ = revocable.revoke_copies());
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

/// The right to protect a page, which one vCPU has at a time.
pub(crate) struct Turn<'a> {
    group: &'a VcpuGroup,
    page: Physical,
}

impl<'a> Turn<'a> {
    /// None if another vCPU has it.
    pub(crate) fn take(group: &'a VcpuGroup, page: Physical) -> Option<Self> {
        let mut pages = group.protecting();
        if pages.contains(&page) {
            return None;
        }
        pages.push(page);
        Some(Self { group, page })
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.group.protecting().retain(|&page| page != self.page);
        self.group.protected.notify_all();
    }
}
