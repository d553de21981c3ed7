//! Loads that depend on each other, along a random cycle through 16 MiB: what the memory hierarchy
//! and both levels of address translation cost.

use crate::number::{Number, Unit, Work};

/// See the head of this file.
pub const NUMBER: Number = Number {
    name: "chase",
    title: "pointer chase in 16 MiB, a step",
    unit: Unit::NANOSECONDS,
    work: Work::Function,
};
