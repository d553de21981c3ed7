//! Some thousand files made, counted and deleted, in memory, three times (`--scale 25`: once).

use crate::number::{Number, Program, Unit, Work};

/// See the head of this file.
pub const NUMBER: Number = Number {
    name: "untar",
    title: "untar and delete on a tmpfs",
    unit: Unit::SECONDS,
    work: Work::Program(Program { needs: &["tar"], prepare: PREPARE, run: RUN, processors: 1 }),
};

const PREPARE: &str = r#"
cd /usr/src/library.git
git archive HEAD >/tmp/tree.tar
tar -t -f /tmp/tree.tar | wc -l >/tmp/entries
"#;

const RUN: &str = r#"
cd /tmp
i=0
while [ $i -lt $((1 + bench_scale / 50)) ]; do
    mkdir tree
    tar -x -f tree.tar -C tree
    [ "$(find tree -mindepth 1 | wc -l)" = "$(cat entries)" ]
    rm -r tree
    i=$((i + 1))
done
"#;
