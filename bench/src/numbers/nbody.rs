//! A step of five bodies that attract each other: scalar floating point with divisions and roots.

use crate::number::{Number, Unit, Work};

/// See the head of this file.
pub const NUMBER: Number = Number {
    name: "nbody",
    title: "n-body, a step",
    unit: Unit::NANOSECONDS,
    work: Work::Function,
};
