//! Paravirtual domains under load, of which processors, memory and whole snapshots are taken meanwhile, and the
//! processes that serve them. What they compute stays right, and nothing is left of them.
//!
//! `BIVOUAC_LOAD_ROUNDS=N` (2) has each done so often.

use std::fs;
use std::time::Duration;

use serde_json::Value;
use whole_machine::complaints::complaint;
use whole_machine::text;
use whole_machine::waiting::wait_for;

use super::place::{Place, signal};
use super::scheduling::keeper;

/// Writes, copies and compares files in memory, and forks for each step; counts what it has found to be right.
const LOAD: &str = "
    work() {
        n=0
        while :; do
            head -c 200000 /dev/urandom > /tmp/from$1; sum=$(md5sum < /tmp/from$1)
            cp /tmp/from$1 /tmp/to$1; n=$((n+1))
            if [ \"$(md5sum < /tmp/to$1)\" = \"$sum\" ]; then echo $n; else echo wrong; fi
        done
    }
    work 1 & work 2 & work 3 & wait";

/// Fills memory until there is none, and lets go of it, for ever.
const PRESSURE: &str =
    "while :; do head -c 400m /dev/zero | tail -c 100m | md5sum; done >/dev/null 2>&1";

/// Switches processors off and on for some time.
const PLUG: &str = "
    cd /sys/devices/system/cpu
    for round in 1 2 3; do
        for n in 1 2 3; do echo 0 > cpu$n/online || exit 1; done
        for n in 3 1 2; do echo 1 > cpu$n/online || exit 1; done
    done
    nproc";

fn rounds() -> usize {
    std::env::var("BIVOUAC_LOAD_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(2)
}

#[track_caller]
fn run(place: &Place, name: &str, options: &[&str], script: &str) {
    let first = ["run", "-d", "--xen", "--name", name, "--busybox"];
    let command = ["--", "sh", "-c", script];
    assert_eq!(place.says(&[&first, options, &command].concat()), format!("{name}\n"));
}

/// How many results were right; none may be wrong.
#[track_caller]
fn right(place: &Place, name: &str) -> usize {
    let log = text(&place.output(&["logs", name]).stdout);
    assert!(!log.contains("wrong"), "{name}: {log}");
    log.lines().count()
}

/// It goes on, has counted well, and its kernel has no complaint.
#[track_caller]
fn is_in_order(place: &Place, name: &str) {
    let before = right(place, name);
    wait_for("it goes on", || right(place, name) > before + 3);
    assert_eq!(place.says(&["xen", "audit", name]), "");
    let log = text(&place.exec(name, "dmesg").stdout);
    assert!(!log.is_empty() && complaint(&log).is_none(), "{name}: {log}");
}

/// Memory that the host has back of a domain's.
fn given(place: &Place, name: &str) -> u64 {
    let said = place.says(&["stats", "--format", "json", name]);
    let rows: Value = serde_json::from_str(&said).expect("JSON");
    rows[0]["statistics"]["balloon"]["given"].as_u64().expect("a number")
}

/// Nothing is there any more: no domain, no keeper.
#[track_caller]
fn leave_nothing(place: &Place, names: &[&str]) {
    for name in names {
        place.says(&["rm", "--force", name]);
    }
    wait_for("nothing is left of the keeper", || !place.path.join("bivouac/.keeper").exists());
    let left = fs::read_dir(place.path.join("bivouac")).expect("a directory").flatten();
    let left: Vec<_> = left.map(|entry| entry.file_name()).collect();
    assert_eq!(left, [".lock"]);
}

#[test]
fn processors_memory_and_snapshots_are_taken_under_load() {
    let place = Place::new();
    run(&place, "one", &["--cpus", "4", "--mem", "384M", "--net", "none"], LOAD);
    wait_for("it works", || right(&place, "one") > 3);
    let mut pressure = place.command(&["exec", "one", "sh", "-c", PRESSURE]);
    let mut pressure = pressure.spawn().expect("biv can be started");
    for round in 0..rounds() {
        let plugged = place.exec("one", PLUG);
        assert_eq!(text(&plugged.stdout), "4\n", "{plugged:?}");
        place.says(&["xen", "set", "one", "--mem", "256M"]);
        wait_for("it has given 128 MiB", || given(&place, "one") == 128 << 20);
        let file = place.path.join("snapshot");
        let file = file.to_str().expect("it is text");
        place.says(&["snapshot", "one", file]);
        place.says(&["xen", "set", "one", "--mem", "384M"]);
        for name in ["two", "three"] {
            place.says(&["restore", "-d", "--name", name, file]);
        }
        place.says(&["xen", "set", "two", "--mem", "384M"]);
        let plugged = place.exec("three", PLUG);
        assert_eq!(text(&plugged.stdout), "4\n", "{plugged:?}");
        wait_for("they have all again", || given(&place, "one") == 0 && given(&place, "two") == 0);
        for name in ["one", "two", "three"] {
            is_in_order(&place, name);
        }
        println!("round {round}: {} results are right", right(&place, "one"));
        place.says(&["rm", "--force", "two"]);
        place.says(&["rm", "--force", "three"]);
        fs::remove_file(file).expect("it was written");
    }
    leave_nothing(&place, &["one"]);
    assert!(pressure.wait().is_ok());
}

#[test]
fn a_keeper_may_be_killed_at_any_moment() {
    let place = Place::new();
    let names = ["a", "b", "c"];
    for name in names {
        let options = ["--cpus", "2", "--mem", "128M", "--net", "none", "--cap", "80"];
        run(&place, name, &options, LOAD);
    }
    for _ in 0..3 * rounds() {
        wait_for("there is a keeper", || {
            // Who changes a setting finds out that there is none; a domain that starts brings one.
            run(&place, "next", &["--mem", "96M", "--net", "none"], "true");
            wait_for("it has ended", || {
                place.state("next").is_some_and(|it| it.starts_with("ended"))
            });
            place.says(&["rm", "next"]);
            keeper(&place).is_some()
        });
        std::thread::sleep(Duration::from_millis(fastrand::u64(0..700)));
        if let Some(keeper) = keeper(&place) {
            signal(keeper, "KILL");
        }
        place.says(&["xen", "set", "a", "--weight", "300"]);
    }
    for name in names {
        is_in_order(&place, name);
    }
    run(&place, "next", &["--mem", "96M", "--net", "none"], "sleep 1000");
    wait_for("there is a keeper", || keeper(&place).is_some());
    leave_nothing(&place, &["a", "b", "c", "next"]);
}
