//! A child that executes a static program, which exits at once.

use crate::number::{Number, Unit, Work};

/// See the head of this file.
pub const NUMBER: Number = Number {
    name: "fork-exec",
    title: "fork and exec",
    unit: Unit::MICROSECONDS,
    work: Work::Function,
};
