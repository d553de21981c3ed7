//! Links from page to page, within the kernel.
//!
//! A direct jump or call to another page may not be linked as one within its page is: what is mapped
//! there can change (invariant 4 in mod.rs). User code therefore goes through the jump cache. A
//! kernel's own code is different: its pages are global and stay for as long as the kernel runs, most
//! of its calls leave their page, and the jump cache's lines are too many to stay near the processor.
//!
//! So a *far* gate is linked, if the target's page is global, and the page is remembered with the gates
//! that lead there. It is a promise like one of the TLB's, and kept in the same way:
//!
//! 1. What the page tables said when the gate was linked holds until the guest flushes it.
//! 2. After a flush that may concern the page (`invlpg` near it, or of everything) the page tables are
//!    looked at again. If they say something else, or nothing, the gates are unlinked before the
//!    processor executes anything. A kernel flushes often, and changes the place of its code hardly ever.
//! 3. A global page is taken to be the same for all processors, as for the mirror (memory/mirror.rs),
//!    rule 5.
//!
//! A far gate has three states: not linked, linked, and *refused*. Where it is not linked it goes through
//! the jump cache, and once in sixteen times out to Rust, which links it if it can, or refuses: most of a
//! kernel's code runs once, while it boots. A refused gate goes through the jump cache for good.

use super::Translator;
use super::builder::Builder;
use super::gate::{FarGate, Places, REGION};
use crate::architectural::Architectural;
use crate::memory::paging::{Accessor, walk};
use crate::memory::tlb::{Flush, PageSize};
use crate::memory::{Access, Linear, Physical};
use crate::techniques::Technique;

impl Builder<'_> {
    /// Whether a direct jump to an address outside the page gets a far gate.
    pub(super) fn may_be_far(&self, target: u64) -> bool {
        let mode = self.key.mode;
        let wanted = self.techniques.has(Technique::FarLinks);
        wanted
            && mode.guest.is_kernel()
            && mode.native
            && Linear(target).is_canonical()
            && target >> 63 != 0
    }

    /// Make the jump whose displacement is at `at` a far gate.
    pub(super) fn link_far(&mut self, at: u64, target: u64) {
        self.in_exit_stubs(|builder| builder.write_far_gate(at, target));
    }

    fn write_far_gate(&mut self, warm: u64, target: u64) {
        let [s0, ..] = self.s();
        let places = self.write_conversion();
        let number = self.gate(target, Places { warm, ..places });
        self.way_out_converted(number);
        self.closes(warm, self.out.here());
        self.way_out(self.thunks().unlinked.plain, number);
        let unlinked = self.out.here();
        self.patch(warm, unlinked);
        self.out.constant(s0, target);
        self.way_out(self.thunks().far, number);
        let refused = self.out.here();
        self.out.constant(s0, target);
        self.out.jump(self.thunks().refused);
        let far = FarGate { unlinked: self.offset(unlinked), refused: self.offset(refused) };
        self.gates.last_mut().expect("just added").far = Some(far);
    }
}

impl Architectural {
    /// Where the target of a far gate is, if that is a page that the gate may be linked to; `None`
    /// as well if the gate is not far.
    pub(crate) fn far_page(&self, gate: u32) -> Option<Physical> {
        let target = self.group.translator().far_target(gate)?;
        self.walk_kernel_fetch(target)
    }

    fn walk_kernel_fetch(&self, at: Linear) -> Option<Physical> {
        let by = Accessor { user: false, smap_override: false };
        let found = walk(&self.ram, &self.context.regs, at, Access::Execute, by).ok()?;
        let fits = found.global && found.size != PageSize::Huge;
        fits.then(|| found.physical.page())
    }

    /// The guest has flushed: unlink what no longer leads where it did.
    pub(crate) fn flush_far_gates(&self, what: Flush) {
        let near = match what {
            Flush::All => None,
            Flush::Page(at) | Flush::PagePcid(at, _) => Some(at.0 / REGION),
            Flush::Pcid(_) | Flush::AllPcids => return,
        };
        let mut translator = self.group.translator();
        if near.is_some_and(|region| !translator.far.regions.contains(&region)) {
            return;
        }
        let stale: Vec<u64> = {
            let pages = translator.far.pages.iter();
            let concerned =
                pages.filter(|(page, _)| near.is_none_or(|near| near == *page / REGION));
            let changed = concerned.filter(|(page, known)| {
                self.walk_kernel_fetch(Linear(**page)) != Some(known.physical)
            });
            changed.map(|(&page, _)| page).collect()
        };
        for page in stale {
            let gates = translator.far.pages.remove(&page).map(|known| known.gates);
            gates.into_iter().flatten().for_each(|gate| translator.unlink(gate));
        }
    }
}

impl Translator {
    fn far_target(&self, number: u32) -> Option<Linear> {
        let gate = self.gates.get(number as usize)?;
        gate.far.map(|_| Linear(gate.target))
    }

    /// Whether a far gate may lead to `physical`, which is remembered. If not, it goes through the
    /// jump cache from here on.
    pub(super) fn admit_far(&mut self, number: u32, found: Option<Physical>, to: Physical) -> bool {
        let gate = self.gates[number as usize];
        let Some(FarGate { refused, .. }) = gate.far else { return false };
        let admitted = found == Some(to.page()) && self.far.note(Linear(gate.target), to, number);
        if !admitted {
            self.direct(gate.warm, self.cache.start() + u64::from(refused));
        }
        admitted
    }
}
