//! Registers of the I/O APIC (Intel 82093AA data sheet, 3.0; the EOI register: ICH9, 13.5.5).

use serde::{Deserialize, Serialize};

/// Offsets in the MMIO page.
#[allow(missing_docs)]
pub mod offset {
    pub const SELECT: u64 = 0x00;
    pub const WINDOW: u64 = 0x10;
    pub const END_OF_INTERRUPT: u64 = 0x40;
}

/// What is selected.
#[allow(missing_docs)]
pub mod index {
    pub const ID: u8 = 0x00;
    pub const VERSION: u8 = 0x01;
    pub const ARBITRATION: u8 = 0x02;
    pub const REDIRECTION: u8 = 0x10;
}

/// Version 0x20: there is an EOI register.
pub const VERSION: u32 = 0x20;

/// A redirection table entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Redirection(pub u64);

impl Redirection {
    const LOGICAL: u64 = 1 << 11;
    const REMOTE_IRR: u64 = 1 << 14;
    const LEVEL: u64 = 1 << 15;
    const MASKED: u64 = 1 << 16;
    /// Remote IRR and delivery status (bit 12) cannot be written; bits 55:17 are reserved.
    const WRITABLE: u64 = 0xff00_0000_0001_afff;

    /// After reset: masked.
    pub const RESET: Self = Self(Self::MASKED);

    pub fn vector(self) -> u8 {
        self.0 as u8
    }

    pub fn is_logical(self) -> bool {
        self.0 & Self::LOGICAL != 0
    }

    pub fn is_level(self) -> bool {
        self.0 & Self::LEVEL != 0
    }

    pub fn is_masked(self) -> bool {
        self.0 & Self::MASKED != 0
    }

    pub fn destination(self) -> u8 {
        (self.0 >> 56) as u8
    }

    /// A level-triggered interrupt has been accepted and its end not been announced.
    pub fn awaits_end(self) -> bool {
        self.0 & Self::REMOTE_IRR != 0
    }

    pub fn set_awaits_end(&mut self, awaits: bool) {
        self.0 &= !Self::REMOTE_IRR;
        if awaits {
            self.0 |= Self::REMOTE_IRR;
        }
    }

    /// The guest writes; an edge-triggered entry awaits no end.
    pub fn set_written(&mut self, value: u64) {
        self.0 = self.0 & !Self::WRITABLE | value & Self::WRITABLE;
        if !self.is_level() {
            self.set_awaits_end(false);
        }
    }
}
