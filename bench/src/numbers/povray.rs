//! POV-Ray's benchmark scene, in a small picture, with one thread: floating point in a large
//! program.

use crate::number::{Number, Program, Unit, Work};

/// See the head of this file.
pub const NUMBER: Number = Number {
    name: "povray",
    title: "POV-Ray's benchmark scene",
    unit: Unit::SECONDS,
    work: Work::Program(Program { needs: &["povray"], prepare: PREPARE, run: RUN, processors: 1 }),
};

const PREPARE: &str = r#"
mkdir /tmp/povray
"#;

const RUN: &str = r#"
scene=/usr/share/doc/povray/examples/advanced/benchmark/benchmark.pov
side=24
[ "$bench_scale" -lt 100 ] || side=48
cd /tmp/povray
povray +I$scene +W$side +H$side +WT1 -D +Oout.png >log 2>&1 || { tail -5 log; exit 1; }
test -s out.png
"#;
