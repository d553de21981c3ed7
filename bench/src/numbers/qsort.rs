//! The C library's `qsort`: a call through a pointer and a return for every comparison, and
//! branches that nobody predicts.

use crate::number::{Number, Unit, Work};

/// See the head of this file.
pub const NUMBER: Number = Number {
    name: "qsort",
    title: "qsort of 65,536 integers",
    unit: Unit::MICROSECONDS,
    work: Work::Function,
};
