//! Sets of addresses, as ranges that neither overlap nor touch.

use std::collections::BTreeMap;
use std::ops::Range;

/// By their first addresses, where they end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    /// Add addresses, whether they are there or not.
    pub fn insert(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let mut whole = range;
        // Those that overlap or touch become part of it.
        let before = self.0.range(..=whole.end).next_back().map(|(start, end)| (*start, *end));
        let mut next = before;
        while let Some((start, end)) = next.filter(|(_, end)| *end >= whole.start) {
            whole = whole.start.min(start)..whole.end.max(end);
            self.0.remove(&start);
            next = self.0.range(..=whole.end).next_back().map(|(start, end)| (*start, *end));
        }
        self.0.insert(whole.start, whole.end);
    }

    /// Take addresses away, whether they are there or not.
    pub fn remove(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        for found in self.overlaps(&range) {
            let (start, end) = self.around(found.start);
            self.0.remove(&start);
            if start < range.start {
                self.0.insert(start, range.start);
            }
            if end > range.end {
                self.0.insert(range.end, end);
            }
        }
    }

    /// The range that an address is in, which is in one.
    fn around(&self, address: u64) -> (u64, u64) {
        let found = self.0.range(..=address).next_back();
        found.map_or((address, address), |(start, end)| (*start, *end))
    }

    /// What of a range is in the set.
    pub fn overlaps(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let before = self.0.range(..=range.start).next_back().map(|(start, _)| *start);
        let candidates = self.0.range(before.unwrap_or(range.start)..range.end.max(range.start));
        let cut = candidates.map(|(start, end)| range.start.max(*start)..range.end.min(*end));
        cut.filter(|cut| !cut.is_empty()).collect()
    }

    /// What of a range is not in the set.
    pub fn gaps(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let (mut gaps, mut at) = (Vec::new(), range.start);
        for found in self.overlaps(range) {
            if found.start > at {
                gaps.push(at..found.start);
            }
            at = found.end;
        }
        if at < range.end {
            gaps.push(at..range.end);
        }
        gaps
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.0.iter().map(|(start, end)| *start..*end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_as_sets_of_single_addresses() {
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..200 {
            let (mut ranges, mut model) = (Ranges::default(), [false; 64]);
            for _ in 0..40 {
                let (one, other) = (random.u64(0..64), random.u64(0..64));
                let range = one.min(other)..one.max(other);
                let adds = random.bool();
                range.clone().for_each(|address| model[address as usize] = adds);
                match adds {
                    true => ranges.insert(range),
                    false => ranges.remove(range),
                }
                check(&ranges, &model);
            }
        }
    }

    fn check(ranges: &Ranges, model: &[bool; 64]) {
        let all: Vec<_> = ranges.iter().collect();
        assert!(all.windows(2).all(|two| two[0].end < two[1].start), "{all:?}");
        let within = 5..60;
        let (overlaps, gaps) = (ranges.overlaps(&within), ranges.gaps(&within));
        for address in 0..64 {
            let has = |list: &[Range<u64>]| list.iter().any(|range| range.contains(&address));
            let is_in = model[address as usize];
            assert_eq!(has(&all), is_in, "{address}: {all:?}");
            assert_eq!(has(&overlaps), is_in && within.contains(&address));
            assert_eq!(has(&gaps), !is_in && within.contains(&address));
        }
    }
}
