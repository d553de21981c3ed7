//! The guest memory that is free while a kernel is loaded.

use super::MapEntry;
use super::error::Error;

/// The first page belongs to the BIOS data area, and an address of 0 means "none" in every boot
/// protocol: nothing is placed there.
const LOWEST: u64 = 0x1000;

/// Tables go above this: small kernels like to put start-up code for other processors below.
const LOWEST_TABLE: u64 = 0x9000;

/// A half-open range of guest-physical addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// First address.
    pub start: u64,
    /// Address after the last.
    pub end: u64,
}

/// Free RAM: disjoint ranges in rising order.
#[derive(Debug, Clone)]
pub struct Space {
    free: Vec<Range>,
}

impl Space {
    /// All RAM of a memory map, less whatever another entry of the map claims too.
    pub fn new(map: &[MapEntry]) -> Self {
        let ram = map.iter().filter(|entry| entry.kind.is_ram());
        let mut ranges: Vec<Range> = ram
            .map(|entry| Range { start: entry.start.max(LOWEST), end: entry.end() })
            .filter(|range| range.start < range.end)
            .collect();
        ranges.sort_by_key(|range| range.start);
        let mut free: Vec<Range> = Vec::with_capacity(ranges.len());
        for range in ranges {
            match free.last_mut() {
                Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                _ => free.push(range),
            }
        }
        let mut space = Self { free };
        for entry in map.iter().filter(|entry| !entry.kind.is_ram()) {
            space.remove(Range { start: entry.start, end: entry.end() });
        }
        space
    }

    /// Take exactly this range; false if it is not free.
    pub fn take_at(&mut self, start: u64, size: u64) -> bool {
        let Some(end) = start.checked_add(size) else { return false };
        let inside = self.free.iter().any(|range| range.start <= start && end <= range.end);
        if inside {
            self.remove(Range { start, end });
        }
        inside
    }

    /// Take the lowest `size` bytes at or above `from` that end at or below `below`.
    pub fn take_lowest(&mut self, size: u64, align: u64, from: u64, below: u64) -> Option<u64> {
        let start = self.free.iter().find_map(|range| {
            let start = range.start.max(from).checked_next_multiple_of(align)?;
            (start.checked_add(size)? <= range.end.min(below)).then_some(start)
        })?;
        self.take_at(start, size).then_some(start)
    }

    /// Take the highest `size` bytes that end at or below `below`.
    pub fn take_highest(&mut self, size: u64, align: u64, below: u64) -> Option<u64> {
        let start = self.free.iter().rev().find_map(|range| {
            let start = range.end.min(below).checked_sub(size)?;
            let start = start - start % align;
            (start >= range.start).then_some(start)
        })?;
        self.take_at(start, size).then_some(start)
    }

    /// Take room for a table of the boot protocol: low memory, 16-byte aligned.
    ///
    /// # Errors
    ///
    /// [`Error::NoMemory`].
    pub fn take_table(&mut self, size: usize, align: u64) -> Result<u64, Error> {
        self.take_lowest(size as u64, align, LOWEST_TABLE, 1 << 32).ok_or(Error::NoMemory)
    }

    /// Take `size` bytes at one of all the aligned places at or above `from` that end at or below
    /// `below`, each as likely as the other when `random` is uniform.
    pub fn take_random(
        &mut self,
        size: u64,
        align: u64,
        (from, below): (u64, u64),
        random: u64,
    ) -> Option<u64> {
        let slots = |range: &Range| -> Option<(u64, u64)> {
            let first = range.start.max(from).checked_next_multiple_of(align)?;
            let room = range.end.min(below).checked_sub(first)?;
            Some((first, room.checked_sub(size)? / align + 1))
        };
        let places: Vec<(u64, u64)> = self.free.iter().filter_map(slots).collect();
        let count: u64 = places.iter().map(|place| place.1).sum();
        let mut index = random.checked_rem(count)?;
        for (first, slots) in places {
            if index < slots {
                let start = first + index * align;
                return self.take_at(start, size).then_some(start);
            }
            index -= slots;
        }
        None
    }

