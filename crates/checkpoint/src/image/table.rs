//! Where pages are: what is put later takes the place of what was put before.

use std::collections::BTreeMap;
use std::ops::Range;

use super::Extent;
use crate::state::Owner;

/// Extents that do not overlap, by owner and first address.
#[derive(Debug, Default)]
pub(super) struct Table(BTreeMap<(Owner, u64), Extent>);

impl Table {
    /// Add an extent; what was there is no more.
    pub fn put(&mut self, extent: Extent) {
        self.forget(extent.owner, extent.address..extent.end());
        self.0.insert((extent.owner, extent.address), extent);
    }

    /// Nothing is at these addresses any more.
    pub fn forget(&mut self, owner: Owner, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let before = self.0.range(..=(owner, range.start)).next_back();
        let before =
            before.filter(|((found, _), extent)| *found == owner && extent.end() > range.start);
        let first = before.map_or(range.start, |((_, start), _)| *start);
        let hit = self.0.range((owner, first)..(owner, range.end)).map(|(key, _)| *key);
        for key in hit.collect::<Vec<_>>() {
            let Some(extent) = self.0.remove(&key) else { continue };
            for left in [extent.address..range.start, range.end..extent.end()] {
                if let Some(part) = extent.part(&left) {
                    self.0.insert((owner, part.address), part);
                }
            }
        }
    }

    /// All of them, in order.
    pub fn into_extents(self) -> Vec<Extent> {
        self.0.into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::PAGE_BYTES;

    /// Every page says which put it is from, and its place in that.
    type Model = BTreeMap<(Owner, u64), (u64, u32)>;

    #[test]
    fn the_last_put_counts() {
        let mut random = fastrand::Rng::with_seed(3);
        for _ in 0..200 {
            let (mut table, mut model) = (Table::default(), Model::new());
            for turn in 0..60 {
                let owner = Owner::Process(random.u32(2..4));
                let (first, count) = (random.u64(0..40), random.u64(1..9));
                let range = first * PAGE_BYTES..(first + count) * PAGE_BYTES;
                let pages = first..first + count;
                if random.u8(0..3) == 0 {
                    table.forget(owner, range);
                    pages.for_each(|page| {
                        model.remove(&(owner, page));
                    });
                    continue;
                }
                let bytes = (count * PAGE_BYTES) as u32;
                table.put(Extent::new(owner, first * PAGE_BYTES, bytes, turn, bytes, 0));
                for page in pages {
                    model.insert((owner, page), (turn, ((page - first) * PAGE_BYTES) as u32));
                }
            }
            let mut found = Model::new();
            for extent in table.into_extents() {
                for offset in (0..extent.bytes).step_by(PAGE_BYTES as usize) {
                    let page = (extent.address + u64::from(offset)) / PAGE_BYTES;
                    let at = (extent.offset, extent.skip + offset);
                    assert!(found.insert((extent.owner, page), at).is_none(), "two at {page}");
                    assert!(extent.skip + extent.bytes <= extent.piece());
                }
            }
            assert_eq!(found, model);
        }
    }
}
