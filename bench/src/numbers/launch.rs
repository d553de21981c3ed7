//! From the start of the process on the host until the first line of the first program in the guest
//! has been read, with the archive that has the runner only.

use crate::number::{Number, Unit, Work};

/// See the head of this file.
pub const NUMBER: Number = Number {
    name: "launch",
    title: "launch to first line of init",
    unit: Unit::MILLISECONDS,
    work: Work::Launch,
};
