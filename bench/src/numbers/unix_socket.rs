//! The same through a pair of stream sockets.

use crate::number::{Number, Unit, Work};

/// See the head of this file.
pub const NUMBER: Number = Number {
    name: "unix-socket",
    title: "AF_UNIX round trip",
    unit: Unit::MICROSECONDS,
    work: Work::Function,
};
