//! Which blocks have to be interpreted for a command to succeed: as few as possible, in few runs.
//!
//! Let the command fail when every block is translated, and succeed when all are interpreted. Half of
//! the blocks are interpreted; if it succeeds, the fault is among them, and the other half is of no
//! interest. If neither half is enough, both have a part in it (two faults, say, or one instruction
//! in two blocks): each half is looked into while what is needed of the other stays interpreted
//! (Zeller, "Yesterday, my program worked", 1999). So one fault among N blocks takes about twice
//! log2(N) runs at most.
//!
//! Names of blocks are spread over all 64 bits. What is interpreted is therefore not a list of names
//! but ranges that cover all of them, so that blocks that only appear in later runs belong somewhere.

use std::ops::{Range, RangeInclusive};

use vmm::inspect::{BlockId, BlockRanges};

use super::Error;

/// How a run came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Succeeds,
    Fails,
}

/// The blocks, and who runs the command with some of them interpreted (and is told how many).
pub struct Narrowing<'a, T> {
    blocks: &'a [BlockId],
    innocent: &'a [BlockId],
    runs_left: usize,
    runs: usize,
    test: T,
}

impl<'a, T> Narrowing<'a, T>
where
    T: FnMut(&BlockRanges, usize) -> Result<Verdict, Error>,
{
    /// `blocks` are sorted, and at least one; `innocent` are sorted, and others: they are translated
    /// always.
    pub fn new(blocks: &'a [BlockId], innocent: &'a [BlockId], runs: usize, test: T) -> Self {
        Self { blocks, innocent, runs_left: runs, runs, test }
    }

    /// The blocks that have to be interpreted.
    pub fn narrow(&mut self) -> Result<Vec<BlockId>, Error> {
        let all = 0..self.blocks.len();
        if self.run(std::slice::from_ref(&all))? == Verdict::Fails {
            return Err(Error::Fails);
        }
        let guilty = self.within(all, &[])?;
        Ok(guilty.into_iter().map(|index| self.blocks[index]).collect())
    }

    /// The same among some of them, if that is enough together with `others`, which are not.
    fn within(&mut self, some: Range<usize>, others: &[Range<usize>]) -> Result<Vec<usize>, Error> {
        if some.len() == 1 {
            return Ok(vec![some.start]);
        }
        let middle = usize::midpoint(some.start, some.end);
        let (low, high) = (some.start..middle, middle..some.end);
        let with = |half: &Range<usize>| [others, std::slice::from_ref(half)].concat();
        for half in [&low, &high] {
            if self.run(&with(half))? == Verdict::Succeeds {
                return self.within(half.clone(), others);
            }
        }
        let mut guilty = self.within(low, &with(&high))?;
        let needed: Vec<_> = guilty.iter().map(|&index| index..index + 1).collect();
        guilty.extend(self.within(high, &[others, &needed].concat())?);
        Ok(guilty)
    }

    fn run(&mut self, interpreted: &[Range<usize>]) -> Result<Verdict, Error> {
        self.runs_left = self.runs_left.checked_sub(1).ok_or(Error::TooManyRuns(self.runs))?;
        let count = interpreted.iter().map(ExactSizeIterator::len).sum();
        let ranges = interpreted.iter().flat_map(|some| self.cover(some)).collect();
        (self.test)(&BlockRanges::new(ranges), count)
    }

    /// All names from the first of some blocks up to the next block, but those of the innocent.
    fn cover(&self, some: &Range<usize>) -> Vec<RangeInclusive<u64>> {
        let first = if some.start == 0 { 0 } else { self.blocks[some.start].0 };
        let last = self.blocks.get(some.end).map_or(u64::MAX, |next| next.0 - 1);
        let from = self.innocent.partition_point(|id| id.0 < first);
        let to = self.innocent.partition_point(|id| id.0 <= last);
        let (mut ranges, mut next) = (Vec::new(), first);
        for id in &self.innocent[from..to] {
            if id.0 > next {
                ranges.push(next..=id.0 - 1);
            }
            let Some(after) = id.0.checked_add(1) else { return ranges };
            next = after;
        }
        if next <= last {
            ranges.push(next..=last);
        }
        ranges
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Among `count` blocks, those with these numbers are found, in a reasonable number of runs.
    fn check(count: u64, guilty: &[u64]) {
        let blocks: Vec<_> = (0..count).map(|number| BlockId(number * 1000 + 500)).collect();
        let expected: Vec<_> = guilty.iter().map(|&number| blocks[number as usize]).collect();
        let mut runs = 0;
        let test = |interpreted: &BlockRanges, _: usize| {
            runs += 1;
            let all = expected.iter().all(|&id| interpreted.contains(id));
            Ok(if all { Verdict::Succeeds } else { Verdict::Fails })
        };
        let found = Narrowing::new(&blocks, &[], 1000, test).narrow().unwrap();
        assert_eq!(found, expected, "of {count}");
        let bound = 2 + 2 * guilty.len().max(1) * (count.ilog2() as usize + 2);
        assert!(runs <= bound, "{runs} runs for {guilty:?} of {count}");
    }

    #[test]
    fn the_guilty_are_found() {
        for number in [0, 1, 499, 500, 998, 999] {
            check(1000, &[number]);
        }
        check(1, &[0]);
        check(2, &[1]);
        check(1000, &[3, 997]);
        check(1000, &[3, 4]);
        check(1000, &[0, 400, 999]);
    }

    #[test]
    fn who_is_innocent_is_not_accused() {
        let blocks = [BlockId(1), BlockId(2)];
        let failing = |_: &BlockRanges, _| Ok(Verdict::Fails);
        let result = Narrowing::new(&blocks, &[], 10, failing).narrow();
        assert!(matches!(result, Err(Error::Fails)), "{result:?}");
    }

    #[test]
    fn the_innocent_are_left_alone() {
        let blocks: Vec<_> = (0..100).map(|number| BlockId(number * 10)).collect();
        let innocent = [1, 5, 6, 505, 999, u64::MAX].map(BlockId);
        let test = |interpreted: &BlockRanges, _: usize| {
            assert!(!innocent.iter().any(|&id| interpreted.contains(id)), "{interpreted}");
            let guilty = interpreted.contains(BlockId(500)) && interpreted.contains(BlockId(509));
            Ok(if guilty { Verdict::Succeeds } else { Verdict::Fails })
        };
        let found = Narrowing::new(&blocks, &innocent, 100, test).narrow().unwrap();
        assert_eq!(found, [BlockId(500)]);
    }

    #[test]
    fn a_command_that_cannot_decide_has_an_end() {
        let blocks: Vec<_> = (0..1000).map(BlockId).collect();
        let mut runs = 0;
        let fickle = |_: &BlockRanges, _| {
            runs += 1;
            Ok(if runs == 1 { Verdict::Succeeds } else { Verdict::Fails })
        };
        let result = Narrowing::new(&blocks, &[], 50, fickle).narrow();
        assert!(matches!(result, Err(Error::TooManyRuns(50))), "{result:?}");
        assert_eq!(runs, 50);
    }
}
