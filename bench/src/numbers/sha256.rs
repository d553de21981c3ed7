//! SHA-256's compression function over 64 KiB: shifts, rotations and additions in registers, with
//! few memory accesses.

use crate::number::{Number, Unit, Work};

/// See the head of this file.
pub const NUMBER: Number = Number {
    name: "sha256",
    title: "SHA-256 of 64 KiB",
    unit: Unit::MICROSECONDS,
    work: Work::Function,
};
