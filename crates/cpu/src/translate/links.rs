//! Gates: the direct jumps out of blocks, and what they are linked to.
//!
//! A gate leads out to Rust until its target is known, and then to the target's block, for as long as
//! that lives: a block knows the gates that lead to it, as a list through the gates themselves, because
//! there are many, and most blocks have one or two.

use super::emit::displacement;
use super::gate::{Gate, NONE};
use super::scratch::CANONICAL;
use super::{Mode, Translator};
use crate::memory::Physical;

impl Translator {
    /// Unlink the gates of a list that begins with `first`: those to a block that is dropped.
    pub(super) fn unlink_all(&mut self, first: u32) {
        let mut number = first;
        while number != NONE {
            self.unlink(number);
            let gate = &mut self.gates[number as usize];
            gate.to = NONE;
            number = std::mem::replace(&mut gate.next, NONE);
        }
    }

    /// Have a gate lead out to Rust again.
    pub(super) fn unlink(&mut self, number: u32) {
        let gate = self.gates[number as usize];
        let start = self.cache.start();
        self.direct(gate.cold, start + u64::from(gate.out));
        match gate.far {
            Some(far) => self.direct(gate.warm, start + u64::from(far.unlinked)),
            None if gate.warm != 0 => self.direct(gate.warm, start + u64::from(gate.convert)),
            None => {}
        }
    }

    /// Take a gate from the list of the block that it was linked to.
    fn leave_incoming(&mut self, number: u32) {
        let Gate { to, next, .. } = self.gates[number as usize];
        if to == NONE {
            return;
        }
        let (mut before, mut at) = (NONE, self.blocks[to as usize].incoming);
        while at != number {
            if at == NONE {
                return;
            }
            (before, at) = (at, self.gates[at as usize].next);
        }
        match before {
            NONE => self.blocks[to as usize].incoming = next,
            _ => self.gates[before as usize].next = next,
        }
    }

    /// Have the jump whose displacement is at this offset in the code cache lead to a host address.
    pub(super) fn direct(&mut self, at: u32, target: u64) {
        let at = self.cache.start() + u64::from(at);
        self.cache.patch(at, displacement(at, target));
    }

    /// Whether a gate leads to a plain block.
    pub(crate) fn gate_is_plain(&self, number: u32) -> bool {
        self.gates[number as usize].plain
    }

    /// The guest address that a gate leads to, in this page if it is relocatable.
    pub(crate) fn gate_target(&self, number: u32, code_page: u64) -> u64 {
        let gate = self.gates[number as usize];
        self.blocks[gate.block as usize].key.relocated(gate.target, code_page)
    }

    /// Let the gate lead to the block at `target`, if that is sound (invariant 4). `page` is where
    /// [`far_page`](crate::vcpu::Vcpu::far_page) has found it. Since `target` was, another processor may have
    /// dropped the block: it may be entered once more, but nothing must lead to it.
    pub(crate) fn link(&mut self, number: u32, target: u64, page: Option<Physical>) -> bool {
        let Some(gate) = self.gates.get(number as usize).copied() else { return false };
        if gate.cold == 0 {
            return false;
        }
        let Some(to) = self.block_entered_at(target) else { return false };
        let (from, block) = (&self.blocks[gate.block as usize], &self.blocks[to as usize]);
        if !from.alive || !block.alive {
            return false;
        }
        let place = Physical(block.key.physical);
        let same_page = Physical(from.key.physical).page() == place.page();
        let mode = Mode { user_open: gate.user_open, ..from.key.mode };
        let fits = block.second.is_none() && mode == block.key.mode;
        let admitted = match gate.far {
            None => fits && same_page,
            Some(_) => {
                let page = page.filter(|_| fits && block.key.linear == gate.target);
                self.admit_far(number, page, place)
            }
        };
        if !admitted {
            return false;
        }
        let (from, block) = (&self.blocks[gate.block as usize], &self.blocks[to as usize]);
        if gate.warm != 0 && from.scratch == block.scratch {
            let loaded = from.live.and(block.live);
            let entry = loaded.unwrap_or(block.warm);
            self.direct(gate.warm, entry);
        } else if gate.warm != 0 && from.scratch == Some(CANONICAL) {
            let entry = block.canonical;
            self.direct(gate.warm, entry);
        } else {
            let entry = if gate.loaded { block.cold } else { block.canonical };
            self.direct(gate.cold, entry);
            if gate.warm != 0 {
                self.direct(gate.warm, self.cache.start() + u64::from(gate.convert));
            }
        }
        if gate.to != to {
            self.leave_incoming(number);
            let first = std::mem::replace(&mut self.blocks[to as usize].incoming, number);
            let gate = &mut self.gates[number as usize];
            (gate.to, gate.next) = (to, first);
        }
        true
    }
}
