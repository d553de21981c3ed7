//! The same through a TCP connection over the loopback interface.

use crate::number::{Number, Unit, Work};

/// See the head of this file.
pub const NUMBER: Number = Number {
    name: "tcp",
    title: "TCP loopback round trip",
    unit: Unit::MICROSECONDS,
    work: Work::Function,
};
