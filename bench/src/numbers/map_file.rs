//! A file of 1 MiB is mapped, a tenth of its pages read, and unmapped, as lmbench's lat_mmap does.

use crate::number::{Number, Unit, Work};

/// See the head of this file.
pub const NUMBER: Number = Number {
    name: "map-file",
    title: "mmap and munmap of 1 MiB, a tenth read",
    unit: Unit::MICROSECONDS,
    work: Work::Function,
};
