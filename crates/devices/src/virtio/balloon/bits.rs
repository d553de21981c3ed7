//! The memory balloon device (virtio 1.2, 5.5).

use bitflags::bitflags;

/// Device type.
pub const NUMBER: u16 = 5;

/// PCI class: none of those that are defined.
pub const CLASS: u32 = 0xff_00_00;

/// Descriptors of its queues (5.5.2): pages that are given, pages that are taken back, statistics,
/// pages that are free.
pub const QUEUE_SIZES: [u16; 4] = [64, 64, 4, 64];

/// The queues that are always there.
pub const INFLATE: usize = 0;
pub const DEFLATE: usize = 1;

/// The unit in which pages are numbered, whatever the driver's (5.5.6).
pub const PAGE_BYTES: u64 = 4096;

/// Bytes of a page's number in a queue.
pub const NUMBER_BYTES: usize = 4;

bitflags! {
    /// Features (5.5.3).
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Features: u64 {
        /// There is a queue for statistics.
        const STATISTICS = 1 << 1;
        /// The driver may take pages back when the guest runs out of memory.
        const DEFLATE_ON_OOM = 1 << 2;
        /// There is a queue for pages that are free.
        const REPORTING = 1 << 5;
    }
}

/// The configuration space (5.5.4).
#[allow(missing_docs)]
pub mod configuration {
    /// What the driver is to give.
    pub const WANTED: usize = 0;
    /// What it has given, which it writes.
    pub const ACTUAL: std::ops::Range<usize> = 4..8;
    /// Up to the end of `poison_val`.
    pub const BYTES: usize = 16;
}

/// An entry of the statistics: what it is about (5.5.6.3), two bytes, and its value.
#[allow(missing_docs)]
pub mod statistic {
    pub const BYTES: usize = 10;
    pub const SWAPPED_IN: u16 = 0;
    pub const SWAPPED_OUT: u16 = 1;
    pub const MAJOR_FAULTS: u16 = 2;
    pub const MINOR_FAULTS: u16 = 3;
    pub const FREE: u16 = 4;
    pub const TOTAL: u16 = 5;
    pub const AVAILABLE: u16 = 6;
    pub const CACHES: u16 = 7;
}
