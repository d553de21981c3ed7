//! PostgreSQL with 4 clients who write: three updates, a selection and an insertion in a transaction, on a tmpfs.

use super::pgbench::{NEEDS, PREPARE, run};
use crate::number::{Number, Program, Unit, Work};

/// See the head of this file.
pub const NUMBER: Number = Number {
    name: "pgbench-write",
    title: "pgbench, TPC-B, 4 clients",
    unit: Unit::TRANSACTIONS,
    work: Work::Program(Program {
        needs: NEEDS,
        prepare: PREPARE,
        run: run!("-b tpcb-like"),
        processors: 1,
    }),
};
