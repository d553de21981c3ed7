//! The numbers of mappings: Xen's order of them, which a domain sees.

use std::collections::VecDeque;

/// Handles that are made at once (Xen: a page of `struct grant_mapping`).
const BATCH: u32 = 256;

/// Handles at most (Xen: `gnttab_max_maptrack_frames`, 1024 pages).
const LIMIT: u32 = 1024 * BATCH;

/// Handles: those that were put back last are given last. One is always left over.
#[derive(Debug, Default)]
pub(super) struct Handles {
    free: VecDeque<u32>,
    /// The number behind the last that was made.
    end: u32,
}

impl Handles {
    /// Of a domain that has these, and put back all others up to the last of them.
    pub(super) fn with_used(used: impl Iterator<Item = u32>) -> Self {
        let used: std::collections::BTreeSet<u32> = used.collect();
        let end = used.last().map_or(0, |last| (last + 1).next_multiple_of(BATCH));
        Self { free: (0..end).filter(|handle| !used.contains(handle)).collect(), end }
    }

    /// Whether there can be one of this number.
    pub(super) fn can_be(handle: u32) -> bool {
        handle < LIMIT
    }

    /// One that is free.
    pub(super) fn take(&mut self) -> Option<u32> {
        if self.free.len() > 1 {
            return self.free.pop_front();
        }
        if self.end == LIMIT {
            return None;
        }
        let first = self.end;
        self.end += BATCH;
        (first + 1..self.end).rev().for_each(|handle| self.free.push_front(handle));
        Some(first)
    }

    /// It is free again.
    pub(super) fn put(&mut self, handle: u32) {
        self.free.push_back(handle);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_back_comes_last_and_one_is_left_over() {
        let mut handles = Handles::default();
        let first: Vec<u32> = (0..BATCH - 1).filter_map(|_| handles.take()).collect();
        assert_eq!(first, (0..BATCH - 1).collect::<Vec<_>>());
        handles.put(7);
        assert_eq!(handles.take(), Some(BATCH - 1));
        // 7 is left over, so there is another batch, whose handles come before it.
        assert_eq!(handles.take(), Some(BATCH));
        assert_eq!(handles.take(), Some(BATCH + 1));
    }

    #[test]
    fn there_is_an_end_of_them() {
        let mut handles = Handles::default();
        let taken = std::iter::from_fn(|| handles.take()).count();
        assert_eq!(taken, LIMIT as usize - 1);
        handles.put(3);
        assert!(handles.take().is_some() && handles.take().is_none());
    }

    #[test]
    fn a_restored_domain_has_the_others_free() {
        let mut handles = Handles::with_used([1, 300].into_iter());
        assert_eq!(handles.take(), Some(0));
        assert_eq!(handles.take(), Some(2));
        let all: std::collections::BTreeSet<_> = std::iter::from_fn(|| handles.take()).collect();
        assert!(!all.contains(&1) && !all.contains(&300) && all.contains(&301));
    }
}
