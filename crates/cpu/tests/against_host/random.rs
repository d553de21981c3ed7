//! Deterministic randomness: what `BIVOUAC_SEED` says, or the same numbers every time.

/// A generator of numbers (SplitMix64).
pub struct Random(u64);

impl Random {
    /// A generator for one purpose, numbered `stream`.
    pub fn new(stream: u64) -> Self {
        let seed = std::env::var("BIVOUAC_SEED").ok().and_then(|text| text.parse().ok());
        let mut random = Self(seed.unwrap_or(0x0b1f_0ac5_u64));
        random.0 ^= random.next().wrapping_add(stream.wrapping_mul(0x2545_f491_4f6c_dd1d));
        random
    }

    /// Any number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// True once in `odds` times.
    pub fn one_in(&mut self, odds: u64) -> bool {
        self.below(odds) == 0
    }

    /// One of these.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}
