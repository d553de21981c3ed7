//! Virtio over PCI (virtio 1.2, 4.1).

use bitflags::bitflags;

/// Who made it, and the number of the first device type.
pub const VENDOR: u16 = 0x1af4;
pub const FIRST_DEVICE: u16 = 0x1040;
/// Not transitional.
pub const REVISION: u8 = 1;
pub const SUBSYSTEM: u16 = 0x1100;

/// Base addresses: registers, and the table of messages.
pub const REGISTERS: usize = 0;
pub const REGISTERS_BYTES: u64 = 0x4000;
pub const MESSAGES: usize = 2;
pub const MESSAGES_BYTES: u64 = 0x1000;

/// Structures among the registers: type (4.1.4), offset, bytes.
#[allow(missing_docs)]
pub mod structure {
    pub const COMMON: (u8, u64, u64) = (1, 0x0000, 0x38);
    pub const NOTIFY: (u8, u64, u64) = (2, 0x3000, 0x1000);
    pub const ISR: (u8, u64, u64) = (3, 0x1000, 0x1);
    pub const DEVICE: (u8, u64, u64) = (4, 0x2000, 0x1000);
    pub const CONFIGURATION_ACCESS: u8 = 5;
}

/// Bytes from one queue's doorbell to the next.
pub const NOTIFY_MULTIPLIER: u32 = 4;

/// In the capability through which registers are reached without memory: where, how long, and data.
#[allow(missing_docs)]
pub mod access {
    pub const BAR: usize = 4;
    pub const OFFSET: usize = 8;
    pub const LENGTH: usize = 12;
    pub const DATA: usize = 16;
}

/// The common configuration (4.1.4.3).
#[allow(missing_docs)]
pub mod common {
    pub const DEVICE_FEATURE_SELECT: u64 = 0x00;
    pub const DEVICE_FEATURE: u64 = 0x04;
    pub const DRIVER_FEATURE_SELECT: u64 = 0x08;
    pub const DRIVER_FEATURE: u64 = 0x0c;
    pub const CONFIGURATION_VECTOR: u64 = 0x10;
    pub const QUEUES: u64 = 0x12;
    pub const STATUS: u64 = 0x14;
    pub const GENERATION: u64 = 0x15;
    pub const QUEUE_SELECT: u64 = 0x16;
    pub const QUEUE_SIZE: u64 = 0x18;
    pub const QUEUE_VECTOR: u64 = 0x1a;
    pub const QUEUE_ENABLE: u64 = 0x1c;
    pub const QUEUE_NOTIFY: u64 = 0x1e;
    pub const QUEUE_DESCRIPTORS: u64 = 0x20;
    pub const QUEUE_AVAILABLE: u64 = 0x28;
    pub const QUEUE_USED: u64 = 0x30;
    pub const END: u64 = 0x38;
}

/// No message.
pub const NO_VECTOR: u16 = 0xffff;

bitflags! {
    /// Device status (2.1).
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Status: u8 {
        const ACKNOWLEDGE = 1;
        const DRIVER = 2;
        const DRIVER_OK = 4;
        const FEATURES_OK = 8;
        const NEEDS_RESET = 64;
        const FAILED = 128;
    }

    /// Interrupt status (4.1.4.5).
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Isr: u8 {
        const QUEUE = 1;
        const CONFIGURATION = 2;
    }

    /// Features of every device (6).
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Features: u64 {
        const INDIRECT = 1 << 28;
        const EVENT_INDEX = 1 << 29;
        const VERSION_1 = 1 << 32;
    }
}
