//! Registers of the local APIC (SDM 3A 11.4 to 11.12).

use serde::{Deserialize, Serialize};

use bitflags::bitflags;

use crate::layout::{APIC_BYTES, PHYSICAL_BITS};

/// Offsets in the MMIO page; an MSR's index in x2APIC mode is 0x800 plus a sixteenth of it
/// (SDM 3A table 11-6).
#[allow(missing_docs)]
pub mod offset {
    pub const ID: u32 = 0x020;
    pub const VERSION: u32 = 0x030;
    pub const TASK_PRIORITY: u32 = 0x080;
    pub const ARBITRATION_PRIORITY: u32 = 0x090;
    pub const PROCESSOR_PRIORITY: u32 = 0x0a0;
    pub const END_OF_INTERRUPT: u32 = 0x0b0;
    pub const REMOTE_READ: u32 = 0x0c0;
    pub const LOGICAL_DESTINATION: u32 = 0x0d0;
    pub const DESTINATION_FORMAT: u32 = 0x0e0;
    pub const SPURIOUS: u32 = 0x0f0;
    pub const IN_SERVICE: u32 = 0x100;
    pub const TRIGGER_MODE: u32 = 0x180;
    pub const REQUEST: u32 = 0x200;
    pub const ERROR_STATUS: u32 = 0x280;
    pub const COMMAND_LOW: u32 = 0x300;
    pub const COMMAND_HIGH: u32 = 0x310;
    pub const LVT_TIMER: u32 = 0x320;
    pub const LVT_ERROR: u32 = 0x370;
    pub const INITIAL_COUNT: u32 = 0x380;
    pub const CURRENT_COUNT: u32 = 0x390;
    pub const DIVIDE: u32 = 0x3e0;
    pub const SELF_INTERRUPT: u32 = 0x3f0;
}

/// Local vector table entries, in the order of their registers from 0x320 on.
#[allow(missing_docs)]
pub mod lvt {
    pub const TIMER: usize = 0;
    pub const LINT0: usize = 3;
    pub const LINT1: usize = 4;
    pub const ERROR: usize = 5;
    pub const ENTRIES: usize = 6;
}

/// Integrated APIC, six LVT entries, no suppression of EOI broadcasts.
pub const VERSION: u32 = 0x14 | (lvt::ENTRIES as u32 - 1) << 16;

bitflags! {
    /// IA32_APIC_BASE (SDM 3A 11.4.4, 11.12.1).
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    pub struct Base: u64 {
        /// This is the bootstrap processor.
        const BOOTSTRAP = 1 << 8;
        /// x2APIC mode.
        const X2APIC = 1 << 10;
        /// The APIC is enabled.
        const ENABLED = 1 << 11;
        /// Where the MMIO page is: no bits at and above MAXPHYADDR (APM 2 16.3.1).
        const ADDRESS = (1 << PHYSICAL_BITS) - APIC_BYTES;
    }

    /// The spurious-interrupt vector register (SDM 3A 11.9).
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    pub struct Spurious: u32 {
        const VECTOR = 0xff;
        /// The APIC is enabled by software.
        const ENABLED = 1 << 8;
        /// Without effect since the P6, but it can be set.
        const FOCUS_CHECKING = 1 << 9;
    }

    /// A local vector table entry (SDM 3A 11.5.1).
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    pub struct Lvt: u32 {
        const VECTOR = 0xff;
        const DELIVERY_MODE = 7 << 8;
        const ACTIVE_LOW = 1 << 13;
        const LEVEL = 1 << 15;
        const MASKED = 1 << 16;
        /// Delivery status and remote IRR: a write does not change them.
        const READ_ONLY = 1 << 12 | 1 << 14;
        const TIMER_MODE = 3 << 17;
    }

    /// Errors (SDM 3A 11.5.3).
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    pub struct Errors: u32 {
        const SENT_ILLEGAL_VECTOR = 1 << 5;
        const RECEIVED_ILLEGAL_VECTOR = 1 << 6;
        const ILLEGAL_REGISTER = 1 << 7;
    }

    /// The interrupt command register's low half (SDM 3A 11.6.1). Delivery status is not here: a
    /// message has always been sent when the guest looks.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Command: u32 {
        const VECTOR = 0xff;
        const DELIVERY_MODE = 7 << 8;
        const LOGICAL = 1 << 11;
        const ASSERT = 1 << 14;
        const LEVEL = 1 << 15;
        const SHORTHAND = 3 << 18;
    }
}

impl Lvt {
    /// What can be written to entry `which`.
    pub const fn writable(which: usize) -> Self {
        let common = Self::VECTOR.bits() | Self::MASKED.bits();
        let more = match which {
            lvt::TIMER => Self::TIMER_MODE.bits(),
            lvt::LINT0 | lvt::LINT1 => {
                Self::DELIVERY_MODE.bits() | Self::ACTIVE_LOW.bits() | Self::LEVEL.bits()
            }
            lvt::ERROR => 0,
            _ => Self::DELIVERY_MODE.bits(),
        };
        Self::from_bits_truncate(common | more)
    }

    /// The vector.
    pub const fn vector(self) -> u8 {
        self.bits() as u8
    }
}
