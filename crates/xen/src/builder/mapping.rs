//! Mappings of consecutive pages, and which page tables one needs.

use std::ops::Range;

use xen_abi::PAGE_SHIFT;

/// Linear addresses that are mapped to consecutive pages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapping {
    /// The addresses.
    pub addresses: Range<u64>,
    /// The page that the first is mapped to.
    pub frame: u64,
}

/// Which part of the address space a table is for: its level, and the address without what is below that level.
pub type Place = (u8, u64);

/// Levels of tables.
const LEVELS: u8 = 4;

/// Entries of a table.
pub const ENTRIES: u64 = 512;

/// Addresses without the copies of bit 47.
pub const ADDRESS_MASK: u64 = (1 << 48) - 1;

/// The lowest bit of an address that tells apart the entries of a table of this level.
fn entry_shift(level: u8) -> u32 {
    PAGE_SHIFT + 9 * (u32::from(level) - 1)
}

/// Which tables of a level some addresses need.
fn places(level: u8, addresses: &Range<u64>) -> Range<u64> {
    let shift = entry_shift(level) + 9;
    let (first, last) = (addresses.start & ADDRESS_MASK, (addresses.end - 1) & ADDRESS_MASK);
    first >> shift..(last >> shift) + 1
}

/// How many tables some addresses need.
pub fn table_count(addresses: &Range<u64>) -> u64 {
    (1..=LEVELS).map(|level| places(level, addresses)).map(|range| range.end - range.start).sum()
}

/// The tables that a mapping needs, top down.
pub fn all(mapping: &Mapping) -> impl Iterator<Item = Place> {
    (1..=LEVELS)
        .rev()
        .flat_map(|level| places(level, &mapping.addresses).map(move |prefix| (level, prefix)))
}

/// The tables that a mapping needs and another does not have yet, top down.
pub fn missing(mapping: &Mapping, other: &Mapping) -> impl Iterator<Item = Place> {
    all(mapping).filter(|(level, prefix)| !places(*level, &other.addresses).contains(prefix))
}
