//! Stopping translated code from a signal handler.
//!
//! A *gate* is a place where control leaves a block. Open, it lets control through to the next
//! block (or, not linked yet, out to Rust); closed, it leads out to Rust with precise state. The
//! handler closes all gates of the block it interrupted. It allocates nothing and touches only the
//! tables here and the code itself.
//!
//! The tables are shared by all processors, and one of them may add a block while the handler runs
//! on another's thread: they never move, they grow at the end only, and the count is stored last.
//! Another processor that runs through a closed gate comes out to Rust and goes on; whoever opens
//! it again may open it too early for a third, whose kick is repeated until it has been heard.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::views::Views;
use crate::context::Context;
use crate::memory::zeroed::Zeroed;

/// A place that can be closed, and how.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Closing {
    /// A `jmp rel32`: address of the displacement, and the displacement that leads out.
    Jump { at: u64, displacement: i32 },
    /// A five-byte `nop` that becomes `jmp rel32`.
    Nop { at: u64, displacement: i32 },
}

/// The five-byte `nop` (SDM 2B "NOP").
pub(crate) const NOP: [u8; 5] = [0x0f, 0x1f, 0x44, 0x00, 0x00];

/// Blocks in the tables.
const MAX_SPANS: usize = 1 << 20;

/// Places in the tables.
const MAX_CLOSINGS: usize = 1 << 23;

/// Marks a `nop` in a packed closing.
const IS_NOP: u64 = 1 << 31;

/// The handler's tables.
pub(crate) struct Stopper {
    /// The code cache's; the tables hold offsets from its start.
    views: Views,
    /// Two words for each block: start and end; first closing and number of closings.
    spans: Zeroed<[AtomicU64; 2 * MAX_SPANS]>,
    span_count: AtomicUsize,
    /// One word for each: displacement, kind, place.
    closings: Zeroed<[AtomicU64; MAX_CLOSINGS]>,
    closing_count: AtomicUsize,
}

fn pair(high: u64, low: u64) -> u64 {
    high << 32 | low
}

impl Stopper {
    /// Tables for a code cache.
    pub(crate) fn new(views: Views) -> Self {
        Self {
            views,
            spans: Zeroed::new(),
            span_count: AtomicUsize::new(0),
            closings: Zeroed::new(),
            closing_count: AtomicUsize::new(0),
        }
    }

    /// Whether another block fits, however many places it has (at most `closings`).
    pub(crate) fn has_room(&self, closings: usize) -> bool {
        self.span_count.load(Ordering::Relaxed) < MAX_SPANS
            && self.closing_count.load(Ordering::Relaxed) + closings <= MAX_CLOSINGS
    }

    fn pack(&self, closing: Closing) -> u64 {
        match closing {
            Closing::Jump { at, displacement } => {
                pair(u64::from(displacement as u32), at - self.views.start())
            }
            Closing::Nop { at, displacement } => {
                pair(u64::from(displacement as u32), at - self.views.start()) | IS_NOP
            }
        }
    }

    /// Add a block, which lies after all others. One thread at a time, and only with room.
    pub(crate) fn add(&self, start: u64, end: u64, closings: &[Closing]) {
        let first = self.closing_count.load(Ordering::Relaxed);
        for (slot, &closing) in self.closings[first..].iter().zip(closings) {
            slot.store(self.pack(closing), Ordering::Relaxed);
        }
        self.closing_count.store(first + closings.len(), Ordering::Relaxed);
        let (number, base) = (self.span_count.load(Ordering::Relaxed), self.views.start());
        let words = [pair(start - base, end - base), pair(first as u64, closings.len() as u64)];
        for (slot, word) in self.spans[2 * number..].iter().zip(words) {
            slot.store(word, Ordering::Relaxed);
        }
        self.span_count.store(number + 1, Ordering::Release);
    }

    /// Forget everything: the code cache was dropped. Nobody is in translated code.
    pub(crate) fn clear(&self) {
        self.span_count.store(0, Ordering::Release);
        self.closing_count.store(0, Ordering::Relaxed);
    }

    /// The closings of the block that contains an offset in the code cache.
    fn closings_at(&self, offset: u64) -> &[AtomicU64] {
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
        self.closings.get(first..first + count).unwrap_or(&[])
    }

    /// Close the gates of the block that contains host address `rip`, and note in `context` which
    /// must be opened again. Async-signal-safe.
    pub(crate) fn close_gates(&self, rip: u64, context: &mut Context) {
        for closing in self.closings_at(rip.wrapping_sub(self.views.start())) {
            let word = closing.load(Ordering::Relaxed);
            let displacement = (word >> 32) as i32;
            let at = self.views.start() + (word & (IS_NOP - 1));
            if word & IS_NOP == 0 {
                // SAFETY: the tables hold displacements of jumps in the code cache.
                unsafe { self.views.patch(at, displacement.to_le_bytes()) };
            } else if context.note_closed(at) {
                let [a, b, c, d] = displacement.to_le_bytes();
                // SAFETY: the tables hold five-byte instructions in the code cache.
                unsafe { self.views.patch(at, [0xe9, a, b, c, d]) };
            }
        }
    }

    /// Open the gate at `at` again, which [`Self::close_gates`] has noted.
    ///
    /// # Safety
    ///
    /// Nothing has dropped the gate since.
    pub(crate) unsafe fn open_gate(&self, at: u64) {
        // SAFETY: what was noted is a five-byte instruction, by the caller's promise still.
        unsafe { self.views.patch(at, NOP) };
    }
}
