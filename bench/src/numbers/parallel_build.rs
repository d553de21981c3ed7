//! Lua built with `make -j4` by a machine with 4 virtual CPUs, on as many real ones as the host
//! has.

use super::build::{PREPARE, run};
use crate::number::{Number, Program, Unit, Work};

/// See the head of this file.
pub const NUMBER: Number = Number {
    name: "parallel-build",
    title: "building Lua with -j4 on 4 CPUs",
    unit: Unit::SECONDS,
    work: Work::Program(Program {
        needs: &["gcc", "make"],
        prepare: PREPARE,
        run: run!("-j4"),
        processors: 4,
    }),
};
