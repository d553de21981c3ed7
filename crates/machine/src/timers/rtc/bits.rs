//! Registers of the MC146818 (Motorola data sheet) and of the PC's use of its memory.

use serde::{Deserialize, Serialize};

use bitflags::bitflags;

/// Indices of the registers.
#[allow(missing_docs)]
pub mod index {
    pub const SECONDS: u8 = 0x00;
    pub const SECONDS_ALARM: u8 = 0x01;
    pub const MINUTES: u8 = 0x02;
    pub const MINUTES_ALARM: u8 = 0x03;
    pub const HOURS: u8 = 0x04;
    pub const HOURS_ALARM: u8 = 0x05;
    pub const WEEKDAY: u8 = 0x06;
    pub const DAY: u8 = 0x07;
    pub const MONTH: u8 = 0x08;
    pub const YEAR: u8 = 0x09;
    pub const A: u8 = 0x0a;
    pub const B: u8 = 0x0b;
    pub const C: u8 = 0x0c;
    pub const D: u8 = 0x0d;
    /// The FADT says so.
    pub const CENTURY: u8 = 0x32;
}

/// Bytes of memory, the registers among them.
pub const BYTES: usize = 128;

/// The index register: bit 7 masks NMI.
pub const INDEX_MASK: u8 = 0x7f;

/// Register A: the oscillator runs, 1024 Hz.
pub const A_RESET: u8 = 0x26;
/// Register A: an update is near. Bits 3:0 select the periodic rate.
pub const A_UPDATING: u8 = 0x80;
/// Register D: the battery is good.
pub const D_VALID: u8 = 0x80;
/// Hours in 12-hour mode: afternoon.
pub const AFTERNOON: u8 = 0x80;
/// An alarm register with both of these set matches everything.
pub const ANY: u8 = 0xc0;

/// How long before the second changes the update is announced (data sheet: 244 us).
pub const ANNOUNCED_NANOSECONDS: u32 = 244_000;

bitflags! {
    /// Register B.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    pub struct Control: u8 {
        const DAYLIGHT_SAVING = 1 << 0;
        const HOURS_24 = 1 << 1;
        const BINARY = 1 << 2;
        const SQUARE_WAVE = 1 << 3;
        const UPDATE_INTERRUPT = 1 << 4;
        const ALARM_INTERRUPT = 1 << 5;
        const PERIODIC_INTERRUPT = 1 << 6;
        const SET = 1 << 7;
    }

    /// Register C, whose flags have the places of their enables in [`Control`].
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    pub struct Flags: u8 {
        const UPDATE = 1 << 4;
        const ALARM = 1 << 5;
        const PERIODIC = 1 << 6;
        const INTERRUPT = 1 << 7;
    }
}
