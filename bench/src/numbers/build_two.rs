//! Lua built with `make -j2` by a machine with 2 virtual CPUs.

use super::build::{PREPARE, run};
use crate::number::{Number, Program, Unit, Work};

/// See the head of this file.
pub const NUMBER: Number = Number {
    name: "build-2",
    title: "building Lua with -j2 on 2 CPUs",
    unit: Unit::SECONDS,
    work: Work::Program(Program {
        needs: &["gcc", "make"],
        prepare: PREPARE,
        run: run!("-j2"),
        processors: 2,
    }),
};
