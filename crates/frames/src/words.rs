//! A copy of a frame's words, in which those that are entries are found quickly: most tables are nearly empty.

use std::ops::Range;

use crate::entry::Entry;
use crate::limits::TABLE_ENTRIES;

/// Bytes of a word.
const WORD_BYTES: usize = 8;

/// Words that are looked at together.
const GROUP: usize = 8;

/// The words of a frame as they were at some time.
pub struct Words([u8; TABLE_ENTRIES * WORD_BYTES]);

impl Words {
    /// All zero.
    pub(crate) fn zeroed() -> Self {
        Self([0; _])
    }

    /// All of them, little endian, to be filled.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }

    /// Set a word; `index` is below 512.
    pub fn set(&mut self, index: usize, value: u64) {
        self.0[index * WORD_BYTES..][..WORD_BYTES].copy_from_slice(&value.to_le_bytes());
    }

    /// A word as an entry.
    #[inline]
    pub(crate) fn entry(&self, index: usize) -> Entry {
        let (words, _) = self.0.as_chunks::<WORD_BYTES>();
        Entry(words.get(index).map_or(0, |word| u64::from_le_bytes(*word)))
    }

    /// The first of these entries that is present.
    #[inline]
    pub(crate) fn first_present(&self, range: Range<usize>) -> Option<usize> {
        let mut index = range.start;
        while index < range.end {
            if index.is_multiple_of(GROUP) && self.is_empty(index / GROUP) {
                index += GROUP;
            } else if self.entry(index).is_present() {
                return Some(index);
            } else {
                index += 1;
            }
        }
        None
    }

    /// The last of the entries below `end` that is present.
    #[inline]
    pub(crate) fn last_present(&self, end: usize) -> Option<usize> {
        let mut end = end;
        while end > 0 {
            if end.is_multiple_of(GROUP) && self.is_empty(end / GROUP - 1) {
                end -= GROUP;
            } else if self.entry(end - 1).is_present() {
                return Some(end - 1);
            } else {
                end -= 1;
            }
        }
        None
    }

    /// Whether no entry of a group is present.
    #[inline]
    fn is_empty(&self, group: usize) -> bool {
        let (groups, _) = self.0.as_chunks::<{ GROUP * WORD_BYTES }>();
        let (words, _) = groups[group].as_chunks::<WORD_BYTES>();
        let any = words.iter().fold(0, |any, word| any | u64::from_le_bytes(*word));
        !Entry(any).is_present()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(present: &[usize]) {
        let mut words = Words::zeroed();
        // What is not present may have other bits.
        (0..TABLE_ENTRIES).for_each(|index| words.set(index, index as u64 * 2));
        for index in present {
            words.set(*index, Entry::PRESENT | (*index as u64) << 12);
        }
        for end in 0..=TABLE_ENTRIES {
            let below = present.iter().copied().filter(|index| *index < end);
            assert_eq!(words.last_present(end), below.max(), "{present:?} below {end}");
            let from = present.iter().copied().filter(|index| *index >= end);
            assert_eq!(
                words.first_present(end..TABLE_ENTRIES),
                from.min(),
                "{present:?} from {end}"
            );
            let first = present.iter().copied().find(|index| *index < end);
            assert_eq!(words.first_present(0..end), first, "{present:?} first below {end}");
        }
        for index in present {
            assert_eq!(words.entry(*index).mfn().0, *index as u64);
        }
    }

    #[test]
    fn entries_that_are_present_are_found_from_both_ends() {
        check(&[]);
        check(&[0]);
        check(&[511]);
        check(&[0, 511]);
        check(&[7, 8, 9, 255, 256, 500]);
        check(&(0..TABLE_ENTRIES).collect::<Vec<_>>());
    }
}
