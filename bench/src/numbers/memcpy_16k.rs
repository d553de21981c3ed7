//! The C library's `memcpy` of 16 KiB, which stays in the first cache, in fresh machines: what it takes depends on
//! the pages that a machine happens to have.

use crate::number::{Number, Unit, Work};

/// See the head of this file.
pub const NUMBER: Number = Number {
    name: "memcpy-16k",
    title: "memcpy of 16 KiB",
    unit: Unit::NANOSECONDS,
    work: Work::FreshFunction,
};
