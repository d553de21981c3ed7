//! Cross-page links: direct links from page to page, within the kernel.
//!
//! A direct jump or call to another page may not be linked as one within its page is: what is mapped
//! there can change (invariant 4 in mod.rs). User code therefore goes through the jump cache. A
//! kernel's own code is different: its pages are global and stay for as long as the kernel runs, most
//! of its calls leave their page, and the jump cache's lines are too many to stay near the processor.
//!
//! So a *cross-page* slot is linked if the target's page is global, and the translator remembers the page
//! with the slots that lead there. A cross-page link is valid for as long as a TLB entry would be:
//!
//! 1. What the page tables said when the slot was linked holds until the guest flushes it.
//! 2. After a flush that may concern the page (`invlpg` near it, or of everything) the page tables are
//!    looked at again. If they say something else, or nothing, the slots are unlinked before the
//!    processor executes anything. A kernel flushes often, and changes the place of its code hardly ever.
//! 3. A global page is taken to be the same for all processors, as for the mirror (memory/mirror.rs),
//!    rule 5.
//!
//! A paravirtual kernel has no global pages, but all that its roots have in common counts as such, and nobody
//! flushes it: what changes there is told (paravirtual/exact.rs), and is a flush here. What another processor
//! changes is not told; so it has cross-page links on one processor only (find.rs).
//!
//! A cross-page slot has three states: not linked, linked, and *refused*. Where it is not linked it goes through
//! the jump cache, and once in sixteen times out to Rust, which links it if it can, or refuses: most of a
//! kernel's code runs once, while it boots. A refused slot goes through the jump cache for good.

use super::Translator;
use super::builder::Builder;
use super::host_code::HostCode;
use super::jump_slot::{CrossPageLink, REGION, SlotPlaces};
use crate::architectural::Architectural;
use crate::memory::paging::{Accessor, walk};
use crate::memory::tlb::{Flush, PageSize};
use crate::memory::{Access, Linear, Physical};
use crate::state::Registers;
use crate::techniques::Technique;

impl Builder<'_> {
    /// Whether a direct jump to an address outside the page gets a cross-page slot.
    pub(super) fn may_cross_page(&self, target: Linear) -> bool {
        let mode = self.key.mode;
        let wanted = self.techniques.has(Technique::CrossPageLinks);
        wanted
            && mode.guest.is_kernel()
            && (mode.native || mode.paravirtual)
            && target.is_canonical()
            && target.0 >> 63 != 0
    }

    /// Make the jump whose displacement is at `at` a cross-page slot.
    pub(super) fn link_cross_page(&mut self, at: HostCode, target: Linear) {
        self.in_exit_stubs(|builder| builder.write_cross_page_slot(at, target));
    }

    fn write_cross_page_slot(&mut self, warm: HostCode, target: Linear) {
        let [s0, ..] = self.s();
        let places = self.write_conversion();
        let number = self.slot(target, SlotPlaces { warm, ..places });
        self.way_out_converted(number);
        self.unchains(warm, self.out.here());
        self.way_out(self.thunks().unlinked.plain, number);
        let unlinked = self.out.here();
        self.patch(warm, unlinked);
        self.out.constant(s0, target.0);
        self.way_out(self.thunks().cross_page, number);
        let refused = self.out.here();
        self.out.constant(s0, target.0);
        self.out.jump(self.thunks().refused);
        let link = CrossPageLink { unlinked: self.offset(unlinked), refused: self.offset(refused) };
        self.slots.last_mut().expect("just added").cross_page = Some(link);
    }
}

impl Architectural {
    /// Where the target of a cross-page slot is, if that is a page that the slot may be linked to; `None`
    /// as well if the slot does not cross pages.
    pub(crate) fn linkable_page(&self, slot: u32) -> Option<Physical> {
        let target = self.group.translator().cross_page_target(slot)?;
        self.walk_kernel_fetch(target)
    }

    fn walk_kernel_fetch(&self, at: Linear) -> Option<Physical> {
        let by = Accessor { user: false, smap_override: false };
        let found = walk(&self.ram, &self.kernel_registers(), at, Access::Execute, by).ok()?;
        self.note_source(at, found.table, false);
        let fits = (found.global || self.is_common(at)) && found.size != PageSize::Huge;
        fits.then(|| found.physical.page())
    }

    /// The registers by which the kernel's addresses are walked to, whoever runs: users of a paravirtual kernel have a
    /// root of their own.
    fn kernel_registers(&self) -> Registers {
        let mut regs = self.context.regs;
        regs.cr3 = self.views_root();
        regs
    }

    /// Note by which tables the pages are walked to that cross-page links lead to, which nothing is known of any more.
    pub(crate) fn note_linked_sources(&self) {
        let by = Accessor { user: false, smap_override: false };
        let regs = self.kernel_registers();
        for page in self.group.translator().cross_page.pages.keys() {
            if let Ok(found) = walk(&self.ram, &regs, *page, Access::Execute, by) {
                self.note_source(*page, found.table, false);
            }
        }
    }

    /// The guest has flushed: unlink what no longer leads where it did.
    pub(crate) fn flush_cross_page_links(&self, what: Flush) {
        let near = match what {
            Flush::All => None,
            Flush::Page(at) | Flush::PagePcid(at, _) => Some(at.0 / REGION),
            Flush::Pcid(_) | Flush::AllPcids => return,
        };
        let mut translator = self.group.translator();
        if near.is_some_and(|region| !translator.cross_page.regions.contains(&region)) {
            return;
        }
        let stale: Vec<Linear> = {
            let pages = translator.cross_page.pages.iter();
            let concerned =
                pages.filter(|(page, _)| near.is_none_or(|near| near == page.0 / REGION));
            let changed = concerned
                .filter(|(page, known)| self.walk_kernel_fetch(**page) != Some(known.physical));
            changed.map(|(&page, _)| page).collect()
        };
        for page in stale {
            let slots = translator.cross_page.pages.remove(&page).map(|known| known.slots);
            slots.into_iter().flatten().for_each(|slot| translator.unlink(slot));
        }
    }
}

impl Translator {
    fn cross_page_target(&self, number: u32) -> Option<Linear> {
        let slot = self.slots.get(number as usize)?;
        slot.cross_page.map(|_| slot.target)
    }

    /// Whether a cross-page slot may lead to `physical`, which is remembered. If not, it goes through the
    /// jump cache from here on.
    pub(super) fn admit_cross_page(
        &mut self,
        number: u32,
        found: Option<Physical>,
        to: Physical,
    ) -> bool {
        let slot = self.slots[number as usize];
        let Some(CrossPageLink { refused, .. }) = slot.cross_page else { return false };
        let admitted = found == Some(to.page()) && self.cross_page.note(slot.target, to, number);
        if !admitted {
            self.direct(slot.warm, self.cache.start() + u64::from(refused));
        }
        admitted
    }
}
