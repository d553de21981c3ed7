//! Guest-physical memory: which addresses are RAM, where they are mapped, and which pages hold
//! code that has been translated.

use super::{PAGE_SIZE, Physical};
use crate::vcpu::RamRegion;

/// What is remembered of one page of RAM.
#[derive(Debug, Clone, Copy, Default)]
struct Page {
    /// Where a write tag for this page was last put: 0 nowhere, [`MANY`] in more than one place,
    /// else one more than `set << 12 | index`.
    writer: u32,
}

/// More than one TLB entry may let translated code write this page.
const MANY: u32 = u32::MAX;

/// Who may hold a write tag for a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Writer {
    /// No TLB entry.
    Nobody,
    /// Only this entry of this set.
    Entry { set: usize, index: usize },
    /// Any number of entries.
    Many,
}

/// The guest's RAM.
#[derive(Debug)]
pub(crate) struct Ram {
    regions: Vec<(RamRegion, Vec<Page>)>,
}

// SAFETY: the host pointers are to mappings that outlive the processor and are shared memory by
// nature; all accesses through them are raw.
unsafe impl Send for Ram {}

impl Ram {
    /// Take over `regions`, which must not overlap.
    pub(crate) fn new(mut regions: Vec<RamRegion>) -> Self {
        regions.sort_by_key(|region| region.guest);
        let regions = regions
            .into_iter()
            .map(|region| {
                let pages = vec![Page::default(); (region.size / PAGE_SIZE) as usize];
                (region, pages)
            })
            .collect();
        Self { regions }
    }

    /// Host address of a guest-physical byte, if it is RAM.
    #[inline]
    pub(crate) fn host(&self, at: Physical) -> Option<*mut u8> {
        for (region, _) in &self.regions {
            let offset = at.0.wrapping_sub(region.guest);
            if offset < region.size {
                return Some(region.host.wrapping_add(offset as usize));
            }
        }
        None
    }

    fn page_mut(&mut self, at: Physical) -> Option<&mut Page> {
        for (region, pages) in &mut self.regions {
            let offset = at.0.wrapping_sub(region.guest);
            if offset < region.size {
                return pages.get_mut((offset / PAGE_SIZE) as usize);
            }
        }
        None
    }

    /// Remember that a write tag for the page of `at` was put into the TLB.
    pub(crate) fn note_writer(&mut self, at: Physical, set: usize, index: usize) {
        if let Some(page) = self.page_mut(at) {
            let code = (set as u32) << 12 | index as u32;
            page.writer = if page.writer == 0 || page.writer == code + 1 { code + 1 } else { MANY };
        }
    }

    /// Who may hold a write tag for this page; forgets it, because the caller removes them.
    pub(crate) fn take_writer(&mut self, at: Physical) -> Writer {
        match self.page_mut(at).map(|page| std::mem::take(&mut page.writer)) {
            None | Some(0) => Writer::Nobody,
            Some(MANY) => Writer::Many,
            Some(code) => Writer::Entry {
                set: ((code - 1) >> 12) as usize,
                index: ((code - 1) & 0xfff) as usize,
            },
        }
    }
}
