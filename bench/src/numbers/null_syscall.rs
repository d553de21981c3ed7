//! `getppid`, the least a kernel can be asked for.

use crate::number::{Number, Unit, Work};

/// See the head of this file.
pub const NUMBER: Number = Number {
    name: "null-syscall",
    title: "null system call",
    unit: Unit::NANOSECONDS,
    work: Work::Function,
};
