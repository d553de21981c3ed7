//! PostgreSQL answers 4 clients over the loopback interface, a process for each: one row of 300,000 by its key.

use crate::number::{Number, Program, Unit, Work};

/// What both need.
pub const NEEDS: &[&str] =
    &["/usr/lib/postgresql/15/bin/initdb", "/usr/lib/postgresql/15/bin/pgbench"];

/// A server in memory, by a user who is not root, with a database of pgbench's.
pub const PREPARE: &str = r#"
bin=/usr/lib/postgresql/15/bin
as=
mkdir /tmp/postgres
if [ "$(id -u)" = 0 ]; then
    as="setpriv --reuid=65534 --regid=65534 --clear-groups"
    chown 65534:65534 /tmp/postgres
elif ! getent passwd "$(id -u)" >/dev/null; then
    echo absent PostgreSQL wants a user who has a name, and root is none
    exit 0
fi
cd /tmp/postgres
{
    $as $bin/initdb -D data -A trust -U postgres --locale=C -E UTF8 --no-sync
    $as $bin/pg_ctl -D data -w -l log -o "-h 127.0.0.1 -k /tmp/postgres" start
    $bin/pgbench -h 127.0.0.1 -U postgres -i -s 3 postgres
} </dev/null >prepare.log 2>&1 || { tail -5 prepare.log log; exit 1; }
"#;

/// `$kind` is what pgbench is told to do.
macro_rules! run {
    ($kind:literal) => {
        concat!(
            "kind='",
            $kind,
            r#"'
bin=/usr/lib/postgresql/15/bin
cd /tmp/postgres
seconds=5
[ "$bench_scale" -ge 100 ] || seconds=2
$bin/pgbench -h 127.0.0.1 -U postgres $kind -c 4 -j 1 -T $seconds postgres >found 2>&1 ||
    { tail -5 found; exit 1; }
grep -q '^number of failed transactions: 0 ' found
awk '/^tps = / { printf "rate %.1f\n", $3 }' found
"#
        )
    };
}
pub(super) use run;

/// See the head of this file.
pub const NUMBER: Number = Number {
    name: "pgbench-read",
    title: "pgbench -S, 4 clients",
    unit: Unit::TRANSACTIONS,
    work: Work::Program(Program { needs: NEEDS, prepare: PREPARE, run: run!("-S"), processors: 1 }),
};
