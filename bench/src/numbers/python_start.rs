//! `python3 -c pass`: a large program starts, reads some dozens of files and ends (`--scale 25`: 7 times).

use crate::number::{Number, Program, Unit, Work};

/// See the head of this file.
pub const NUMBER: Number = Number {
    name: "python-start",
    title: "30 starts of Python",
    unit: Unit::SECONDS,
    work: Work::Program(Program { needs: &["python3"], prepare: PREPARE, run: RUN, processors: 1 }),
};

const PREPARE: &str = r#"

"#;

const RUN: &str = r#"
i=0
while [ $i -lt $((30 * bench_scale / 100)) ]; do
    python3 -c pass
    i=$((i + 1))
done
"#;
