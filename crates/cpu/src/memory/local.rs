//! The mirror's pages that are not global, and why they may stay when CR3 is loaded.
//!
//! A translation that is not global belongs to a PCID: another address space may have something else there, and
//! loading CR3 either selects another PCID or flushes one (SDM 3A 4.10.2.4, 4.10.4.1). Linux has such pages in its
//! half without meaning anything by it: those whose protection it has changed and changed back (the text of a
//! module's initialization is one) are left in the direct map without the global bit, as ordinary memory. Dropping
//! and missing them again costs tens of microseconds for each switch of address space. So they are compared
//! instead:
//!
//! 1. *A page stays as long as every vCPU that uses the mirror could have just read it from its page tables.*
//!    A TLB may do the same that was flushed and has walked the tables again. The accessed bits are set already, or
//!    the page is dropped.
//! 2. When a vCPU loads CR3, it publishes under which CR3 it uses the mirror ([`Local::roots`]), and compares the pages
//!    under this CR3. It does so under the mirror's lock, before it executes anything. A vCPU that enters a page
//!    compares it under the CR3 of all others, also under the lock. So neither can miss the other.
//! 3. A flush that spares global pages is the same comparison; `invlpg` drops its page.
//! 4. Comparing is reading again the entries of the page tables that led to the pages ([`Seen`]): all pages together
//!    mostly have few tables. Only if an entry is another does each page have to be looked at by itself.

use rustc_hash::FxHashSet;

use super::Linear;
use super::paging::{self, ENTRY_ADDRESS, Translation, load};
use super::ram::{MAX_VCPUS, Ram};
use super::tlb::PageSize;

/// The pages, and the CR3 of each vCPU that may use them.
#[derive(Debug, Default)]
pub(super) struct Local {
    /// First addresses.
    pages: FxHashSet<u64>,
    /// What led to all of `pages`; none if some were entered since.
    seen: Option<Seen>,
    /// CR3 of each vCPU that uses the mirror.
    roots: [Option<u64>; MAX_VCPUS],
}

/// Entries of page tables, as they were.
#[derive(Debug, Default)]
struct Seen {
    /// Of a PML4, by the offset in it.
    first: Vec<(u64, u64)>,
    /// Of other tables, by the physical address.
    others: Vec<(u64, u64)>,
}

impl Local {
    /// A page was entered that is not global.
    pub(super) fn add(&mut self, page: Linear) {
        self.pages.insert(page.0);
        self.seen = None;
    }

    /// A page was dropped.
    pub(super) fn remove(&mut self, page: Linear) {
        self.pages.remove(&page.0);
    }

    /// All pages were dropped.
    pub(super) fn clear(&mut self) {
        self.pages.clear();
        self.seen = None;
    }

    /// From here on, a vCPU uses the mirror under this CR3, or not at all.
    pub(super) fn set_root(&mut self, vcpu_index: usize, root: Option<u64>) {
        self.roots[vcpu_index] = root;
    }

    /// Whether the page tables of all other vCPUs have the same translation.
    pub(super) fn is_everybodys(
        &self,
        at: Linear,
        found: Translation,
        vcpu_index: usize,
        ram: &Ram,
    ) -> bool {
        let others = self.roots.iter().enumerate().filter(|&(number, _)| number != vcpu_index);
        others.filter_map(|(_, root)| *root).all(|root| {
            paging::peek(ram, root, at).is_some_and(|now| {
                let is_large = |translation: Translation| translation.size != PageSize::Small;
                now.page_of(at) == found.physical.page()
                    && is_large(now) == is_large(found)
                    && (now.writable_now || !found.writable_now)
            })
        })
    }

    /// Compare all pages with the page tables under this CR3; those that are to be dropped. `is_still` says
    /// whether a page is as it was entered, now that this is its translation.
    pub(super) fn compare(
        &mut self,
        cr3: u64,
        ram: &Ram,
        is_still: impl Fn(Linear, Translation) -> bool,
    ) -> Vec<Linear> {
        if self.pages.is_empty() || self.seen.as_ref().is_some_and(|seen| seen.holds(cr3, ram)) {
            return Vec::new();
        }
        let mut seen = Seen::default();
        let root = cr3 & ENTRY_ADDRESS;
        let mut stale = Vec::new();
        for page in self.pages.iter().map(|&page| Linear(page)) {
            let now = paging::peek_noting(ram, cr3, page, |depth, place, value| match depth {
                0 => seen.first.push((place - root, value)),
                _ => seen.others.push((place, value)),
            });
            if !now.is_some_and(|now| is_still(page, now)) {
                stale.push(page);
            }
        }
        for entries in [&mut seen.first, &mut seen.others] {
            entries.sort_unstable();
            entries.dedup();
        }
        self.seen = Some(seen);
        stale
    }
}

impl Seen {
    /// Whether the page tables under this CR3 still have all these entries.
    fn holds(&self, cr3: u64, ram: &Ram) -> bool {
        let root = cr3 & ENTRY_ADDRESS;
        self.first.iter().all(|&(offset, value)| load(ram, root + offset, 8) == value)
            && self.others.iter().all(|&(place, value)| load(ram, place, 8) == value)
    }
}
