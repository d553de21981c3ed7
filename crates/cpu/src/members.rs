//! The processors of one machine as each other sees them: whom to ask, and what to take from them, when a page or a
//! block changes.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use crate::config::Error;
use crate::kick::KickState;
use crate::memory::physical_jumps;
use crate::memory::ram::{MAX_MEMBERS, Ram, Writers};
use crate::memory::tlb::{Entries, Shared};
use crate::memory::{Linear, Physical};
use crate::user::plan::Plan;
use crate::user::revocable::Revocable;

/// A processor, as the others see it.
pub(crate) struct Member {
    pub(crate) kick: Arc<KickState>,
    pub(crate) tlb: Shared,
    /// What its helper processes can write.
    pub(crate) revocable: Option<Arc<Revocable>>,
}

impl Member {
    /// Take back its write tags, and its helpers' mappings, for a page, which is at `host`; whether
    /// there were any.
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

/// All processors of one machine, and what a change of guest memory concerns besides them.
pub(crate) struct Members {
    pub(crate) ram: Arc<Ram>,
    /// How user code is run directly, if it may be.
    pub(crate) plan: Option<Arc<Plan>>,
    /// How often all lines of all jump caches had to go.
    pub(crate) dropped_jumps: AtomicU64,
    slots: [OnceLock<Member>; MAX_MEMBERS],
    count: AtomicUsize,
}

impl Members {
    /// No processor yet.
    pub(crate) fn new(ram: Arc<Ram>, plan: Option<Arc<Plan>>) -> Self {
        Self {
            ram,
            plan,
            dropped_jumps: AtomicU64::new(0),
            slots: [const { OnceLock::new() }; MAX_MEMBERS],
            count: AtomicUsize::new(0),
        }
    }

    /// Each with its number.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, &Member)> {
        let filled = self.slots.iter().enumerate();
        filled.filter_map(|(number, slot)| slot.get().map(|member| (number, member)))
    }

    /// Take in another processor; its number.
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
        let slot = self.slots.get(number).ok_or(Error::TooManyProcessors(MAX_MEMBERS))?;
        let taken = slot.set(Member { kick: Arc::clone(kick), tlb, revocable }).is_err();
        assert!(!taken, "each number is given once");
        Ok(number)
    }

    /// Forget one linear address in every jump cache; the caller holds the translator.
    pub(crate) fn remove_jump(&self, at: Linear) {
        let sets = self.iter().flat_map(|(_, member)| &member.tlb.entries);
        sets.for_each(|entries| entries.remove_jump(at));
    }

    /// Forget the block of user code at a physical address; likewise.
    pub(crate) fn remove_physical_jump(&self, at: Physical) {
        self.iter().for_each(|(_, member)| physical_jumps::remove(&member.tlb.blocks, at));
    }

    /// A page is about to be written, or has lost its last translation: nobody executes a copy of it
    /// from here on, as rule 3 has it. The caller holds the translator.
    pub(crate) fn drop_copy(&self, page: Physical) {
        if !self.plan.as_ref().is_some_and(|plan| plan.copies.drop_copy(page)) {
            return;
        }
        for (_, member) in self.iter() {
            if member.revocable.as_ref().is_some_and(|revocable| revocable.revoke_copy(page)) {
                member.kick.ask_to_look();
            }
        }
    }

    /// Have every processor forget all of its jump caches: ours before it executes anything, the
    /// others soon, as rule 3 has it.
    pub(crate) fn remove_all_jumps(&self) {
        self.dropped_jumps.fetch_add(1, Ordering::SeqCst);
        self.iter().for_each(|(_, member)| member.kick.ask_to_look());
    }
}
