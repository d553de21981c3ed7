//! An interpreter's loop: an indirect jump for each instruction, whose target depends on the
//! program.

use crate::number::{Number, Unit, Work};

/// See the head of this file.
pub const NUMBER: Number = Number {
    name: "bytecode",
    title: "bytecode interpreter, an instruction",
    unit: Unit::NANOSECONDS,
    work: Work::Function,
};
