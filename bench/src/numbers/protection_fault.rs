//! A store to a read-only page: the fault, `SIGSEGV` to a handler that skips the store,
//! `rt_sigreturn`.

use crate::number::{Number, Unit, Work};

/// See the head of this file.
pub const NUMBER: Number = Number {
    name: "protection-fault",
    title: "protection fault to a handler",
    unit: Unit::NANOSECONDS,
    work: Work::Function,
};
