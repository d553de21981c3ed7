//! A byte to another process through a pipe, and back through another.

use crate::number::{Number, Unit, Work};

/// See the head of this file.
pub const NUMBER: Number = Number {
    name: "pipe",
    title: "pipe round trip",
    unit: Unit::MICROSECONDS,
    work: Work::Function,
};
