//! What its processes hold beside the guest's own memory when the runner has finished: what
//! `--only` left to measure is what is in its caches.

use crate::number::{Number, Unit, Work};

/// See the head of this file.
pub const NUMBER: Number = Number {
    name: "memory",
    title: "host memory beyond the guest's",
    unit: Unit::MEBIBYTES,
    work: Work::Outside,
};
