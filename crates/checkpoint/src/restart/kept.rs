//! Mappings that a process keeps of those that it was born with.
//!
//! Their pages stay shared with the parent, copied by whoever writes first, but for those that differ in the image.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::image::Image;
use crate::state::{Mapping, Memory, Owner, Source};

/// By their first addresses.
#[derive(Debug)]
pub(super) struct Kept<'a>(BTreeMap<u64, &'a Mapping>);

impl<'a> Kept<'a> {
    /// The mappings of `memory` that are those of the parent: none if there is no parent, or one that ran another
    /// program.
    pub fn find_all(memory: &'a Memory, parent: Option<&Memory>) -> Self {
        let Some(parent) = parent.filter(|parent| parent.program == memory.program) else {
            return Self(BTreeMap::new());
        };
        // These are mapped all at once or not at all.
        let specials = |memory: &Memory| {
            let specials = memory.mappings.iter().filter(|mapping| is_special(mapping));
            specials.map(|special| (special.start, special.end)).collect::<Vec<_>>()
        };
        let keeps_specials = specials(memory) == specials(parent);
        let mappings = memory.mappings.iter().filter(|mapping| {
            let found = parent.mappings.binary_search_by_key(&mapping.start, |other| other.start);
            let is_same = found.is_ok_and(|index| parent.mappings[index] == **mapping);
            is_same && is_born_with(mapping) && (keeps_specials || !is_special(mapping))
        });
        Self(mappings.map(|mapping| (mapping.start, mapping)).collect())
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a mapping is kept.
    pub fn has(&self, mapping: &Mapping) -> bool {
        self.0.contains_key(&mapping.start)
    }

    /// Their addresses, in order.
    pub fn ranges(&self) -> Vec<(u64, u64)> {
        self.0.values().map(|mapping| (mapping.start, mapping.end)).collect()
    }

    /// What of some addresses is in them.
    fn within(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let first =
            self.0.range(..=range.start).next_back().map_or(range.start, |(start, _)| *start);
        let overlap = |(start, mapping): (&u64, &&Mapping)| {
            let (start, end) = (range.start.max(*start), range.end.min(mapping.end));
            (start < end).then_some(start..end)
        };
        self.0.range(first..range.end).filter_map(overlap).collect()
    }

    /// Where in them the parent has written pages and the process has none of its own.
    pub fn forgotten(&self, image: &Image, process: u32, parent: u32) -> Vec<Range<u64>> {
        let own = runs(image, process);
        let parents = runs(image, parent);
        let only = parents.iter().flat_map(|run| without(run, &own));
        only.flat_map(|range| self.within(&range)).collect()
    }
}

fn is_special(mapping: &Mapping) -> bool {
    matches!(mapping.source, Source::Vdso | Source::VdsoData)
}

/// Whether a child has a mapping of its parent's as the parent has it.
fn is_born_with(mapping: &Mapping) -> bool {
    let is_attached = matches!(mapping.source, Source::Segment { .. });
    !is_attached && !mapping.advice.iter().any(|word| ["dc", "wf", "dp"].contains(&word.as_str()))
}

/// The addresses at which a process has pages of its own.
fn runs(image: &Image, pid: u32) -> Vec<Range<u64>> {
    let mut runs: Vec<Range<u64>> = Vec::new();
    for run in image.runs_of(Owner::Process(pid)) {
        let (start, end) = (run.address, run.end());
        match runs.last_mut() {
            Some(last) if last.end == start => last.end = end,
            _ => runs.push(start..end),
        }
    }
    runs
}

/// What of a range is in none of others, which are in order.
fn without(range: &Range<u64>, others: &[Range<u64>]) -> Vec<Range<u64>> {
    let (mut left, mut at) = (Vec::new(), range.start);
    let first = others.partition_point(|other| other.end <= range.start);
    for other in others[first..].iter().take_while(|other| other.start < range.end) {
        if other.start > at {
            left.push(at..other.start);
        }
        at = at.max(other.end);
    }
    if at < range.end {
        left.push(at..range.end);
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(range: (u64, u64), others: &[(u64, u64)], expected: &[(u64, u64)]) {
        let ranges = |pairs: &[(u64, u64)]| {
            pairs.iter().map(|(start, end)| *start..*end).collect::<Vec<_>>()
        };
        assert_eq!(without(&(range.0..range.1), &ranges(others)), ranges(expected));
    }

    #[test]
    fn ranges_are_subtracted() {
        check((2, 8), &[], &[(2, 8)]);
        check((2, 8), &[(0, 2), (8, 9)], &[(2, 8)]);
        check((2, 8), &[(0, 9)], &[]);
        check((2, 8), &[(0, 3), (4, 5), (7, 20)], &[(3, 4), (5, 7)]);
        check((2, 8), &[(2, 3), (5, 8)], &[(3, 5)]);
    }
}
