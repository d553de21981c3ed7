//! The vCPUs of one machine as they see each other: which of them to interrupt, and what to revoke from them, when a
//! page or a block changes.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use crate::config::Error;
use crate::kick::KickState;
use crate::memory::physical_jumps;
use crate::memory::ram::{MAX_VCPUS, Ram, Writers};
use crate::memory::tlb::{Entries, Shared};
use crate::memory::{Linear, Physical};
use crate::user::plan::Plan;
use crate::user::revocable::Revocable;

/// A vCPU as the other vCPUs of its machine see it.
pub(crate) struct Peer {
    pub(crate) kick: Arc<KickState>,
    pub(crate) tlb: Shared,
    /// What its helper processes have mapped that must go when a page changes.
    pub(crate) revocable: Option<Arc<Revocable>>,
}

impl Peer {
    /// Revoke write access to a page, which is at `host`: the write tags in the vCPU's TLB and its helpers' mappings.
    /// Whether there was any.
    pub(crate) fn revoke(&self, writers: Writers, page: Physical, host: *mut u8) -> bool {
        let mut any = false;
        let mut revoke = |entries: &Entries, index| {
            if entries.may_write(index, host) {
                entries.revoke_write(index, host);
                any = true;
            }
        };
        for entries in &self.tlb.entries {
            if writers.anywhere() {
                (0..crate::memory::tlb::ENTRIES).for_each(|index| revoke(entries, index));
            } else {
                writers.indices().for_each(|index| revoke(entries, index));
            }
        }
        any | self.revocable.as_ref().is_some_and(|revocable| revocable.revoke_write(page))
    }
}

/// All vCPUs of one machine, and what else a change of guest memory concerns.
pub(crate) struct Peers {
    pub(crate) ram: Arc<Ram>,
    /// How user code is executed directly, if it may be.
    pub(crate) plan: Option<Arc<Plan>>,
    /// How often all jump caches were flushed.
    pub(crate) dropped_jumps: AtomicU64,
    slots: [OnceLock<Peer>; MAX_VCPUS],
    count: AtomicUsize,
}

impl Peers {
    /// Without any vCPU yet.
    pub(crate) fn new(ram: Arc<Ram>, plan: Option<Arc<Plan>>) -> Self {
        Self {
            ram,
            plan,
            dropped_jumps: AtomicU64::new(0),
            slots: [const { OnceLock::new() }; MAX_VCPUS],
            count: AtomicUsize::new(0),
        }
    }

    /// Each vCPU with its index.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, &Peer)> {
        let filled = self.slots.iter().enumerate();
        filled.filter_map(|(number, slot)| slot.get().map(|peer| (number, peer)))
    }

    /// Add a vCPU; its index.
    ///
    /// # Errors
    ///
    /// [`Error::TooManyProcessors`].
    pub(crate) fn join(
        &self,
        kick: &Arc<KickState>,
        tlb: Shared,
        revocable: Option<Arc<Revocable>>,
    ) -> Result<usize, Error> {
        let number = self.count.fetch_add(1, Ordering::SeqCst);
        let slot = self.slots.get(number).ok_or(Error::TooManyProcessors(MAX_VCPUS))?;
        let taken = slot.set(Peer { kick: Arc::clone(kick), tlb, revocable }).is_err();
        assert!(!taken, "each index is given once");
        Ok(number)
    }

    /// Remove one linear address from every jump cache. The caller holds the translator's lock.
    pub(crate) fn remove_jump(&self, at: Linear) {
        let tlbs = self.iter().flat_map(|(_, peer)| &peer.tlb.entries);
        tlbs.for_each(|entries| entries.remove_jump(at));
    }

    /// Remove the block of user code at a physical address; likewise.
    pub(crate) fn remove_physical_jump(&self, at: Physical) {
        self.iter().for_each(|(_, peer)| physical_jumps::remove(&peer.tlb.blocks, at));
    }

    /// A page is about to be written, or has lost its last translation: no helper executes a copy of it
    /// from here on, in the sense of rule 3 (vcpu_group.rs). The caller holds the translator's lock.
    pub(crate) fn drop_copy(&self, page: Physical) {
        if !self.plan.as_ref().is_some_and(|plan| plan.copies.drop_copy(page)) {
            return;
        }
        for (_, peer) in self.iter() {
            if peer.revocable.as_ref().is_some_and(|revocable| revocable.revoke_copy(page)) {
                peer.kick.ask_to_look();
            }
        }
    }

    /// Have every vCPU flush its jump caches: the calling one before it executes anything, the
    /// others soon, in the sense of rule 3 (vcpu_group.rs).
    pub(crate) fn remove_all_jumps(&self) {
        self.dropped_jumps.fetch_add(1, Ordering::SeqCst);
        self.iter().for_each(|(_, peer)| peer.kick.ask_to_look());
    }
}
