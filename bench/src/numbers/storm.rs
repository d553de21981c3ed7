//! Pipelines of sed, awk, grep, sort and tail over small files: short processes that wait for each other.

use crate::number::{Number, Program, Unit, Work};

/// See the head of this file.
pub const NUMBER: Number = Number {
    name: "storm",
    title: "a storm of shell pipelines",
    unit: Unit::SECONDS,
    work: Work::Program(Program { needs: &["awk"], prepare: PREPARE, run: RUN, processors: 1 }),
};

const PREPARE: &str = r#"
mkdir /tmp/storm
cd /tmp/storm
for file in 0 1 2 3 4 5 6 7; do
    awk -v f=$file '
        BEGIN { for (i = 0; i < 200; i++) printf "key%d %d\n", i % 50, (i * 37 + f) % 101 }
    ' >file$file
    awk '{ sum += $2 } END { print sum }' file$file
done | sort >expected
"#;

const RUN: &str = r#"
cd /tmp/storm
i=0
while [ $i -lt $((bench_scale / 4)) ]; do
    for file in file?; do
        sed 's/^key/name/' $file |
            awk '{ n[$1] += $2; m += $2 } END { for (k in n) print k, n[k]; print "total", m }' |
            sort | grep total | tail -n 1
    done >found$i
    sed 's/^total //' found$i | sort | cmp - expected
    i=$((i + 1))
done
"#;
