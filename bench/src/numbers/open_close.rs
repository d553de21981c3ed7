//! The same file opened and closed.

use crate::number::{Number, Unit, Work};

/// See the head of this file.
pub const NUMBER: Number = Number {
    name: "open-close",
    title: "open and close",
    unit: Unit::NANOSECONDS,
    work: Work::Function,
};
