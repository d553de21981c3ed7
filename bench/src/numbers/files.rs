//! Files of 0 and 10 KiB that are created and deleted, a hundred at once, as lmbench's lat_fs does.

use crate::number::{Number, Unit, Work};

const fn of(name: &'static str, title: &'static str) -> Number {
    Number { name, title, unit: Unit::MICROSECONDS, work: Work::Function }
}

/// See the head of this file.
pub const CREATE_0K: Number = of("create-0k", "create a file of 0 KiB");
/// As above.
pub const DELETE_0K: Number = of("delete-0k", "delete a file of 0 KiB");
/// As above.
pub const CREATE_10K: Number = of("create-10k", "create a file of 10 KiB");
/// As above.
pub const DELETE_10K: Number = of("delete-10k", "delete a file of 10 KiB");