    fn remove(&mut self, hole: Range) {
        let mut left = Vec::with_capacity(self.free.len() + 1);
        for range in self.free.drain(..) {
            let below = Range { start: range.start, end: range.end.min(hole.start) };
            let above = Range { start: range.start.max(hole.end), end: range.end };
            let parts = [below, above].into_iter().filter(|part| part.start < part.end);
            if hole.start >= hole.end { left.push(range) } else { left.extend(parts) }
        }
        self.free = left;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MapKind;
    use proptest::prelude::*;

    fn ram(start: u64, size: u64) -> MapEntry {
        MapEntry { start, size, kind: MapKind::Ram }
    }

    fn small() -> Space {
        let reserved = MapEntry { start: 0x9_f000, size: 0x1000, kind: MapKind::Reserved };
        Space::new(&[ram(0, 0xa_0000), reserved, ram(0x10_0000, 0x10_0000)])
    }

    #[test]
    fn the_first_page_and_what_is_reserved_are_never_free() {
        let mut space = small();
        assert!(!space.take_at(0, 16));
        assert!(!space.take_at(0x9_f000, 16));
        assert_eq!(space.take_lowest(16, 16, 0, u64::MAX), Some(0x1000));
        assert_eq!(space.take_highest(0x1000, 0x1000, 0x10_0000), Some(0x9_e000));
    }

    #[test]
    fn what_is_taken_is_not_given_twice() {
        let mut space = small();
        assert!(space.take_at(0x12_0000, 0x1000));
        assert!(!space.take_at(0x12_0fff, 1));
        assert!(space.take_at(0x12_1000, 1));
    }

    #[test]
    fn random_places_are_in_range_and_all_are_reached() {
        let mut seen = std::collections::BTreeSet::new();
        for random in 0..100 {
            let at = small().take_random(0x4_0000, 0x4_0000, (0x8_0000, 0x1c_0000), random);
            seen.insert(at.unwrap());
        }
        assert_eq!(Vec::from_iter(seen), [0x10_0000, 0x14_0000, 0x18_0000]);
    }

    #[test]
    fn too_large_is_refused() {
        let mut space = small();
        assert_eq!(space.take_lowest(0x10_0001, 1, 0, u64::MAX), None);
        assert_eq!(space.take_highest(u64::MAX, 1, u64::MAX), None);
        assert_eq!(space.take_random(0x20_0000, 0x1000, (0, u64::MAX), 7), None);
    }

    proptest! {
        /// Whatever the map, nothing is handed out twice or outside RAM.
        #[test]
        fn takes_are_disjoint_and_inside_ram(
            entries in prop::collection::vec((0_u64..1 << 20, 0_u64..1 << 18, 0_u8..3), 1..8),
            wishes in prop::collection::vec(
                (1_u64..1 << 14, 0_u32..13, any::<u64>(), 0_u8..3),
                1..20,
            ),
        ) {
            let kinds = [MapKind::Ram, MapKind::Ram, MapKind::Reserved];
            let map: Vec<MapEntry> = entries
                .into_iter()
                .map(|(start, size, kind)| MapEntry { start, size, kind: kinds[usize::from(kind)] })
                .collect();
            let mut space = Space::new(&map);
            let mut taken: Vec<Range> = Vec::new();
            for (size, align, random, how) in wishes {
                let align = 1 << align;
                let start = match how {
                    0 => space.take_lowest(size, align, 0, u64::MAX),
                    1 => space.take_highest(size, align, u64::MAX),
                    _ => space.take_random(size, align, (0, u64::MAX), random),
                };
                let Some(start) = start else { continue };
                prop_assert_eq!(start % align, 0);
                let end = start + size;
                prop_assert!(taken.iter().all(|other| end <= other.start || start >= other.end));
                let all_ram = (start..end).step_by(64).all(|at| {
                    map.iter().any(|e| e.kind.is_ram() && e.start <= at && at < e.end())
                        && !map.iter().any(|e| !e.kind.is_ram() && e.start <= at && at < e.end())
                });
                prop_assert!(all_ram);
                taken.push(Range { start, end });
            }
        }
    }
}
