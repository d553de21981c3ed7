//! `select` over 100 TCP sockets, none of which is ready.

use crate::number::{Number, Unit, Work};

/// See the head of this file.
pub const NUMBER: Number = Number {
    name: "select-tcp",
    title: "select over 100 TCP sockets",
    unit: Unit::MICROSECONDS,
    work: Work::Function,
};
