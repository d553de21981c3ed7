//! What is known of a gate (links.rs), and of the pages that far gates lead to (cross_page.rs).

use rustc_hash::{FxHashMap, FxHashSet};

use crate::memory::{Linear, Physical};

/// No block, no gate.
pub(super) const NONE: u32 = u32::MAX;

/// A direct jump out of a block.
#[derive(Debug, Clone, Copy)]
pub(super) struct Gate {
    pub(super) block: u32,
    /// Linear address of the guest instruction it leads to.
    pub(super) target: u64,
    /// Offsets in the code cache, as in [`Places`].
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
    pub(super) far: Option<FarGate>,
    /// The block that it is linked to, or was before it was closed; and the next gate that is.
    pub(super) to: u32,
    pub(super) next: u32,
}

/// The host addresses of a gate; 0 for what it does not have.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Places {
    /// Displacement of the jump with the block's scratch registers spilled.
    pub(super) warm: u64,
    /// Displacement of the jump with the canonical ones spilled, or with none (scratch.rs).
    pub(super) cold: u64,
    /// Where that is seen to: `warm` leads there unless it is linked.
    pub(super) convert: u64,
    /// Where `cold` leads when not linked.
    pub(super) out: u64,
    /// `cold` is for none.
    pub(super) loaded: bool,
}

/// Where the first jump of a far gate may lead, besides to blocks: offsets in the code cache. To a block
/// with other scratch registers it leads to where that is seen to ([`Places::convert`]).
#[derive(Debug, Clone, Copy)]
pub(super) struct FarGate {
    /// Through the jump cache, or out to Rust.
    pub(super) unlinked: u32,
    /// Through the jump cache.
    pub(super) refused: u32,
}

/// No page that far gates lead to is larger, in bytes.
pub(super) const REGION: u64 = 2 << 20;

/// Pages that far gates lead to.
#[derive(Debug, Default)]
pub(super) struct Far {
    pub(super) pages: FxHashMap<u64, FarPage>,
    /// Regions in which they are.
    pub(super) regions: FxHashSet<u64>,
}

#[derive(Debug)]
pub(super) struct FarPage {
    pub(super) physical: Physical,
    pub(super) gates: FxHashSet<u32>,
}

impl Far {
    pub(super) fn clear(&mut self) {
        self.pages.clear();
        self.regions.clear();
    }

    /// Remember that a gate leads to a page; false if gates lead there that know it at another place.
    pub(super) fn note(&mut self, linear: Linear, physical: Physical, gate: u32) -> bool {
        let page = linear.page().0;
        let known = self
            .pages
            .entry(page)
            .or_insert_with(|| FarPage { physical: physical.page(), gates: FxHashSet::default() });
        self.regions.insert(page / REGION);
        known.physical == physical.page() && {
            known.gates.insert(gate);
            true
        }
    }
}
