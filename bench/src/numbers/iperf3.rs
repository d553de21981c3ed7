//! One TCP connection over the machine's own loopback interface, as fast as it goes.

use crate::number::{Number, Program, Unit, Work};

/// See the head of this file.
pub const NUMBER: Number = Number {
    name: "iperf3",
    title: "iperf3 over loopback",
    unit: Unit::GIGABITS,
    work: Work::Program(Program { needs: &["iperf3"], prepare: PREPARE, run: RUN, processors: 1 }),
};

const PREPARE: &str = r#"
iperf3 -s -1 -D </dev/null >/dev/null 2>&1
sleep 1
"#;

const RUN: &str = r#"
seconds=5
[ "$bench_scale" -ge 100 ] || seconds=2
iperf3 -c 127.0.0.1 -t $seconds -f k >/tmp/iperf3 || { tail -2 /tmp/iperf3; exit 1; }
awk '/receiver/ { for (i = 2; i <= NF; i++) if ($i == "Kbits/sec") rate = $(i - 1) * 1000 }
    END { if (!rate) exit 1; printf "rate %.0f\n", rate }' /tmp/iperf3
"#;
