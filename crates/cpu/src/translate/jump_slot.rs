//! Direct-jump slots: the jumps out of blocks that the translator patches to chain a block to the next one
//! (links.rs), and the pages that cross-page links lead to (cross_page.rs).

use rustc_hash::{FxHashMap, FxHashSet};

use super::host_code::HostCode;
use crate::memory::{Linear, Physical};

/// The number of no block, or of no slot.
pub(super) const NONE: u32 = u32::MAX;

/// A direct-jump slot: a direct jump out of a block, which is patched to chain and unchain it.
#[derive(Debug, Clone, Copy)]
pub(super) struct JumpSlot {
    pub(super) block: u32,
    /// Linear address of the guest instruction it leads to.
    pub(super) target: Linear,
    /// Offsets in the code cache, as in [`SlotPlaces`].
    pub(super) warm: u32,
    pub(super) cold: u32,
    pub(super) convert: u32,
    pub(super) out: u32,
    pub(super) loaded: bool,
    /// Leads to a plain block.
    pub(super) plain: bool,
    /// [`Mode::user_open`](super::key::Mode) where it leads to.
    pub(super) user_open: bool,
    /// Leads to another page (cross_page.rs).
    pub(super) cross_page: Option<CrossPageLink>,
    /// The block that the slot is linked to, or was before it was unchained; and the next slot that is
    /// linked to the same block.
    pub(super) to: u32,
    pub(super) next: u32,
}

/// The host addresses of a slot; 0 for those that it does not have.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct SlotPlaces {
    /// Displacement of the jump with the block's scratch registers spilled.
    pub(super) warm: HostCode,
    /// Displacement of the jump with the canonical ones spilled, or with none (scratch.rs).
    pub(super) cold: HostCode,
    /// The conversion from one to the other: `warm` leads there unless it is linked.
    pub(super) convert: HostCode,
    /// Where `cold` leads when not linked.
    pub(super) out: HostCode,
    /// `cold` is for none.
    pub(super) loaded: bool,
}

/// Where the first jump of a cross-page slot may lead, besides to blocks: offsets in the code cache. To a
/// block with other scratch registers it leads by the conversion ([`SlotPlaces::convert`]).
#[derive(Debug, Clone, Copy)]
pub(super) struct CrossPageLink {
    /// Through the jump cache, or out to Rust.
    pub(super) unlinked: u32,
    /// Through the jump cache.
    pub(super) refused: u32,
}

/// The largest page that cross-page links lead to, in bytes.
pub(super) const REGION: u64 = 2 << 20;

/// The pages that cross-page links lead to.
#[derive(Debug, Default)]
pub(super) struct CrossPageLinks {
    pub(super) pages: FxHashMap<Linear, LinkedPage>,
    /// The regions of [`REGION`] bytes in which these pages are.
    pub(super) regions: FxHashSet<u64>,
}

/// A page that cross-page links lead to: its physical page when they were made, and their slots.
#[derive(Debug)]
pub(super) struct LinkedPage {
    pub(super) physical: Physical,
    pub(super) slots: FxHashSet<u32>,
}

impl CrossPageLinks {
    pub(super) fn clear(&mut self) {
        self.pages.clear();
        self.regions.clear();
    }

    /// Remember that a slot leads to a page; false if other slots lead there that have found it at another
    /// physical address.
    pub(super) fn note(&mut self, linear: Linear, physical: Physical, slot: u32) -> bool {
        let page = linear.page();
        let known = self.pages.entry(page).or_insert_with(|| LinkedPage {
            physical: physical.page(),
            slots: FxHashSet::default(),
        });
        self.regions.insert(page.0 / REGION);
        known.physical == physical.page() && {
            known.slots.insert(slot);
            true
        }
    }
}
