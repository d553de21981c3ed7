//! The starts of blocks in the code cache, by which the translator finds the block that contains an address.
//!
//! Every miss of translated code and every link asks this. There are tens of thousands of blocks, and a search
//! through all of them waits for memory at each of its steps. So this table has for each [`UNIT`] of the cache how
//! many blocks begin below it, which leaves a handful to look at.

/// Bytes of the code cache for which the number of blocks below is kept.
const UNIT: u32 = 1 << 10;

/// The starts of blocks, in the order of their numbers, which is the order in the cache.
#[derive(Debug, Default)]
pub(super) struct Places {
    /// Offsets in the code cache.
    starts: Vec<u32>,
    /// How many blocks begin below each unit.
    below: Vec<u32>,
}

impl Places {
    /// The next block begins at this offset, behind all others.
    pub(super) fn push(&mut self, start: u32) {
        let units = (start / UNIT) as usize + 1;
        if self.below.len() < units {
            self.below.resize(units, self.starts.len() as u32);
        }
        self.starts.push(start);
    }

    /// The last block that begins at or before an offset.
    pub(super) fn last_from(&self, at: u32) -> Option<u32> {
        let unit = (at / UNIT) as usize;
        let end = self.starts.len();
        let count = |unit: usize| self.below.get(unit).map_or(end, |&count| count as usize);
        let (first, next) = (count(unit), count(unit + 1));
        let after = first + self.starts[first..next].partition_point(|&start| start <= at);
        after.checked_sub(1).map(|number| number as u32)
    }

    /// There are no blocks any more.
    pub(super) fn clear(&mut self) {
        self.starts.clear();
        self.below.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_in_the_block_that_begins_before_it() {
        let starts = [16, 48, 1023, 1024, 1040, 5000, 5016, 9 * UNIT, 9 * UNIT + 64];
        let mut places = Places::default();
        assert_eq!(places.last_from(0), None);
        for start in starts {
            places.push(start);
        }
        for at in 0..11 * UNIT {
            let expected = starts.iter().rposition(|&start| start <= at);
            assert_eq!(places.last_from(at), expected.map(|number| number as u32), "{at}");
        }
        assert_eq!(places.last_from(u32::MAX), Some(8));
        places.clear();
        assert_eq!(places.last_from(5000), None);
    }
}
