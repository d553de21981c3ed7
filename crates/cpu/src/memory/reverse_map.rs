//! The reverse map: from a physical page to the places where it is mapped (KVM's and Linux's `rmap`).
//!
//! Whoever is about to change a physical page has to find its mappings: the mirror to write-protect them, a helper's
//! address space to unmap them. Both keep this map beside their forward maps, under the same lock, and change
//! the two together.
//!
//! Most pages are mapped in one place, and page tables change often. As in KVM (`struct kvm_rmap_head`), an entry
//! holds the only place of a page itself and has a list on the heap only from the second place on.

use rustc_hash::FxHashMap;

use super::Physical;

/// Places, of a type that the owner chooses, by physical page of `PAGE_BYTES`. A page has each place at most once.
#[derive(Debug)]
pub(crate) struct ReverseMap<P, const PAGE_BYTES: u64> {
    /// By physical page number.
    pages: FxHashMap<u64, Places<P>>,
}

/// The places of one page.
#[derive(Debug)]
enum Places<P> {
    One(P),
    /// Two at least when the second was added; never none.
    Many(Vec<P>),
}

impl<P> Places<P> {
    fn as_slice(&self) -> &[P] {
        match self {
            Self::One(place) => std::slice::from_ref(place),
            Self::Many(places) => places,
        }
    }

    fn into_vec(self) -> Vec<P> {
        match self {
            Self::One(place) => vec![place],
            Self::Many(places) => places,
        }
    }
}

impl<P: Copy + Eq> Places<P> {
    /// Add a place that is not among them.
    fn push(&mut self, place: P) {
        match self {
            Self::One(known) => *self = Self::Many(vec![*known, place]),
            Self::Many(places) => places.push(place),
        }
    }

    /// Keep the places for which `keeps` holds; whether any is left. With none left, the caller drops the entry.
    fn retain(&mut self, mut keeps: impl FnMut(P) -> bool) -> bool {
        match self {
            Self::One(place) => keeps(*place),
            Self::Many(places) => {
                places.retain(|&place| keeps(place));
                !places.is_empty()
            }
        }
    }
}

impl<P, const PAGE_BYTES: u64> Default for ReverseMap<P, PAGE_BYTES> {
    fn default() -> Self {
        Self { pages: FxHashMap::default() }
    }
}

impl<P: Copy + Eq, const PAGE_BYTES: u64> ReverseMap<P, PAGE_BYTES> {
    /// The page that contains `at` is mapped at `place`, as the map may know.
    pub(crate) fn insert(&mut self, at: Physical, place: P) {
        if !self.places(at).contains(&place) {
            self.insert_new(at, place);
        }
    }

    /// The same of a place that the map does not have for this page. This takes as long for a page with
    /// thousands of places as for one with two.
    pub(crate) fn insert_new(&mut self, at: Physical, place: P) {
        debug_assert!(!self.places(at).contains(&place), "the place is new");
        let known = self.pages.entry(at.0 / PAGE_BYTES);
        known.and_modify(|places| places.push(place)).or_insert(Places::One(place));
    }

    /// The page that contains `at` is no longer mapped at `place`.
    pub(crate) fn remove(&mut self, at: Physical, place: P) {
        let number = at.0 / PAGE_BYTES;
        let Some(places) = self.pages.get_mut(&number) else { return };
        if !places.retain(|known| known != place) {
            self.pages.remove(&number);
        }
    }

    /// Where the page that contains `at` is mapped.
    pub(crate) fn places(&self, at: Physical) -> &[P] {
        self.pages.get(&(at.0 / PAGE_BYTES)).map_or(&[], Places::as_slice)
    }

    /// The same; the map forgets these places.
    pub(crate) fn take(&mut self, at: Physical) -> Vec<P> {
        self.pages.remove(&(at.0 / PAGE_BYTES)).map_or_else(Vec::new, Places::into_vec)
    }

    /// The places of all pages; the map forgets them.
    pub(crate) fn take_all(&mut self) -> Vec<P> {
        self.pages.drain().flat_map(|(_, places)| places.into_vec()).collect()
    }

    /// Keep the places for which `keeps` holds, of all pages.
    pub(crate) fn retain(&mut self, mut keeps: impl FnMut(P) -> bool) {
        self.pages.retain(|_, places| places.retain(&mut keeps));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    const PAGE_BYTES: u64 = 4096;

    type Map = ReverseMap<u32, PAGE_BYTES>;

    /// Physical address of page `number`, somewhere in the page.
    fn page(number: u64) -> Physical {
        Physical(number * PAGE_BYTES + number * 7 % PAGE_BYTES)
    }

    fn sorted(places: &[u32]) -> Vec<u32> {
        let mut places = places.to_vec();
        places.sort_unstable();
        places
    }

    #[test]
    fn a_page_has_each_place_once_and_no_place_of_its_neighbours() {
        let mut map = Map::default();
        for place in [5, 6, 5, 6, 7, 5] {
            map.insert(page(3), place);
        }
        assert_eq!(sorted(map.places(page(3))), [5, 6, 7]);
        assert_eq!(map.places(Physical(4 * PAGE_BYTES - 1)).len(), 3);
        assert!(map.places(page(2)).is_empty() && map.places(page(4)).is_empty());
    }

    #[test]
    fn a_page_whose_last_place_is_removed_takes_no_room() {
        for places in [1, 2, 9] {
            let mut map = Map::default();
            (0..places).for_each(|place| map.insert(page(1), place));
            map.remove(page(1), places);
            map.remove(page(2), 0);
            assert_eq!(map.places(page(1)).len(), places as usize);
            (0..places).for_each(|place| map.remove(page(1), place));
            assert!(map.pages.is_empty(), "{places}");
        }
    }

    #[test]
    fn what_is_taken_is_gone() {
        let mut map = Map::default();
        for (number, place) in [(1, 10), (2, 20), (2, 21), (3, 30)] {
            map.insert(page(number), place);
        }
        assert!(map.take(page(9)).is_empty());
        assert_eq!(sorted(&map.take(page(2))), [20, 21]);
        assert!(map.take(page(2)).is_empty());
        assert_eq!(sorted(&map.take_all()), [10, 30]);
        assert!(map.pages.is_empty());
    }

    /// Any sequence of operations leaves what it would leave of an ordinary map of sets.
    #[test]
    fn it_is_a_map_of_sets() {
        let (mut map, mut model) = (Map::default(), BTreeMap::<u64, BTreeSet<u32>>::new());
        let mut state = 1_u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        };
        for step in 0..20_000 {
            let (number, place) = (random(16), random(6) as u32);
            match random(40) {
                0 => {
                    map.retain(|known| known != place);
                    model.values_mut().for_each(|places| _ = places.remove(&place));
                }
                1 => {
                    let expected = model.remove(&number).unwrap_or_default();
                    let expected: Vec<u32> = expected.into_iter().collect();
                    assert_eq!(sorted(&map.take(page(number))), expected, "{step}");
                }
                2..20 => {
                    map.remove(page(number), place);
                    model.entry(number).or_default().remove(&place);
                }
                20..24 if !map.places(page(number)).contains(&place) => {
                    map.insert_new(page(number), place);
                    model.entry(number).or_default().insert(place);
                }
                _ => {
                    map.insert(page(number), place);
                    model.entry(number).or_default().insert(place);
                }
            }
            model.retain(|_, places| !places.is_empty());
            assert_eq!(map.pages.len(), model.len(), "{step}");
            for (&number, places) in &model {
                let expected: Vec<u32> = places.iter().copied().collect();
                assert_eq!(sorted(map.places(page(number))), expected, "{step}");
            }
        }
    }
}
