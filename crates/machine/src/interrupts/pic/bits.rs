//! Command words of the 8259A (data sheet, "Programming the 8259A").

use serde::{Deserialize, Serialize};

use bitflags::bitflags;

/// Input of the first chip that the second one drives.
pub const CASCADE: u8 = 2;

bitflags! {
    /// Initialization command word 1, told from the others by [`Self::INITIALIZE`].
    #[derive(Debug, Clone, Copy, Serialize, Deserialize)]
    pub struct Icw1: u8 {
        /// ICW4 follows.
        const NEEDS_ICW4 = 1 << 0;
        /// No cascade: ICW3 does not follow.
        const SINGLE = 1 << 1;
        /// It is ICW1.
        const INITIALIZE = 1 << 4;
    }

    /// Initialization command word 4.
    #[derive(Debug, Clone, Copy, Serialize, Deserialize)]
    pub struct Icw4: u8 {
        /// Vectors as the 8086 takes them; the only mode here.
        const MODE_8086 = 1 << 0;
        /// An acknowledge also ends the interrupt.
        const AUTOMATIC_END = 1 << 1;
        /// A chip in service does not mask the cascaded chip's higher inputs.
        const SPECIAL_FULLY_NESTED = 1 << 4;
    }

    /// Operation command word 3.
    #[derive(Debug, Clone, Copy)]
    pub struct Ocw3: u8 {
        /// With [`Self::SELECT`]: reads give the in-service register, not the request register.
        const IN_SERVICE = 1 << 0;
        /// Bit 0 is meant.
        const SELECT = 1 << 1;
        /// The next read is an acknowledge.
        const POLL = 1 << 2;
        /// It is OCW3.
        const MARK = 1 << 3;
        /// With [`Self::SET_SPECIAL_MASK`]: masked interrupts in service do not hold others back.
        const SPECIAL_MASK = 1 << 5;
        /// Bit 5 is meant.
        const SET_SPECIAL_MASK = 1 << 6;
    }
}

/// What OCW2 asks for: its bits 7:5 (R, SL, EOI).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ocw2 {
    RotateInAutomaticEnd(bool),
    /// End the interrupt with the highest priority; rotate if asked.
    End {
        rotate: bool,
    },
    /// End this interrupt; rotate if asked.
    EndThis {
        input: u8,
        rotate: bool,
    },
    SetPriority {
        lowest: u8,
    },
    Nothing,
}

impl Ocw2 {
    pub fn decode(value: u8) -> Self {
        let input = value & 7;
        match value >> 5 {
            0 => Self::RotateInAutomaticEnd(false),
            4 => Self::RotateInAutomaticEnd(true),
            1 => Self::End { rotate: false },
            5 => Self::End { rotate: true },
            3 => Self::EndThis { input, rotate: false },
            7 => Self::EndThis { input, rotate: true },
            6 => Self::SetPriority { lowest: input },
            _ => Self::Nothing,
        }
    }
}
