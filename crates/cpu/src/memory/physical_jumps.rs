//! A table of blocks of user code by physical address, which translated code looks up when the jump cache of the
//! current `SpaceTlb` (tlb.rs) does not have a target.
//!
//! The idea. A jump cache is empty in every new address space, but most of what a new process executes
//! has been translated for others, from the same page-cache pages, and such translations fit any
//! linear address (translate/mod.rs, invariant 6). So a jump that misses the jump cache is looked up
//! in two steps that need no Rust: from the linear page to the physical one, in the TLB's *fetch
//! entries*, which are an instruction TLB and flushed as one; and from the physical address to the
//! block, in this table. Only the first jump into each page of a process is served by Rust.
//!
//! 1. Each vCPU has a table of its own. The owner enters blocks, and holds the translator's lock meanwhile; a vCPU
//!    that drops a block removes it from all tables, as from the jump caches (vcpu_group.rs, rule 3).
//! 2. The table has blocks for CPL 3 and the modes that the jump caches are valid for, and is flushed when
//!    those are for a change of mode. The guest's own flushes do not concern it.
//! 3. A block that straddles two pages is not entered, because its second page may be another one in
//!    another address space. Nor is a block at physical address 0, which stands for an empty line.
//! 4. A block that is found here is not put into the jump cache, except now and then, by Rust: one in
//!    sixteen hits goes there ([`SAMPLE`]), so that frequent targets get into the jump cache soon.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Physical;
use super::zeroed::{Zero, Zeroed};

/// Lines of the table.
pub(crate) const LINES: usize = 1 << 16;

/// A bit for each of 64 finds in turn: set, if it is to be looked up by Rust all the same.
pub(crate) const SAMPLE: u64 = 0x0001_0001_0001_0001;

/// One line.
#[repr(C)]
pub(crate) struct Line {
    /// Minus the physical address of the block's first instruction.
    pub(crate) negative_tag: AtomicU64,
    /// Host address of the block's cold entry.
    pub(crate) target: AtomicU64,
    /// Host address of its entry with the canonical scratch registers spilled.
    pub(crate) canonical: AtomicU64,
    _padding: AtomicU64,
}

// SAFETY: integers in cells.
unsafe impl Zero for Line {}

/// One processor's table, as translated code sees it.
pub(crate) type Table = Zeroed<[Line; LINES]>;

/// The line for a physical address. Translated code computes the same.
fn line_of(at: Physical) -> usize {
    at.0.rotate_right(12).wrapping_add(at.0) as usize & (LINES - 1)
}

/// One processor's table.
pub(crate) struct PhysicalJumps {
    table: Arc<Table>,
}

impl PhysicalJumps {
    pub(crate) fn new() -> Self {
        Self { table: Arc::new(Zeroed::new()) }
    }

    /// For the other processors.
    pub(crate) fn table(&self) -> Arc<Table> {
        Arc::clone(&self.table)
    }

    /// Where translated code finds it.
    pub(crate) fn address(&self) -> u64 {
        self.table.address()
    }

    /// Enter a block; a block in its line is evicted.
    pub(crate) fn insert(&self, at: Physical, target: u64, canonical: u64) {
        if at.0 == 0 {
            return;
        }
        let line = &self.table[line_of(at)];
        line.target.store(target, Ordering::Relaxed);
        line.canonical.store(canonical, Ordering::Relaxed);
        line.negative_tag.store(at.0.wrapping_neg(), Ordering::Relaxed);
    }

    /// Forget every block.
    pub(crate) fn clear(&self) {
        self.table.clear();
    }
}

/// Remove a block from the table of any vCPU.
pub(crate) fn remove(table: &Table, at: Physical) {
    let tag = &table[line_of(at)].negative_tag;
    // A vCPU holds the translator's lock while it enters or drops blocks.
    if tag.load(Ordering::Relaxed) == at.0.wrapping_neg() {
        tag.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_removed_or_cleared_is_gone() {
        let jumps = PhysicalJumps::new();
        let tag = |at: u64| jumps.table[line_of(Physical(at))].negative_tag.load(Ordering::Relaxed);
        for at in [0x1000, 0x1234_5678] {
            jumps.insert(Physical(at), 1, 2);
            assert_eq!(tag(at), at.wrapping_neg());
            remove(&jumps.table, Physical(at + 1));
            assert_eq!(tag(at), at.wrapping_neg());
        }
        remove(&jumps.table, Physical(0x1000));
        assert_eq!((tag(0x1000), tag(0x1234_5678)), (0, 0x1234_5678_u64.wrapping_neg()));
        jumps.clear();
        assert_eq!(tag(0x1234_5678), 0);
    }

    #[test]
    fn nothing_is_entered_at_zero() {
        let jumps = PhysicalJumps::new();
        jumps.insert(Physical(0), 1, 2);
        assert_eq!(jumps.table[0].target.load(Ordering::Relaxed), 0);
    }
}
