//! The commands and registers of flash with Intel's command set (Intel, 28F128J3 data sheet, 4 and 5), and what it says
//! of itself (JEDEC, JESD68.01: Common Flash Interface).

use bitflags::bitflags;

/// Bytes that are erased together: what QEMU's PC has, and edk2 relies on.
pub const BLOCK_BYTES: usize = 4 << 10;

/// Bytes of the buffer, which are programmed together; it begins at a multiple of this.
pub const BUFFER_BYTES: usize = 1 << BUFFER_BITS;
const BUFFER_BITS: u8 = 11;

/// What the first store of a command is.
#[allow(missing_docs)]
pub mod command {
    pub const PROGRAM: u8 = 0x10;
    pub const PROGRAM_TOO: u8 = 0x40;
    pub const ERASE: u8 = 0x20;
    pub const CLEAR_STATUS: u8 = 0x50;
    pub const LOCK: u8 = 0x60;
    pub const READ_STATUS: u8 = 0x70;
    pub const READ_IDENTIFIERS: u8 = 0x90;
    pub const QUERY: u8 = 0x98;
    pub const WRITE_TO_BUFFER: u8 = 0xe8;
    pub const READ_ARRAY: u8 = 0xff;
    /// The last store of what erases, unlocks, or programs the buffer.
    pub const CONFIRM: u8 = 0xd0;
    /// The last store of what locks.
    pub const LOCK_BLOCK: u8 = 0x01;
}

bitflags! {
    /// The status register.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Status: u8 {
        /// Nothing is under way.
        const READY = 1 << 7;
        const ERASE_ERROR = 1 << 5;
        const PROGRAM_ERROR = 1 << 4;
        /// A command was not what may follow the one before.
        const SEQUENCE_ERROR = Self::ERASE_ERROR.bits() | Self::PROGRAM_ERROR.bits();
    }
}

/// What the query says at this offset, of flash with so many blocks.
pub fn query(blocks: usize, offset: u64) -> u8 {
    let bytes = blocks * BLOCK_BYTES;
    let [last_low, last_high] = (blocks.saturating_sub(1) as u16).to_le_bytes();
    let [size_low, size_high] = ((BLOCK_BYTES / 256) as u16).to_le_bytes();
    match offset & 0xff {
        0x10 => b'Q',
        0x11 => b'R',
        0x12 => b'Y',
        // Intel's command set, whose own table is at 0x31.
        0x13 => 0x01,
        0x15 => 0x31,
        // From 4.5 V to 5.5 V.
        0x1b => 0x45,
        0x1c => 0x55,
        // How long a byte, the buffer and a block take, as exponents of microseconds, the last of milliseconds; how
        // many times that at most, likewise.
        0x1f | 0x20 => 0x07,
        0x21 => 0x0a,
        0x23..=0x25 => 0x04,
        0x27 => bytes.next_power_of_two().trailing_zeros() as u8,
        0x2a => BUFFER_BITS,
        // One region of equal blocks: their number less one, and their size in units of 256 bytes.
        0x2c => 1,
        0x2d => last_low,
        0x2e => last_high,
        0x2f => size_low,
        0x30 => size_high,
        0x31 => b'P',
        0x32 => b'R',
        0x33 => b'I',
        // Version 1.0 of that table.
        0x34 => b'1',
        0x35 => b'0',
        _ => 0,
    }
}
