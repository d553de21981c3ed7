//! Addresses where nothing is, for the area that a process is lent.

use inject::AREA_BYTES;

use crate::limits::END_OF_MEMORY;

/// Where holes are looked for: above what old programs and `vm.mmap_min_addr` want.
const FIRST_HOLE: u64 = 0x1_0000_0000;
/// Bytes around the area that stay free, for stacks that grow down to it.
const MARGIN: u64 = 0x20_0000;

/// An address for the area, far from all ranges that are in use.
pub(crate) fn find(mut used: Vec<(u64, u64)>) -> Option<u64> {
    used.sort_unstable();
    let mut hole = FIRST_HOLE;
    for (start, end) in used {
        if start >= hole + MARGIN + AREA_BYTES + MARGIN {
            break;
        }
        hole = hole.max(end);
    }
    let is_fine = hole + MARGIN + AREA_BYTES + MARGIN <= END_OF_MEMORY;
    is_fine.then_some(hole + MARGIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hole_is_far_from_everything() {
        let room = MARGIN + AREA_BYTES + MARGIN;
        let check = |used: &[(u64, u64)], expected: Option<u64>| {
            assert_eq!(find(used.to_vec()), expected, "{used:x?}");
        };
        check(&[], Some(FIRST_HOLE + MARGIN));
        check(&[(0, 0x1000)], Some(FIRST_HOLE + MARGIN));
        check(&[(FIRST_HOLE + room, FIRST_HOLE + room + 1)], Some(FIRST_HOLE + MARGIN));
        let next = FIRST_HOLE + room;
        check(&[(FIRST_HOLE + room - 1, next)], Some(next + MARGIN));
        check(&[(0, END_OF_MEMORY - room + 1)], None);
    }
}
