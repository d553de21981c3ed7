//! SQLite in one file of 240,000 lines, and its shell, built by gcc: few processes with much memory. Without
//! optimization where less is to be done.

use crate::number::{Number, Program, Unit, Work};

/// See the head of this file.
pub const NUMBER: Number = Number {
    name: "build-sqlite",
    title: "building SQLite with gcc -O2",
    unit: Unit::SECONDS,
    work: Work::Program(Program { needs: &["gcc"], prepare: PREPARE, run: RUN, processors: 1 }),
};

const PREPARE: &str = r#"
mkdir /tmp/build
"#;

const RUN: &str = r#"
cd /tmp/build
level=-O2
[ "$bench_scale" -ge 100 ] || level=-O0
gcc $level -w -DSQLITE_THREADSAFE=0 -DSQLITE_OMIT_LOAD_EXTENSION -I/usr/src/sqlite -o sqlite3 \
    /usr/src/sqlite/sqlite3.c /usr/src/sqlite/shell.c -lm
[ "$(./sqlite3 :memory: 'SELECT 6 * 7')" = 42 ]
"#;
