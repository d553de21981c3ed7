//! The same in 256-bit vectors with fused multiplication, where the processor has them.

use crate::number::{Number, Unit, Work};

/// See the head of this file.
pub const NUMBER: Number = Number {
    name: "avx",
    title: "AVX2 loop, 4,096 elements",
    unit: Unit::NANOSECONDS,
    work: Work::Function,
};
