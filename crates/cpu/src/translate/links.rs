//! Chaining: which blocks the direct-jump slots of other blocks are linked to.
//!
//! A slot leads out to Rust until its target is known, and then to the target's block, for as long as
//! that lives: a block knows the slots that lead to it, as a list through the slots themselves, because
//! there are many, and most blocks have one or two.

use super::block::Block;
use super::emit::displacement;
use super::host_code::HostCode;
use super::jump_slot::{JumpSlot, NONE};
use super::scratch::{CANONICAL, Chosen};
use super::{Mode, Translator};
use crate::memory::{Linear, Physical};

impl Translator {
    /// Unlink the slots of a list that begins with `first`: those to a block that is dropped.
    pub(super) fn unlink_all(&mut self, first: u32) {
        let mut number = first;
        while number != NONE {
            self.unlink(number);
            let slot = &mut self.slots[number as usize];
            slot.to = NONE;
            number = std::mem::replace(&mut slot.next, NONE);
        }
    }

    /// Have a slot lead out to Rust again.
    pub(super) fn unlink(&mut self, number: u32) {
        let slot = self.slots[number as usize];
        let start = self.cache.start();
        self.direct(slot.cold, start + u64::from(slot.out));
        match slot.cross_page {
            Some(link) => self.direct(slot.warm, start + u64::from(link.unlinked)),
            None if slot.warm != 0 => self.direct(slot.warm, start + u64::from(slot.convert)),
            None => {}
        }
    }

    /// Take a slot from the list of the block that it was linked to.
    fn leave_incoming(&mut self, number: u32) {
        let JumpSlot { to, next, .. } = self.slots[number as usize];
        if to == NONE {
            return;
        }
        let (mut before, mut at) = (NONE, self.blocks[to as usize].incoming);
        while at != number {
            if at == NONE {
                return;
            }
            (before, at) = (at, self.slots[at as usize].next);
        }
        match before {
            NONE => self.blocks[to as usize].incoming = next,
            _ => self.slots[before as usize].next = next,
        }
    }

    /// Have the jump whose displacement is at this offset in the code cache lead to a host address.
    pub(super) fn direct(&mut self, at: u32, target: HostCode) {
        let at = self.cache.start() + u64::from(at);
        self.cache.patch(at, displacement(at, target));
    }

    /// Whether a slot leads to a plain block.
    pub(crate) fn slot_is_plain(&self, number: u32) -> bool {
        self.slots[number as usize].plain
    }

    /// The guest address that a slot leads to, in this page if it is relocatable.
    pub(crate) fn slot_target(&self, number: u32, code_page: Linear) -> Linear {
        let slot = self.slots[number as usize];
        self.blocks[slot.block as usize].key.relocated(slot.target, code_page)
    }

    /// The scratch registers that what a slot leads to may take over: of a block in the same page (scratch.rs).
    pub(super) fn chosen_before(&self, slot: u32) -> Option<Chosen> {
        let slot = self.slots.get(slot as usize).filter(|slot| slot.cross_page.is_none())?;
        let Block { scratch, inherited, .. } = self.blocks.get(slot.block as usize)?;
        Some(Chosen { scratch: *scratch, inherited: *inherited })
    }

    /// Let the slot lead to the block at `target`, if that is sound (invariant 4). `page` is where
    /// [`linkable_page`](crate::vcpu::Vcpu::linkable_page) has found it. Since `target` was, another processor may have
    /// dropped the block: it may be entered once more, but nothing must lead to it.
    pub(crate) fn link(&mut self, number: u32, target: HostCode, page: Option<Physical>) -> bool {
        let Some(slot) = self.slots.get(number as usize).copied() else { return false };
        if slot.cold == 0 {
            return false;
        }
        let Some(to) = self.block_entered_at(target) else { return false };
        let (from, block) = (&self.blocks[slot.block as usize], &self.blocks[to as usize]);
        if !from.alive || !block.alive {
            return false;
        }
        let place = block.key.physical;
        let same_page = from.key.physical.page() == place.page();
        let mode = Mode { user_open: slot.user_open, ..from.key.mode };
        let fits = block.second.is_none() && mode == block.key.mode;
        let admitted = match slot.cross_page {
            None => fits && same_page,
            Some(_) => {
                let page = page.filter(|_| fits && block.key.linear == slot.target);
                self.admit_cross_page(number, page, place)
            }
        };
        if !admitted {
            return false;
        }
        let (from, block) = (&self.blocks[slot.block as usize], &self.blocks[to as usize]);
        if slot.warm != 0 && from.scratch == block.scratch {
            let loaded = from.live.and(block.live);
            let entry = loaded.unwrap_or(block.warm);
            self.direct(slot.warm, entry);
        } else if slot.warm != 0 && from.scratch == Some(CANONICAL) {
            let entry = block.canonical;
            self.direct(slot.warm, entry);
        } else {
            let entry = if slot.loaded { block.cold } else { block.canonical };
            self.direct(slot.cold, entry);
            if slot.warm != 0 {
                self.direct(slot.warm, self.cache.start() + u64::from(slot.convert));
            }
        }
        if slot.to != to {
            self.leave_incoming(number);
            let first = std::mem::replace(&mut self.blocks[to as usize].incoming, number);
            let slot = &mut self.slots[number as usize];
            (slot.to, slot.next) = (to, first);
        }
        true
    }
}
