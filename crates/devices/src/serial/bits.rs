//! Registers of the 16550 (National Semiconductor PC16550D data sheet, 8.0). `vm-superio` has the
//! others.

use bitflags::bitflags;
use serde::{Deserialize, Serialize};

/// Offsets from the first port.
#[allow(missing_docs)]
pub mod offset {
    /// Receiver buffer and transmitter holding register; divisor when DLAB is set.
    pub const DATA: u8 = 0;
    pub const INTERRUPT_ENABLE: u8 = 1;
    /// Read.
    pub const INTERRUPT_IDENTIFICATION: u8 = 2;
    /// Written.
    pub const FIFO_CONTROL: u8 = 2;
    pub const LINE_CONTROL: u8 = 3;
    pub const LINE_STATUS: u8 = 5;
}

/// Ports.
pub const PORTS: u16 = 8;

bitflags! {
    /// Interrupt enable register.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    pub struct Enable: u8 {
        const RECEIVED = 1 << 0;
        const TRANSMITTER_EMPTY = 1 << 1;
        const LINE_STATUS = 1 << 2;
        const MODEM_STATUS = 1 << 3;
    }

    /// FIFO control register.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    pub struct FifoControl: u8 {
        const ENABLED = 1 << 0;
        const CLEAR_RECEIVED = 1 << 1;
    }
}

/// Interrupt identification register.
#[allow(missing_docs)]
pub mod identification {
    pub const NOTHING: u8 = 0x01;
    pub const TRANSMITTER_EMPTY: u8 = 0x02;
    pub const RECEIVED: u8 = 0x04;
    pub const FIFOS: u8 = 0xc0;
}

/// InterruptLine control register: the first two ports are the divisor.
pub const DIVISOR_LATCH: u8 = 1 << 7;
/// InterruptLine status register: there is a received byte.
pub const DATA_READY: u8 = 1 << 0;
