//! A signal to oneself: `kill`, the handler, `rt_sigreturn`.

use crate::number::{Number, Unit, Work};

/// See the head of this file.
pub const NUMBER: Number = Number {
    name: "signal",
    title: "signal delivery",
    unit: Unit::NANOSECONDS,
    work: Work::Function,
};
