//! Unchaining: how a signal handler gets a vCPU out of chained blocks.
//!
//! A block is left through its *slots*: direct-jump slots (jump_slot.rs), and five-byte `nop`s before
//! the jumps whose target is computed. A chained slot leads to the next block (or, if it is not linked
//! yet, out to Rust). An unchained slot leads out to Rust with precise state. The signal handler
//! unchains all slots of the block that the signal has interrupted. It allocates nothing and touches
//! only the tables in this file and the code itself.
//!
//! All vCPUs share the tables, and one vCPU thread may add a block while the handler runs on another
//! vCPU's thread: the tables never move, they grow at the end only, and the count is stored last.
//! Another vCPU that comes to an unchained slot leaves for Rust and goes on. A vCPU thread may chain a
//! slot again while a third vCPU is still to be stopped by it; the kick of that vCPU is repeated until
//! the vCPU has seen it.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::host_code::HostCode;
use super::views::{Patch, Views};
use crate::context::Context;
use crate::memory::zeroed::Zeroed;

/// A slot that the signal handler can unchain, and how.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Unchaining {
    /// A `jmp rel32`: address of the displacement, and the displacement that leads out.
    Jump { at: HostCode, displacement: i32 },
    /// A five-byte `nop` that becomes `jmp rel32`.
    Nop { at: HostCode, displacement: i32 },
}

/// The most blocks in the tables.
const MAX_SPANS: usize = 1 << 20;

/// The most slots in the tables.
const MAX_UNCHAININGS: usize = 1 << 23;

/// Marks a `nop` in a packed [`Unchaining`].
const IS_NOP: u64 = 1 << 31;

/// The handler's tables.
pub(crate) struct Unchainer {
    /// The code cache's; the tables hold offsets from its start.
    views: Views,
    /// Two words for each block: start and end; index of its first slot and their number.
    spans: Zeroed<[AtomicU64; 2 * MAX_SPANS]>,
    span_count: AtomicUsize,
    /// One word for each slot: displacement, kind, offset in the code cache.
    unchainings: Zeroed<[AtomicU64; MAX_UNCHAININGS]>,
    unchaining_count: AtomicUsize,
}

fn pair(high: u64, low: u64) -> u64 {
    high << 32 | low
}

impl Unchainer {
    /// Tables for a code cache.
    pub(crate) fn new(views: Views) -> Self {
        Self {
            views,
            spans: Zeroed::new(),
            span_count: AtomicUsize::new(0),
            unchainings: Zeroed::new(),
            unchaining_count: AtomicUsize::new(0),
        }
    }

    /// Whether another block fits, with at most `unchainings` slots.
    pub(crate) fn has_room(&self, unchainings: usize) -> bool {
        self.span_count.load(Ordering::Relaxed) < MAX_SPANS
            && self.unchaining_count.load(Ordering::Relaxed) + unchainings <= MAX_UNCHAININGS
    }

    fn pack(&self, unchaining: Unchaining) -> u64 {
        match unchaining {
            Unchaining::Jump { at, displacement } => {
                pair(u64::from(displacement as u32), at - self.views.start())
            }
            Unchaining::Nop { at, displacement } => {
                pair(u64::from(displacement as u32), at - self.views.start()) | IS_NOP
            }
        }
    }

    /// Add a block, which lies after all others. One thread at a time, and only with room.
    pub(crate) fn add(&self, start: HostCode, end: HostCode, unchainings: &[Unchaining]) {
        let first = self.unchaining_count.load(Ordering::Relaxed);
        for (slot, &unchaining) in self.unchainings[first..].iter().zip(unchainings) {
            slot.store(self.pack(unchaining), Ordering::Relaxed);
        }
        self.unchaining_count.store(first + unchainings.len(), Ordering::Relaxed);
        let (number, base) = (self.span_count.load(Ordering::Relaxed), self.views.start());
        let words = [pair(start - base, end - base), pair(first as u64, unchainings.len() as u64)];
        for (slot, word) in self.spans[2 * number..].iter().zip(words) {
            slot.store(word, Ordering::Relaxed);
        }
        self.span_count.store(number + 1, Ordering::Release);
    }

    /// Forget everything: the code cache was dropped. No vCPU is in translated code.
    pub(crate) fn clear(&self) {
        self.span_count.store(0, Ordering::Release);
        self.unchaining_count.store(0, Ordering::Relaxed);
    }

    /// The slots of the block that contains an offset in the code cache.
    fn unchainings_at(&self, offset: u64) -> &[AtomicU64] {
        let (mut low, mut high) = (0, self.span_count.load(Ordering::Acquire));
        while low < high {
            let middle = usize::midpoint(low, high);
            if self.spans[2 * middle].load(Ordering::Relaxed) >> 32 <= offset {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        let Some(number) = low.checked_sub(1) else { return &[] };
        if offset >= self.spans[2 * number].load(Ordering::Relaxed) & 0xffff_ffff {
            return &[];
        }
        let place = self.spans[2 * number + 1].load(Ordering::Relaxed);
        let (first, count) = ((place >> 32) as usize, (place & 0xffff_ffff) as usize);
        self.unchainings.get(first..first + count).unwrap_or(&[])
    }

    /// Unchain the slots of the block that contains host address `rip`, and note in `context` which
    /// must be chained again. Async-signal-safe.
    pub(crate) fn unchain(&self, rip: HostCode, context: &mut Context) {
        for unchaining in self.unchainings_at(rip.0.wrapping_sub(self.views.start().0)) {
            let word = unchaining.load(Ordering::Relaxed);
            let displacement = (word >> 32) as i32;
            let at = self.views.start() + (word & (IS_NOP - 1));
            let patch = if word & IS_NOP == 0 {
                Patch::Displacement(displacement)
            } else if context.note_unchained(at) {
                Patch::Jump(displacement)
            } else {
                continue;
            };
            // SAFETY: the tables hold places in the code cache: displacements of jumps, and, as IS_NOP says, five-byte
            // instructions.
            unsafe { self.views.patch(at, patch) };
        }
    }

    /// Chain the slot at `at` again, which [`Self::unchain`] has noted.
    ///
    /// # Safety
    ///
    /// The block of the slot has not been dropped since.
    pub(crate) unsafe fn rechain(&self, at: HostCode) {
        // SAFETY: what was noted is a five-byte instruction, by the caller's promise still.
        unsafe { self.views.patch(at, Patch::Nop) };
    }
}
