//! 16 pages mapped, each written to, and unmapped: what allocators do.

use crate::number::{Number, Unit, Work};

/// See the head of this file.
pub const NUMBER: Number = Number {
    name: "map-touch-unmap",
    title: "mmap, touch, munmap of 16 pages",
    unit: Unit::MICROSECONDS,
    work: Work::Function,
};
