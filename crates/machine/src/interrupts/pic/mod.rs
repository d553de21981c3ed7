//! The two 8259A interrupt controllers of the PC/AT, the second cascaded into input 2 of the
//! first, and the ELCR that makes inputs level triggered (Intel 8259A data sheet; PIIX4 3.4).
//!
//! Nothing modern uses them after start-up, but kernels probe, initialize and mask them, and small
//! operating systems know nothing else. Not there: buffered mode and the 8080's call sequence,
//! which a PC does not use.

mod bits;
mod chip;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

use bits::{CASCADE, Icw1, Icw4};
use chip::Chip;

use crate::layout::irq;

/// Inputs that can be level triggered: not the timer, keyboard, cascade (first chip), clock and
/// coprocessor (second).
const LEVEL_CAPABLE: [u8; 2] = [0xf8, 0xde];

/// The pair.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Pic {
    chips: [Chip; 2],
}

impl Default for Pic {
    fn default() -> Self {
        Self { chips: [Chip::new(true), Chip::new(false)] }
    }
}

impl Pic {
    /// As a PC's firmware leaves the pair: vectors 08h and 70h on, in the mode of the 8086, and open to what it
    /// serves itself: the timer, the second chip and the clock.
    pub fn initialize_as_firmware(&mut self) {
        const MASKS: [u8; 2] = [!(1 << irq::PIT | 1 << CASCADE), !(1 << (irq::RTC - 8))];
        const VECTORS: [u8; 2] = [0x08, 0x70];
        const WIRING: [u8; 2] = [1 << CASCADE, CASCADE];
        let icw1 = Icw1::INITIALIZE | Icw1::NEEDS_ICW4;
        for chip in 0..2 {
            self.write(chip, 0, icw1.bits());
            let words = [VECTORS[chip], WIRING[chip], Icw4::MODE_8086.bits(), MASKS[chip]];
            words.into_iter().for_each(|word| self.write(chip, 1, word));
        }
    }

    /// Whether INTR is asserted.
    #[inline]
    pub fn is_requesting(&self) -> bool {
        self.chips[0].highest_request().is_some()
    }

    /// Drive input `input`, 0 to 15 without the cascade.
    pub fn set_input(&mut self, input: u8, level: bool) {
        if input < 16 && input != CASCADE {
            self.chips[usize::from(input >> 3)].set_input(input & 7, level);
            self.cascade();
        }
    }

    /// The processor's interrupt acknowledge cycle: the vector, spurious if the request is gone.
    pub fn acknowledge(&mut self) -> u8 {
        let vector = match self.chips[0].acknowledge() {
            (_, Some(CASCADE)) => self.chips[1].acknowledge().0,
            (vector, _) => vector,
        };
        self.cascade();
        vector
    }

    /// `in` from port `offset` of chip `chip`.
    pub fn read(&mut self, chip: usize, offset: u16) -> u8 {
        let value = self.chips[chip & 1].read(offset);
        self.cascade();
        value
    }

    /// `out` to port `offset` of chip `chip`.
    pub fn write(&mut self, chip: usize, offset: u16, value: u8) {
        self.chips[chip & 1].write(offset, value);
        self.cascade();
    }

    /// `in` from ELCR1 or ELCR2.
    pub fn read_level_control(&self, chip: usize) -> u8 {
        self.chips[chip & 1].level_triggered()
    }

    /// `out` to ELCR1 or ELCR2.
    pub fn write_level_control(&mut self, chip: usize, value: u8) {
        self.chips[chip & 1].set_level_triggered(value & LEVEL_CAPABLE[chip & 1]);
        self.cascade();
    }

    /// The second chip's INTR is an input of the first.
    fn cascade(&mut self) {
        let requests = self.chips[1].highest_request().is_some();
        self.chips[0].set_input(CASCADE, requests);
    }
}
