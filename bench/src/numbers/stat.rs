//! `stat` of a file on a tmpfs: a path walk, and a structure copied out.

use crate::number::{Number, Unit, Work};

/// See the head of this file.
pub const NUMBER: Number =
    Number { name: "stat", title: "stat", unit: Unit::NANOSECONDS, work: Work::Function };
