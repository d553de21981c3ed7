//! A shell that runs `/bin/true` 2,000 times (`--quick`: 500).

use crate::number::{Number, Program, Unit, Work};

/// See the head of this file.
pub const NUMBER: Number = Number {
    name: "true-loop",
    title: "2,000 /bin/true from a shell",
    unit: Unit::SECONDS,
    work: Work::Program(Program { needs: &[], prepare: PREPARE, run: RUN, processors: 1 }),
};

const PREPARE: &str = "";

const RUN: &str = r#"
i=0
while [ $i -lt $((20 * bench_scale)) ]; do
    /bin/true
    i=$((i + 1))
done
"#;
