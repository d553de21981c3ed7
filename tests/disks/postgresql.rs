//! PostgreSQL on a disk, under `pgbench`, with the machine killed at moments that nobody chose: what it
//! has committed is there, and what belongs together is there together.
//!
//! With `BIVOUAC_PGBENCH=ROUNDS` only: it takes half a minute a round, root, and Debian's `postgresql`
//! on the host, whose files the guest sees, or has a copy of if it is a paravirtual one.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::paravirtual::root_with;
use super::{Directory, Image, MIB, MODE};
use whole_machine::modes::{Mode, PARAVIRTUAL, UserExecution};
use whole_machine::text;

/// Mounts the disk, and starts the server on it.
const START: &str = r#"
set -e
PATH=$(echo /usr/lib/postgresql/*/bin):/usr/sbin:/usr/bin:/sbin:/bin
user="--reuid=postgres --regid=postgres --clear-groups"
as() { /usr/bin/setpriv $user -- env HOME=/tmp LC_ALL=C "$@"; }
cd /tmp
mount -t ext4 /dev/*vda /mnt
if [ ! -d /mnt/db ]; then
    mkdir /mnt/db; chown postgres: /mnt/db
    as initdb -D /mnt/db -A trust >/tmp/initdb.log 2>&1 || { cat /tmp/initdb.log; exit 1; }
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
# Its file with its number goes before it does.
tries=0; until umount /mnt || [ $tries -ge 100 ]; do tries=$((tries+1)); sleep 0.1; done 2>/dev/null
! grep -q ' /mnt ' /proc/mounts
"#;

/// Kill machines with these options, in these modes in turn, so often.
fn check(name: &str, options: &[&str], modes: &[Mode], rounds: u32) {
    let image = Image::new(name, 1024 * MIB);
    let made = Command::new("mke2fs").args(["-q", "-F", "-t", "ext4", image.path()]).status();
    assert!(made.expect("`mke2fs` is installed").success());
    let machine = [options, &["--mem", "1G", "--disk", image.path()]].concat();
    let mut last = 0;
    for (round, mode) in (0..rounds).zip(modes.iter().cycle()) {
        let time = 3000 + fastrand::u64(0..10_000);
        last = work(*mode, &machine, last, Duration::from_millis(time));
        let script = format!("{START}{LOOK}");
        let output = mode.in_machine(&machine, &["sh", "-c", &script]);
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
            "round {round}, {mode:?}: killed after {time} ms; {last} said to be committed, \
             {largest} there; {history} of pgbench"
        );
        last = number(largest);
    }
}

fn rounds() -> Option<u32> {
    let rounds = std::env::var("BIVOUAC_PGBENCH").ok()?;
    Some(rounds.parse().expect("BIVOUAC_PGBENCH is a number"))
}

#[test]
fn postgresql_loses_nothing_that_it_has_committed() {
    let Some(rounds) = rounds() else { return };
    check("postgresql", &[], &[MODE], rounds);
}

/// A root with PostgreSQL as the host has it.
fn root() -> Directory {
    let mut programs = vec!["/usr/bin/setpriv".into()];
    for below in ["bin", "lib"] {
        let versions = fs::read_dir("/usr/lib/postgresql").expect("PostgreSQL is installed");
        for version in versions.flatten() {
            let files =
                fs::read_dir(version.path().join(below)).expect("it has programs").flatten();
            let files = files.map(|file| file.path()).filter(|path| path.is_file());
            // The compiler of queries, which is as large as all the rest.
            programs.extend(files.filter(|path| !path.ends_with("llvmjit.so")));
        }
    }
    let root = root_with("postgresql-root", &programs);
    let rest = "for each in usr/share/postgresql usr/share/zoneinfo etc/passwd etc/group; do
            mkdir -p \"$0/${each%/*}\" && cp -a \"/$each\" \"$0/$each\" || exit 1
        done; chmod 1777 \"$0/tmp\"";
    let copied = Command::new("sh").args(["-c", rest]).arg(&root.0).status();
    assert!(copied.expect("`sh` can be started").success());
    root
}

/// On a virtual block device, with one vCPU and with four.
#[test]
fn nor_does_it_in_paravirtual_machines() {
    let Some(rounds) = rounds() else { return };
    let root = root();
    let root = root.0.to_str().expect("the target directory's name is text");
    let options = [&PARAVIRTUAL[..], &["--root", root]].concat();
    let modes = [(UserExecution::Auto, 1), (UserExecution::Direct, 4)];
    let modes = modes.map(|(execution, processors)| Mode { execution, processors });
    check("postgresql-xen", &options, &modes, rounds);
}

/// Let it work for a while after it has begun, and kill it; the last number that it said was committed.
fn work(mode: Mode, machine: &[&str], last: u64, time: Duration) -> u64 {
    let script = format!("{START}{WORK}");
    let mut child = mode
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
