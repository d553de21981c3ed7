//! The C library's `memcpy` of 256 KiB, in the way that it chooses for the processor it sees.

use crate::number::{Number, Unit, Work};

/// See the head of this file.
pub const NUMBER: Number = Number {
    name: "memcpy",
    title: "memcpy of 256 KiB",
    unit: Unit::MICROSECONDS,
    work: Work::Function,
};
