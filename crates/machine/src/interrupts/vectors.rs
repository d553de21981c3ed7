//! A set of interrupt vectors: IRR, ISR and TMR are each one (SDM 3A 11.8.4).

use serde::{Deserialize, Serialize};

/// One bit per vector.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vectors([u64; 4]);

impl Vectors {
    #[inline]
    pub fn insert(&mut self, vector: u8) {
        self.0[usize::from(vector >> 6)] |= 1 << (vector & 63);
    }

    #[inline]
    pub fn remove(&mut self, vector: u8) {
        self.0[usize::from(vector >> 6)] &= !(1 << (vector & 63));
    }

    pub fn contains(&self, vector: u8) -> bool {
        self.0[usize::from(vector >> 6)] & 1 << (vector & 63) != 0
    }

    /// The one with the highest priority.
    #[inline]
    pub fn highest(&self) -> Option<u8> {
        for (index, word) in self.0.iter().enumerate().rev() {
            if *word != 0 {
                return Some((index * 64) as u8 + word.ilog2() as u8);
            }
        }
        None
    }

    /// 64 of them; `index` is 0 to 3.
    pub fn word(&self, index: usize) -> u64 {
        self.0[index & 3]
    }

    /// Set all 64 of them.
    pub fn set_word(&mut self, index: usize, word: u64) {
        self.0[index & 3] = word;
    }

    /// Whether there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0 == [0; 4]
    }

    /// 32 of them as a register shows them; `index` is 0 to 7.
    pub fn register(&self, index: u32) -> u32 {
        (self.0[(index as usize / 2) & 3] >> (index % 2 * 32)) as u32
    }
}
