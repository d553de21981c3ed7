//! Registers of the 8254 (Intel 8254 data sheet) and of system control port B.

use serde::{Deserialize, Serialize};

use bitflags::bitflags;

use crate::time::Hertz;

/// A third of the NTSC colour subcarrier over four: 14.31818 MHz / 12.
pub const FREQUENCY: Hertz = Hertz(1_193_182);

/// Offset of the control word from the first port.
pub const CONTROL: u16 = 3;

/// Time between changes of the refresh bit: 18 counts.
pub const REFRESH_NANOSECONDS: u64 = 15_085;

bitflags! {
    /// System control port B, 0x61 (PC/AT technical reference; ICH9 13.7.1).
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    pub struct ControlB: u8 {
        /// Gate of channel 2.
        const GATE = 1 << 0;
        /// Channel 2 drives the speaker.
        const SPEAKER = 1 << 1;
        /// Parity and channel checks are off; they never happen.
        const CHECKS_OFF = 3 << 2;
        /// Changes at every memory refresh.
        const REFRESH = 1 << 4;
        /// Output of channel 2.
        const OUTPUT = 1 << 5;
    }

    /// The read-back command: a control word with both select bits set. The latch bits are active
    /// low.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct ReadBack: u8 {
        const NOT_STATUS = 1 << 4;
        const NOT_COUNT = 1 << 5;
    }
}

/// How a 16-bit count passes through the 8-bit port: the RW bits of the control word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[repr(u8)]
pub enum Access {
    Low = 1,
    High = 2,
    /// Low, then high.
    Both = 3,
}

/// The M bits of the control word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[repr(u8)]
pub enum Mode {
    TerminalCount = 0,
    OneShot = 1,
    RateGenerator = 2,
    SquareWave = 3,
    SoftwareStrobe = 4,
    HardwareStrobe = 5,
}

impl Mode {
    pub fn from_control(word: u8) -> Self {
        match word >> 1 & 7 {
            0 => Self::TerminalCount,
            1 => Self::OneShot,
            2 | 6 => Self::RateGenerator,
            3 | 7 => Self::SquareWave,
            4 => Self::SoftwareStrobe,
            _ => Self::HardwareStrobe,
        }
    }

    /// The gate's rising edge starts the count anew.
    pub fn is_retriggered(self) -> bool {
        !matches!(self, Self::TerminalCount | Self::SoftwareStrobe)
    }

    pub fn is_periodic(self) -> bool {
        matches!(self, Self::RateGenerator | Self::SquareWave)
    }
}
