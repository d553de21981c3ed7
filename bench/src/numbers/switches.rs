//! Context switches in a ring of processes with arrays of their own, as lmbench's lat_ctx measures them: what one
//! process needs for the same is subtracted.

use crate::number::{Number, Unit, Work};

const fn of(name: &'static str, title: &'static str) -> Number {
    Number { name, title, unit: Unit::MICROSECONDS, work: Work::Function }
}

/// See the head of this file: so many processes, with so much each.
pub const P2_0K: Number = of("switch-2p-0k", "context switch, 2 processes, 0 KiB");
/// As above.
pub const P2_16K: Number = of("switch-2p-16k", "context switch, 2 processes, 16 KiB");
/// As above.
pub const P2_64K: Number = of("switch-2p-64k", "context switch, 2 processes, 64 KiB");
/// As above.
pub const P8_16K: Number = of("switch-8p-16k", "context switch, 8 processes, 16 KiB");
/// As above.
pub const P8_64K: Number = of("switch-8p-64k", "context switch, 8 processes, 64 KiB");
/// As above.
pub const P16_16K: Number = of("switch-16p-16k", "context switch, 16 processes, 16 KiB");
/// As above.
pub const P16_64K: Number = of("switch-16p-64k", "context switch, 16 processes, 64 KiB");
