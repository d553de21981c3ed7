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

/// Bytes that are asked of the host at once. A first touch costs the host an exception and several
/// microseconds for each page; asked for together, a page costs a fraction of that.
const CHUNK_BYTES: u64 = 64 << 10;

/// The guest's RAM.
#[derive(Debug)]
pub(crate) struct Ram {
    regions: Vec<(RamRegion, Vec<Page>)>,
    /// One flag per chunk of each region: it has been asked for.
    present: Vec<Vec<bool>>,
}

// SAFETY: the host pointers are to mappings that outlive the processor and are shared memory by
// nature; all accesses through them are raw.
unsafe impl Send for Ram {}

/// Ask the host for the chunk at `offset`. A refusal is no harm: the pages come one by one then.
fn populate(region: &RamRegion, offset: u64) {
    /// Linux 5.14; not in the libc crate for all targets.
    const MADV_POPULATE_WRITE: i32 = 23;
    let length = CHUNK_BYTES.min(region.size - offset) as usize;
    let start = region.host.wrapping_add(offset as usize);
    // SAFETY: the range is inside a mapping that outlives the processor; populating it changes no
    // byte of it.
    unsafe { libc::madvise(start.cast(), length, MADV_POPULATE_WRITE) };
}

impl Ram {
    /// Take over `regions`, which must not overlap.
    pub(crate) fn new(mut regions: Vec<RamRegion>) -> Self {
        regions.sort_by_key(|region| region.guest);
        let present = regions
            .iter()
            .map(|region| vec![false; region.size.div_ceil(CHUNK_BYTES) as usize])
            .collect();
        let regions = regions
            .into_iter()
            .map(|region| {
                let pages = vec![Page::default(); (region.size / PAGE_SIZE) as usize];
                (region, pages)
            })
            .collect();
        Self { regions, present }
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

    /// Have the host provide the memory around `at`, if that was not done yet.
    #[inline]
    pub(crate) fn make_present(&mut self, at: Physical) {
        for ((region, _), present) in self.regions.iter().zip(&mut self.present) {
            let offset = at.0.wrapping_sub(region.guest);
            if offset < region.size {
                let chunk = &mut present[(offset / CHUNK_BYTES) as usize];
                if !*chunk {
                    *chunk = true;
                    populate(region, offset / CHUNK_BYTES * CHUNK_BYTES);
                }
                return;
            }
        }
    }

    /// Memory was given back to the host: it will have to be asked for again.
    pub(crate) fn forget_present(&mut self) {
        self.present.iter_mut().for_each(|chunks| chunks.fill(false));
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
