//! A server with one thread answers 20 connections over the loopback interface, one request at a time on each. As
//! many SET as GET.

use crate::number::{Number, Program, Unit, Work};

/// See the head of this file.
pub const NUMBER: Number = Number {
    name: "redis",
    title: "redis-benchmark, SET and GET",
    unit: Unit::REQUESTS,
    work: Work::Program(Program {
        needs: &["redis-server", "redis-benchmark"],
        prepare: PREPARE,
        run: RUN,
        processors: 1,
    }),
};

const PREPARE: &str = r#"
redis-server --port 6379 --bind 127.0.0.1 --save '' --appendonly no --daemonize yes --dir /tmp \
    --logfile /tmp/redis.log </dev/null >/dev/null 2>&1
tries=0
until [ "$(redis-cli ping 2>&1)" = PONG ]; do
    tries=$((tries + 1))
    [ $tries -lt 100 ]
    sleep 0.1
done
"#;

const RUN: &str = r#"
redis-benchmark -h 127.0.0.1 -t set,get -n $((500 * bench_scale)) -c 20 --csv >/tmp/redis.csv
[ "$(redis-cli exists key:__rand_int__)" = 1 ]
redis-cli shutdown nosave
tr -d '"' </tmp/redis.csv |
    awk -F, '$1 == "SET" { set = $2 } $1 == "GET" { get = $2 }
        END { if (!set || !get) exit 1; printf "rate %.1f\n", 2 / (1 / set + 1 / get) }'
"#;
