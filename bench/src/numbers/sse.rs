//! `y = a * x + y` and an integer mix in 128-bit vectors, in the first-level cache.

use crate::number::{Number, Unit, Work};

/// See the head of this file.
pub const NUMBER: Number = Number {
    name: "sse",
    title: "SSE loop, 4,096 elements",
    unit: Unit::NANOSECONDS,
    work: Work::Function,
};
