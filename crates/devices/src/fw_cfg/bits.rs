//! The interface of QEMU's firmware configuration device (QEMU, docs/specs/fw_cfg.rst).

use bitflags::bitflags;

/// Offsets from the first port.
#[allow(missing_docs)]
pub mod offset {
    pub const SELECTOR: u16 = 0;
    pub const DATA: u16 = 1;
    pub const DMA_HIGH: u16 = 4;
    pub const DMA_LOW: u16 = 8;
}

/// Ports.
pub const PORTS: u16 = 12;

/// Items with fixed selectors.
#[allow(missing_docs)]
pub mod selector {
    pub const SIGNATURE: u16 = 0x00;
    pub const ID: u16 = 0x01;
    pub const MEMORY_BYTES: u16 = 0x03;
    pub const PROCESSORS: u16 = 0x05;
    pub const MAX_PROCESSORS: u16 = 0x0f;
    pub const DIRECTORY: u16 = 0x19;
    pub const FIRST_FILE: u16 = 0x20;
    /// Bit 14 asks for write access, which no item gives.
    pub const MASK: u16 = 0xbfff;
}

/// The signature item.
pub const SIGNATURE: [u8; 4] = *b"QEMU";

/// The id item: the traditional interface and DMA.
pub const ID: u32 = 0b11;

/// What the DMA address register reads as, most significant byte first.
pub const DMA_SIGNATURE: [u8; 8] = *b"QEMU CFG";

/// Longest name of a file, terminator included.
pub const NAME_BYTES: usize = 56;

/// Bytes of `struct FWCfgDmaAccess`: control, length, address.
pub const DMA_BYTES: usize = 16;

bitflags! {
    /// The low half of the control field; the high half is a selector.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Control: u32 {
        const ERROR = 1 << 0;
        const READ = 1 << 1;
        const SKIP = 1 << 2;
        const SELECT = 1 << 3;
        const WRITE = 1 << 4;
    }
}
