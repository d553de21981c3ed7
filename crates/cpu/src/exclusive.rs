//! How one vCPU executes alone: the other vCPUs of its group wait at the heads of their run loops (QEMU:
//! `start_exclusive`). [`crate::vcpu_group`] says what for (4 and 5).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::memory::Physical;
use crate::memory::ram::Writers;
use crate::vcpu::Vcpu;
use crate::vcpu_group::Turn;

impl Vcpu {
    /// Mark the vCPU busy, as soon as no other vCPU wants to be alone.
    pub(crate) fn become_busy(&mut self) {
        loop {
            self.arch.kick.set_busy(true);
            if !self.arch.kick.must_wait() {
                break;
            }
            self.arch.kick.set_busy(false);
            drop(self.arch.group.world());
        }
        let generation = self.arch.group.generation();
        if generation != self.generation {
            self.generation = generation;
            self.forget_blocks();
        }
        self.heed_flush();
    }

    /// Call `act`, which stores to guest memory between two runs, as a part of a run: who revokes write access waits
    /// until it is done. The caller may hold a lock, unless somebody takes it who is alone.
    pub(crate) fn busily<T>(&mut self, act: impl FnOnce(&mut Self) -> T) -> T {
        let was_busy = self.arch.kick.is_busy();
        if !was_busy {
            self.become_busy();
        }
        let result = act(self);
        self.arch.kick.set_busy(was_busy);
        result
    }

    /// If another vCPU wants to be alone, wait until it has been.
    #[inline]
    pub(crate) fn checkpoint(&mut self) {
        self.arch.kick.has_looked();
        self.heed_switch_of_spaces();
        if self.arch.kick.take_consider() {
            self.look_by_timer();
        }
        if self.arch.kick.must_wait() {
            self.arch.kick.set_busy(false);
            self.become_busy();
        }
    }

    /// Call `act` while no other vCPU runs. The caller holds no host address of guest memory or
    /// of a block, and no lock.
    pub(crate) fn alone<T>(&mut self, act: impl FnOnce(&mut Self) -> T) -> T {
        let was_busy = self.arch.kick.is_busy();
        self.arch.kick.set_busy(false);
        let group = Arc::clone(&self.arch.group);
        let world = group.world();
        let others = || group.peers.iter().filter(|&(number, _)| number != self.arch.vcpu_index);
        others().for_each(|(_, other)| other.kick.ask_to_wait());
        for (_, other) in others() {
            while other.kick.is_busy() {
                std::thread::yield_now();
            }
        }
        let result = act(self);
        let others = group.peers.iter().filter(|&(number, _)| number != self.arch.vcpu_index);
        others.for_each(|(_, other)| other.kick.let_go());
        drop(world);
        if was_busy {
            self.become_busy();
        }
        result
    }

    /// Flush the jump caches if another thread has asked for it.
    #[inline]
    pub(crate) fn heed_dropped_jumps(&mut self) {
        let dropped = self.arch.group.peers.dropped_jumps.load(Ordering::SeqCst);
        if dropped != self.dropped_jumps {
            self.dropped_jumps = dropped;
            self.forget_jumps();
        }
    }

    /// Flush what is cached of the targets of jumps and returns.
    fn forget_jumps(&mut self) {
        self.arch.tlb.drop_all_jumps();
        self.arch.context.forget_returns();
    }

    /// Forget every block: the code cache was dropped, or blocks now mean something else.
    pub(crate) fn forget_blocks(&mut self) {
        self.arch.tlb.physical_jumps.clear();
        self.forget_jumps();
    }

    /// Drop all translations, for every vCPU.
    pub(crate) fn drop_blocks(&mut self) {
        self.arch.statistics.cache_drops += 1;
        self.alone(|cpu| cpu.arch.group.drop_blocks());
        self.forget_blocks();
        self.generation = self.arch.group.generation();
    }

    /// Make sure that no translated code can write a page, and mark it as having translations. As
    /// [`Self::alone`] for what the caller may hold.
    pub(crate) fn protect(&mut self, page: Physical) {
        let group = Arc::clone(&self.arch.group);
        let Some(_turn) = Turn::take(&group, page) else {
            self.arch.kick.set_busy(false);
            group.await_protected(page);
            return self.become_busy();
        };
        self.arch.ram.set_code(page, true);
        let writers = self.arch.ram.take_writers(page);
        let Some(host) = self.arch.ram.host(page) else { return };
        if let Some(mirror) = &group.mirror {
            mirror.write_protect(page);
        }
        self.revoke(page, writers, host);
    }

    /// Revoke write access to a page, which is at `host`, from those that have had it. No vCPU stores to the page any
    /// more by what it has looked up before. As [`Self::alone`] for what the caller may hold.
    pub(crate) fn revoke(&mut self, page: Physical, writers: Writers, host: *mut u8) {
        if writers.is_empty() {
            return;
        }
        let group = Arc::clone(&self.arch.group);
        let mut others = false;
        for (number, peer) in group.peers.iter() {
            if writers.includes(number) && peer.revoke(writers, page, host) {
                others |= number != self.arch.vcpu_index;
            }
        }
        if others {
            // They may be about to store what they have looked up.
            self.alone(|_| ());
        }
    }
}
