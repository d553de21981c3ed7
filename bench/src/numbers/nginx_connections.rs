//! nginx with one worker answers ab with 16 connections at once, a new one for each request (`ab` without `-k`).

use crate::number::{Number, Program, Unit, Work};

/// See the head of this file.
pub const NUMBER: Number = Number {
    name: "nginx-connect",
    title: "nginx and ab, a connection each",
    unit: Unit::REQUESTS,
    work: Work::Program(Program {
        needs: &["nginx", "ab"],
        prepare: super::nginx::PREPARE,
        run: RUN,
        processors: 1,
    }),
};

const RUN: &str = r#"
ab -q -n $((200 * bench_scale)) -c 16 http://127.0.0.1:8080/ >/tmp/nginx/ab 2>&1 ||
    { tail -3 /tmp/nginx/ab; exit 1; }
kill "$(cat /tmp/nginx/pid)"
grep -q "^Complete requests: *$((200 * bench_scale))$" /tmp/nginx/ab
grep -q '^Failed requests: *0$' /tmp/nginx/ab
if grep -q Non-2xx /tmp/nginx/ab; then exit 1; fi
awk '/^Requests per second:/ { printf "rate %.1f\n", $4 }' /tmp/nginx/ab
"#;
