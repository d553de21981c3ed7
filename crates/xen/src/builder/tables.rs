//! The page tables of a new domain.

use std::collections::BTreeMap;

use xen_abi::{Mfn, PAGE_SHIFT, Pfn, Wire};

use super::domain::{Page, Table};
use super::layout::Layout;
use super::mapping::{ADDRESS_MASK, ENTRIES, Place, all, missing};

/// All tables, by their places.
#[derive(Debug)]
pub struct Tables {
    frames: BTreeMap<Place, u64>,
}

// Bits of an entry (SDM 3A, 4.5).
const PRESENT: u64 = 1 << 0;
const WRITABLE: u64 = 1 << 1;
const USER: u64 = 1 << 2;
const ACCESSED: u64 = 1 << 5;
const DIRTY: u64 = 1 << 6;

/// What an entry for a page has. The dirty bit spares the first write to each page an update of its entry.
const LEAF: u64 = PRESENT | ACCESSED | DIRTY;

/// What an entry for a table has.
const BRANCH: u64 = PRESENT | WRITABLE | USER | ACCESSED | DIRTY;

impl Tables {
    pub fn new(layout: &Layout) -> Self {
        let own = all(&layout.kernel).zip(layout.tables.clone());
        let mut frames: BTreeMap<Place, u64> = own.collect();
        if let Some(elsewhere) = &layout.elsewhere {
            frames.extend(missing(elsewhere, &layout.kernel).zip(layout.list_tables.clone()));
        }
        Self { frames }
    }

    /// All of them, in the order of their pages.
    pub fn list(&self) -> Vec<Table> {
        let tables = self.frames.iter();
        let mut list: Vec<_> =
            tables.map(|((level, _), frame)| Table { frame: Pfn(*frame), level: *level }).collect();
        list.sort_by_key(|table| table.frame);
        list
    }

    /// Each table's place and page.
    pub fn places(&self) -> impl Iterator<Item = (Place, u64)> {
        self.frames.iter().map(|(place, frame)| (*place, *frame))
    }

    /// The contents of a table.
    pub fn page(&self, place: Place, layout: &Layout, machine: &dyn Fn(u64) -> Mfn) -> Page {
        let (level, prefix) = place;
        let mut page: Page = [0; _];
        for (index, bytes) in (0..ENTRIES).zip(page.chunks_exact_mut(8)) {
            let below = prefix * ENTRIES + index;
            let entry = match level {
                1 => leaf(below << PAGE_SHIFT, layout).map(|frame| {
                    let writable = if layout.is_table(frame) { 0 } else { WRITABLE };
                    machine(frame).address() | LEAF | writable
                }),
                _ => {
                    let table = self.frames.get(&(level - 1, below));
                    table.map(|frame| machine(*frame).address() | BRANCH)
                }
            };
            entry.unwrap_or(0).encode(bytes);
        }
        page
    }
}

/// The page that an address, without the copies of bit 47, is mapped to.
fn leaf(address: u64, layout: &Layout) -> Option<u64> {
    let mappings = [Some(&layout.kernel), layout.elsewhere.as_ref()];
    mappings.into_iter().flatten().find_map(|mapping| {
        let offset = address.checked_sub(mapping.addresses.start & ADDRESS_MASK)?;
        let size = mapping.addresses.end - mapping.addresses.start;
        (offset < size).then_some(mapping.frame + (offset >> PAGE_SHIFT))
    })
}
