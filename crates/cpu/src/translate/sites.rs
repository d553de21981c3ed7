//! Counts of accesses that crossed a page, by instruction: those with enough of them are translated with a
//! second way (crossing.rs).

use rustc_hash::{FxHashMap, FxHashSet};

use crate::memory::Physical;

/// Times that an instruction's operand crosses a page until the instruction is translated again, which costs
/// about as much as it saves by then.
const RIPE: u8 = 4;

/// Instructions that are counted, before all are forgotten.
const MAX_SITES: usize = 1 << 16;

/// Instructions of which operands have crossed pages, by physical address, and how often they did.
#[derive(Default)]
pub(super) struct Sites {
    pub(super) counts: FxHashMap<Physical, u8>,
    /// Those that are ripe, by page.
    pub(super) ripe: FxHashMap<Physical, FxHashSet<Physical>>,
}

impl Sites {
    /// An operand of the instruction at `at` has crossed a page; whether it is ripe.
    pub(super) fn note(&mut self, at: Physical) -> bool {
        if self.counts.len() == MAX_SITES {
            self.clear();
        }
        let count = self.counts.entry(at).or_insert(0);
        *count = count.saturating_add(1);
        if *count < RIPE {
            return false;
        }
        self.ripe.entry(at.page()).or_default().insert(at);
        true
    }

    pub(super) fn clear(&mut self) {
        self.counts.clear();
        self.ripe.clear();
    }
}
