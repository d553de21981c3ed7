//! The block device (virtio 1.2, 5.2).

use bitflags::bitflags;

/// Device type.
pub const NUMBER: u16 = 2;

/// PCI class: mass storage.
pub const CLASS: u32 = 0x01_80_00;

/// Descriptors of each queue.
pub const QUEUE_SIZE: u16 = 256;

/// Pieces of data in one request: a queue's descriptors but for header and status.
pub const SEGMENTS: u32 = QUEUE_SIZE as u32 - 2;

/// The unit of all numbers.
pub const SECTOR_BYTES: u64 = 512;

/// Bytes of a request's header.
pub const HEADER_BYTES: usize = 16;

/// Bytes of a range to discard or to write zeroes to: sector, sectors, flags.
pub const RANGE_BYTES: usize = 16;

/// In a range's flags.
pub const UNMAP: u32 = 1;

/// Bytes of a disk's name.
pub const IDENTITY_BYTES: usize = 20;

bitflags! {
    /// Features.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Features: u64 {
        const SEGMENTS = 1 << 2;
        const READ_ONLY = 1 << 5;
        const BLOCK_SIZE = 1 << 6;
        const FLUSH = 1 << 9;
        const TOPOLOGY = 1 << 10;
        const MULTIQUEUE = 1 << 12;
        const DISCARD = 1 << 13;
        const WRITE_ZEROES = 1 << 14;
    }
}

/// Request types.
#[allow(missing_docs)]
pub mod kind {
    pub const READ: u32 = 0;
    pub const WRITE: u32 = 1;
    pub const FLUSH: u32 = 4;
    pub const GET_ID: u32 = 8;
    pub const DISCARD: u32 = 11;
    pub const WRITE_ZEROES: u32 = 13;
}

/// How a request went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Status {
    Fine = 0,
    Failed = 1,
    Unsupported = 2,
}

/// The configuration space (5.2.4).
pub fn configuration(sectors: u64, discard_sectors: u32, queues: u16) -> Vec<u8> {
    let mut bytes = sectors.to_le_bytes().to_vec();
    let mut long = |value: u32| bytes.extend(value.to_le_bytes());
    long(0); // No limit of a segment's size.
    long(SEGMENTS);
    long(0); // No geometry.
    long(SECTOR_BYTES as u32);
    // Topology: 2^3 sectors in a physical block, aligned; at least 8 sectors at once, no best size.
    long(3 | 8 << 16);
    long(0);
    long(u32::from(queues) << 16); // No write-back mode to choose.
    long(discard_sectors);
    long(1); // Ranges of a discard, and their alignment.
    long(8);
    long(discard_sectors);
    long(1); // Ranges of a write of zeroes, which may unmap.
    long(1);
    bytes
}
