//! `sigaction` for one signal.

use crate::number::{Number, Unit, Work};

/// See the head of this file.
pub const NUMBER: Number = Number {
    name: "signal-install",
    title: "signal handler installed",
    unit: Unit::NANOSECONDS,
    work: Work::Function,
};
