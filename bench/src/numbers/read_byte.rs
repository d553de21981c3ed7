//! One byte from `/dev/zero`.

use crate::number::{Number, Unit, Work};

/// See the head of this file.
pub const NUMBER: Number = Number {
    name: "read-byte",
    title: "read 1 byte",
    unit: Unit::NANOSECONDS,
    work: Work::Function,
};
