//! Deterministic randomness: what `BIVOUAC_SEED` says, or the same numbers every time.

/// The seed to use where no other is asked for.
pub fn seed() -> u64 {
    let seed = std::env::var("BIVOUAC_SEED").ok().and_then(|text| text.parse().ok());
    seed.unwrap_or(0x0b1f_0ac5)
}

/// A generator of numbers (SplitMix64).
pub struct Random(u64);

impl Random {
    /// A generator for one purpose, which `name` and `number` tell from all others: what one case is
    /// made of does not depend on which others are made.
    pub fn new(seed: u64, name: &str, number: u64) -> Self {
        let start = (0xcbf2_9ce4_8422_2325, 0x0000_0100_0000_01b3);
        let hash =
            name.bytes().fold(start.0, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(start.1));
        let mut random = Self(seed ^ hash);
        random.0 ^= random.next().wrapping_add(number.wrapping_mul(0x2545_f491_4f6c_dd1d));
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
