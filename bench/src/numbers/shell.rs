//! A child that executes the distribution's shell, dynamically linked, which does nothing.

use crate::number::{Number, Unit, Work};

/// See the head of this file.
pub const NUMBER: Number = Number {
    name: "shell",
    title: "sh -c true",
    unit: Unit::MICROSECONDS,
    work: Work::FunctionWithPrograms,
};
