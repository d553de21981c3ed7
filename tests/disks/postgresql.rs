//! PostgreSQL on a disk, under `pgbench`, with the machine killed at moments that nobody chose: what it
//! has committed is there, and what belongs together is there together.
//!
//! With `BIVOUAC_PGBENCH=ROUNDS` only: it takes half a minute a round, root, and Debian's `postgresql`
//! on the host, whose files the guest sees.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::{Image, MIB, MODE};
use whole_machine::text;

/// Mounts the disk, and starts the server on it.
const START: &str = r#"
set -e
PATH=$(echo /usr/lib/postgresql/*/bin):/usr/sbin:/usr/bin:/sbin:/bin
as() { setpriv --reuid=postgres --regid=postgres --clear-groups -- env HOME=/tmp LC_ALL=C "$@"; }
cd /tmp
mount /dev/vda /mnt
if [ ! -d /mnt/db ]; then
    mkdir /mnt/db; chown postgres: /mnt/db
    as initdb -D /mnt/db -A trust >/dev/null
fi
as pg_ctl -D /mnt/db -l /tmp/server.log -o "-k /tmp -h ''" -w -t 100 start >/dev/null ||
    { cat /tmp/server.log; exit 1; }
ask() { as psql -h /tmp -qAt -v ON_ERROR_STOP=1 postgres "$@"; }
"#;

/// Commits numbers, says each when it is, and has others commit as well.
const WORK: &str = r#"
if [ "$(ask -c "select to_regclass('numbers') is null")" = t ]; then
    as pgbench -h /tmp -q -i -s 2 postgres 2>/dev/null
    ask -c 'create table numbers (n int primary key)'
fi
# Without -n it would forget what it did before.
as pgbench -n -h /tmp -c 4 -j 2 -T 1000 postgres >/dev/null 2>&1 &
n=$(ask -c 'select coalesce(max(n), 0) from numbers')
while n=$((n + 1)); do
    printf 'insert into numbers values (%d);\n\\echo %d\n' $n $n
done | ask
"#;

/// What has to hold.
const LOOK: &str = r#"
ask -c "select count(*), max(n) from numbers"
ask -c "select
    (select sum(abalance) from pgbench_accounts) = (select sum(delta) from pgbench_history),
    (select sum(bbalance) from pgbench_branches) = (select sum(delta) from pgbench_history),
    (select sum(tbalance) from pgbench_tellers) = (select sum(delta) from pgbench_history)"
ask -c "select count(*) from pgbench_history"
as pg_ctl -D /mnt/db -m fast -w stop >/dev/null
umount /mnt
"#;

#[test]
fn postgresql_loses_nothing_that_it_has_committed() {
    let Ok(rounds) = std::env::var("BIVOUAC_PGBENCH") else { return };
    let rounds: u32 = rounds.parse().expect("BIVOUAC_PGBENCH is a number");
    let image = Image::new("postgresql", 1024 * MIB);
    let made = Command::new("mke2fs").args(["-q", "-F", "-t", "ext4", image.path()]).status();
    assert!(made.expect("`mke2fs` is installed").success());
    let machine = ["--mem", "1G", "--disk", image.path()];
    let mut last = 0;
    for round in 0..rounds {
        last = work(&machine, last, Duration::from_millis(5000 + 1700 * u64::from(round % 7)));
        let script = format!("{START}{LOOK}");
        let output = MODE.in_machine(&machine, &["sh", "-c", &script]);
        let said = text(&output.stdout);
        assert!(output.status.success(), "{said}{}", text(&output.stderr));
        let mut lines = said.lines();
        let (count, largest) = lines.next().and_then(|line| line.split_once('|')).expect("counts");
        let number = |text: &str| text.parse::<u64>().expect("a number");
        assert_eq!(count, largest, "some are missing");
        assert!(number(largest) >= last, "{largest} of {last} committed numbers are there");
        assert_eq!(lines.next(), Some("t|t|t"), "what belongs together is not together");
        let history = lines.next().unwrap_or_default();
        println!(
            "round {round}: {last} said to be committed, {largest} there; {history} of pgbench"
        );
        last = number(largest);
    }
}

/// Let it work for a while after it has begun, and kill it; the last number that it said was committed.
fn work(machine: &[&str], last: u64, time: Duration) -> u64 {
    let script = format!("{START}{WORK}");
    let mut child = MODE
        .run(&[machine, &["--timeout", "300", "--", "sh", "-c", &script]].concat())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("biv can be started");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let mut began = None;
    let mut latest = last;
    for line in lines.by_ref().map_while(Result::ok) {
        latest = line.parse().unwrap_or_else(|_| panic!("it said {line}"));
        if began.get_or_insert_with(Instant::now).elapsed() >= time {
            break;
        }
    }
    assert!(began.is_some(), "it has committed nothing");
    child.kill().expect("it runs");
    let _ = child.wait();
    let rest = lines.map_while(Result::ok).filter_map(|line| line.parse().ok());
    rest.last().unwrap_or(latest)
}
