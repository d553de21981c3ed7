//! The first write to a page of anonymous memory, without huge pages.

use crate::number::{Number, Unit, Work};

/// See the head of this file.
pub const NUMBER: Number = Number {
    name: "anonymous-fault",
    title: "anonymous page fault",
    unit: Unit::NANOSECONDS,
    work: Work::Function,
};
