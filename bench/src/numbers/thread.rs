//! A thread that returns at once, and is joined.

use crate::number::{Number, Unit, Work};

/// See the head of this file.
pub const NUMBER: Number = Number {
    name: "thread",
    title: "thread create and join",
    unit: Unit::MICROSECONDS,
    work: Work::Function,
};
