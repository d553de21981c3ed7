//! Registers of a function's configuration space (PCI Local Bus Specification 3.0, chapter 6).

use serde::{Deserialize, Serialize};

use bitflags::bitflags;

/// Offsets in the header.
#[allow(missing_docs)]
pub mod offset {
    pub const VENDOR: usize = 0x00;
    pub const DEVICE: usize = 0x02;
    pub const COMMAND: usize = 0x04;
    pub const STATUS: usize = 0x06;
    pub const REVISION: usize = 0x08;
    pub const CLASS: usize = 0x09;
    pub const HEADER: usize = 0x0e;
    pub const BARS: usize = 0x10;
    pub const SUBSYSTEM_VENDOR: usize = 0x2c;
    pub const SUBSYSTEM: usize = 0x2e;
    pub const CAPABILITIES: usize = 0x34;
    pub const LINE: usize = 0x3c;
    pub const FIRST_CAPABILITY: usize = 0x40;
}

/// Bytes of configuration space; there is no extended one.
pub const CONFIGURATION_BYTES: usize = 256;

/// Base address registers, of which an address of 64 bits takes two.
pub const BARS: usize = 6;

bitflags! {
    /// What a function may do (6.2.2).
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Command: u16 {
        const MEMORY = 1 << 1;
        const MASTER = 1 << 2;
        const INTERRUPT_DISABLE = 1 << 10;
    }
}

/// Status: there is a list of capabilities.
pub const HAS_CAPABILITIES: u16 = 1 << 4;

/// A base address register: memory, 64 bits, without side effects of reading ahead or not.
pub const BAR_64_BITS: u32 = 0b0100;

/// Header type: the slot has more functions than this.
pub const SEVERAL_FUNCTIONS: u8 = 1 << 7;

/// Capability identifiers.
#[allow(missing_docs)]
pub mod capability {
    pub const VENDOR: u8 = 0x09;
    pub const MSI_X: u8 = 0x11;
}

/// MSI-X (6.8.2).
#[allow(missing_docs)]
pub mod msi_x {
    /// Of the message control word in the capability.
    pub const CONTROL: usize = 2;
    pub const ENABLE: u16 = 1 << 15;
    pub const FUNCTION_MASK: u16 = 1 << 14;
    pub const ENTRY_BYTES: u64 = 16;
    /// Of an entry's control word.
    pub const MASKED: u32 = 1;
}

/// The address register of configuration mechanism 1 (3.2.2.3.2): bus, device, function, register.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mechanism(pub u32);

impl Mechanism {
    const ENABLE: u32 = 1 << 31;
    const WRITABLE: u32 = 0x80ff_fffc;

    pub fn written(value: u32) -> Self {
        Self(value & Self::WRITABLE)
    }

    /// Bus, device and function in one number, and the register; nothing while it is disabled.
    pub fn target(self) -> Option<(u32, u64)> {
        (self.0 & Self::ENABLE != 0).then_some((self.0 >> 8 & 0xffff, u64::from(self.0 & 0xfc)))
    }
}
