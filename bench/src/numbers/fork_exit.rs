//! A child that exits at once, and is waited for.

use crate::number::{Number, Unit, Work};

/// See the head of this file.
pub const NUMBER: Number = Number {
    name: "fork-exit",
    title: "fork and exit",
    unit: Unit::MICROSECONDS,
    work: Work::Function,
};
