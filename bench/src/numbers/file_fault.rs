//! The first write to a page of a shared mapping of a file in memory: reads would map around them.

use crate::number::{Number, Unit, Work};

/// See the head of this file.
pub const NUMBER: Number = Number {
    name: "file-fault",
    title: "file page fault",
    unit: Unit::NANOSECONDS,
    work: Work::Function,
};
