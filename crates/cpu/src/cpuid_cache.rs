//! A cache of what CPUID has returned, by leaf and subleaf, in a layout that translated code can look up
//! (translate/cpuid.rs).

use crate::system::cpuid::has_subleaves;

/// Bits of a question (leaf and subleaf) that choose its line: those in which the existing leaves differ, and
/// three for subleaves.
const INDEX_MASK: u64 = 0x8000_001f | (SUBLEAVES - 1) << 32;

/// Subleaves of one leaf that the cache can hold.
const SUBLEAVES: u64 = 8;

/// Lines of the cache.
const LINES: usize = 1 << INDEX_MASK.count_ones();

/// A question and its answer.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct Line {
    /// Minus (ECX << 32 | EAX); in an empty line, a value that matches no question of this line.
    pub(crate) negative_question: u64,
    /// The bits of a question that count: low ones.
    pub(crate) significant: u64,
    /// EAX, EBX, ECX, EDX.
    pub(crate) answer: [u32; 4],
}

/// The cache of one vCPU.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct CpuidCache {
    /// `pext` mask of a question that gives its line, and `pdep` mask that makes this an offset.
    pub(crate) index_mask: u64,
    pub(crate) line_mask: u64,
    pub(crate) lines: [Line; LINES],
}

/// An empty line: it has a question that belongs to another line.
fn none(index: usize) -> Line {
    let question: u64 = if index == 0 { 1 } else { 0 };
    Line { negative_question: question.wrapping_neg(), significant: !0, answer: [0; 4] }
}

fn question(leaf: u32, subleaf: u32) -> u64 {
    u64::from(subleaf) << 32 | u64::from(leaf)
}

/// The bits of `value` that `mask` has, moved together, as `pext` does it.
fn extracted(value: u64, mask: u64) -> usize {
    let bits = (0..64).filter(|bit| mask >> bit & 1 != 0).enumerate();
    bits.fold(0, |index, (to, from)| index | ((value >> from & 1) as usize) << to)
}

impl CpuidCache {
    /// An empty cache.
    pub(crate) fn new() -> Self {
        let line_mask = (LINES as u64 - 1) * size_of::<Line>() as u64;
        Self { index_mask: INDEX_MASK, line_mask, lines: std::array::from_fn(none) }
    }

    pub(crate) fn clear(&mut self) {
        self.lines = std::array::from_fn(none);
    }

    pub(crate) fn insert(&mut self, leaf: u32, subleaf: u32, answer: [u32; 4]) {
        let has_subleaves = has_subleaves(leaf);
        let significant = if has_subleaves { !0 } else { u64::from(u32::MAX) };
        let negative_question = (question(leaf, subleaf) & significant).wrapping_neg();
        let line = Line { negative_question, significant, answer };
        let copies = if has_subleaves { 1 } else { SUBLEAVES as u32 };
        for copy in 0..copies {
            let question = question(leaf, subleaf.wrapping_add(copy));
            self.lines[extracted(question, INDEX_MASK)] = line;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_line_matches_nothing() {
        for (index, line) in CpuidCache::new().lines.iter().enumerate() {
            let question = line.negative_question.wrapping_neg();
            assert_ne!(extracted(question, INDEX_MASK), index);
        }
    }

    /// What translated code finds for a question.
    fn found(cache: &CpuidCache, leaf: u32, subleaf: u32) -> Option<[u32; 4]> {
        let asked = question(leaf, subleaf);
        // SAFETY: translated code needs BMI2, without which there is no processor.
        let index = unsafe { std::arch::x86_64::_pext_u64(asked, cache.index_mask) };
        // SAFETY: as above.
        let offset = unsafe { std::arch::x86_64::_pdep_u64(index, cache.line_mask) } as usize;
        let line = cache.lines[offset / size_of::<Line>()];
        assert_eq!(offset % size_of::<Line>(), 0);
        // SAFETY: as above.
        let asked = unsafe { std::arch::x86_64::_pext_u64(asked, line.significant) };
        (line.negative_question.wrapping_add(asked) == 0).then_some(line.answer)
    }

    #[test]
    fn what_is_remembered_is_found_where_the_processor_looks() {
        let mut cache = CpuidCache::new();
        for (leaf, subleaf) in [(0xd, 0), (7, 0xffff_fff9), (0x8000_001d, 3)] {
            assert_eq!(found(&cache, leaf, subleaf), None);
            cache.insert(leaf, subleaf, [1, 2, 3, leaf]);
            assert_eq!(found(&cache, leaf, subleaf), Some([1, 2, 3, leaf]));
            assert_eq!(found(&cache, leaf, subleaf ^ 1), None);
            assert_eq!(found(&cache, leaf, subleaf ^ 1 << 31), None);
            assert_eq!(found(&cache, leaf ^ 1 << 9, subleaf), None);
        }
    }

    #[test]
    fn a_leaf_without_subleaves_is_found_whatever_is_in_ecx() {
        let mut cache = CpuidCache::new();
        for leaf in [0, 1, 0x8000_0000, 0x4000_0001, 0xffff_ffff] {
            cache.insert(leaf, 0x1234_5677, [leaf, 2, 3, 4]);
            for subleaf in [0, 1, 7, 0x0789_80fd, 0xffff_ffff] {
                assert_eq!(found(&cache, leaf, subleaf), Some([leaf, 2, 3, 4]));
            }
            assert_eq!(found(&cache, leaf ^ 1 << 20, 0), None);
        }
    }
}
