//! Scheduling among paravirtual domains: shares, caps, a keeper that is killed at the worst moment, a domain that
//! ignores its gates; and shares of the others, which the host schedules.
//!
//! The exact numbers are those of the simulator (crates/scheduler). What is asserted here comes about on a busy host,
//! too, if not at once: a keeper that the host gives no time cannot give any to others.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::Value;
use whole_machine::waiting::wait_for;

use super::place::{Place, signal};

const BUSY: &str = "while :; do :; done";

/// How long what domains use is watched.
const WINDOW: Duration = Duration::from_secs(2);

/// Start a domain with these options that computes.
fn start(place: &Place, name: &str, options: &[&str]) {
    let own = ["run", "-d", "--xen", "--name", name, "--cpus=1", "--mem=96M", "--net=none"];
    let command = ["--", "sh", "-c", BUSY];
    assert_eq!(place.says(&[&own[..], options, &command].concat()), format!("{name}\n"));
}

/// What the keeper says of domains, in the order of their names.
fn top(place: &Place) -> Vec<Value> {
    let said = place.says(&["xen", "top", "--format", "json"]);
    let rows: Value = serde_json::from_str(&said).expect("it is JSON");
    rows.as_array().expect("a list").clone()
}

/// A number of each domain's.
fn numbers(place: &Place, name: &str) -> Vec<f64> {
    top(place).iter().map(|row| row[name].as_f64().expect("a number")).collect()
}

/// Processors that domains use, in the order of their names, in the time to come.
fn shares(place: &Place) -> Vec<f64> {
    let (start, before) = (Instant::now(), numbers(place, "used_ns"));
    std::thread::sleep(WINDOW);
    let (after, passed) = (numbers(place, "used_ns"), start.elapsed().as_nanos() as f64);
    after.iter().zip(before).map(|(after, before)| (after - before) / passed).collect()
}

/// The keeper of this place: the process that holds its lock.
pub fn keeper(place: &Place) -> Option<u32> {
    let lock = fs::canonicalize(place.path.join("bivouac/.keeper/lock")).ok()?;
    let is_holder = |process: &PathBuf| {
        let files = fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
        let name = fs::read_to_string(process.join("comm")).unwrap_or_default();
        name == "biv keeper\n"
            && files.filter_map(|file| fs::read_link(file.path()).ok()).any(|file| file == lock)
    };
    let processes = fs::read_dir("/proc").expect("there is /proc").flatten();
    let found = processes.map(|entry| entry.path()).find(is_holder)?;
    found.file_name()?.to_str()?.parse().ok()
}

/// Wait until the keeper knows so many domains.
#[track_caller]
fn wait_for_domains(place: &Place, count: usize) {
    wait_for("the keeper finds the domains", || top(place).len() == count);
}

fn is_stopped(process: u32) -> bool {
    let state = fs::read_to_string(format!("/proc/{process}/stat")).expect("it lives");
    state.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
}

/// Have the next keeper find other gates than the domain looks at, which wants to run: a domain that ignores its gates,
/// as a guest could that owns its domain's process.
fn part_from_gates(place: &Place, name: &str) {
    let directory = place.path.join("bivouac").join(name);
    wait_for("it wants to run", || top(place).iter().any(|row| row["runnable"] == 1));
    fs::copy(directory.join("gates"), directory.join("copy")).expect("they are there");
    fs::rename(directory.join("copy"), directory.join("gates")).expect("it was copied");
    signal(keeper(place).expect("it has found the domain"), "KILL");
    wait_for("the keeper is gone", || keeper(place).is_none());
}

/// The nice values of the threads of a process.
fn nice_values(process: u32) -> Vec<i32> {
    let threads = fs::read_dir(format!("/proc/{process}/task")).expect("it lives").flatten();
    let nice = |thread: fs::DirEntry| {
        let stat = fs::read_to_string(thread.path().join("stat")).ok()?;
        let (_, fields) = stat.rsplit_once(") ")?;
        fields.split(' ').nth(16)?.parse().ok()
    };
    threads.filter_map(nice).collect()
}

#[test]
fn shares_of_a_machine_are_nice_values_of_all_that_it_is() {
    let place = Place::new();
    let options = ["--name", "web", "--busybox", "--cpu-shares", "102", "--cpus", "2"];
    place.says(&[&["run", "-d"], &options[..], &["--", "sleep", "1000"]].concat());
    let process = place.pid("web");
    let values = nice_values(process);
    assert!(values.len() > 2 && values.iter().all(|nice| *nice >= 10), "{values:?}");
    match fs::read_to_string(format!("/proc/{process}/autogroup")) {
        Ok(group) => assert!(group.trim_end().ends_with("nice 10"), "{group}"),
        Err(_) => println!("left out: this host does not share out among sessions"),
    }
    let refused = place.complains(&["run", "--cpu-shares", "512", "--xen", "--", "true"]);
    assert!(refused.contains("--xen"), "{refused}");
}

#[test]
fn weights_and_caps_hold_and_can_be_changed() {
    let place = Place::new();
    // Each may have one processor; together they want more than there are.
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let names: Vec<String> = (0..=cores).map(|number| format!("d{number}")).collect();
    for name in &names {
        start(&place, name, &["--weight", if name == "d0" { "64" } else { "512" }]);
    }
    wait_for_domains(&place, names.len());
    wait_for("the light one gets less", || {
        let shares = shares(&place);
        shares[0] * 2.0 < shares[1]
    });
    let first = &top(&place)[0];
    assert_eq!((&first["name"], &first["weight"]), (&"d0".into(), &64.into()));
    assert!(first["waits"].as_u64() > Some(0) && first["vcpus"] == 1, "{first}");

    place.says(&["xen", "set", "d0", "--weight", "4096"]);
    place.says(&["xen", "set", "d1", "--cap", "10", "--warp", "20"]);
    wait_for("the heavy one gets more than the capped one", || {
        let shares = shares(&place);
        shares[0] > 2.0 * shares[1] && shares[1] < 0.2
    });
    let sheet = place.says(&["xen", "info", "d1"]);
    assert!(sheet.contains("weight       512\ncap          10%\nwarp         20 ms\n"), "{sheet}");
    // The guest knows what it was denied: the eighth number is stolen time (proc(5)).
    let script = "read cpu a b c d e f g stolen rest </proc/stat; echo $stolen";
    let stolen = place.exec("d1", script).stdout;
    let stolen: u64 = String::from_utf8_lossy(&stolen).trim().parse().expect("a number");
    assert!(stolen > 100, "{stolen} hundredths of a second");
    let table = place.says(&["xen", "top", "--once"]);
    assert!(table.starts_with("NAME     CPU    WAIT "), "{table}");
    assert!(place.complains(&["xen", "set", "d1", "--weight", "0"]).contains("--weight"));
    // All have computed all the time, and none took more than it was given.
    assert!(numbers(&place, "stops").iter().all(|stops| *stops == 0.0), "{:?}", top(&place));

    // The host's scheduler has no caps, and ours has them again.
    let waits = || numbers(&place, "waits")[1];
    assert_eq!(place.says(&["xen", "scheduler"]), "bvt\n");
    place.says(&["xen", "scheduler", "host"]);
    assert_eq!(place.says(&["xen", "scheduler"]), "host\n");
    wait_for("nobody waits", || waits() == waits());
    place.says(&["xen", "scheduler", "bvt"]);
    wait_for("the capped one waits again", || waits() < waits());
}

#[test]
fn domains_go_on_without_a_keeper_and_the_next_one_finds_them() {
    let place = Place::new();
    start(&place, "a", &["--cap", "20"]);
    wait_for_domains(&place, 1);
    let first = keeper(&place).expect("a domain has a keeper");
    signal(first, "KILL");
    wait_for("the keeper is gone", || keeper(&place).is_none());
    // Its gate opens by itself.
    assert!(place.exec("a", "echo it runs").status.success());
    assert_eq!(top(&place).len(), 0);
    place.says(&["xen", "set", "a", "--cap", "30"]);
    start(&place, "b", &[]);
    wait_for_domains(&place, 2);
    assert!(keeper(&place).is_some_and(|second| second != first));
    let rows = top(&place);
    assert_eq!((&rows[0]["cap"], &rows[1]["cap"]), (&30.into(), &Value::Null));
    wait_for("the cap holds", || shares(&place)[0] < 0.4);
    // One that has nothing to say holds nobody up.
    let second = keeper(&place).expect("it was found");
    signal(second, "STOP");
    start(&place, "c", &[]);
    signal(second, "CONT");
    wait_for_domains(&place, 3);
    place.says(&["rm", "--force", "a"]);
    place.says(&["rm", "--force", "b"]);
    place.says(&["rm", "--force", "c"]);
    wait_for("nothing is left of the keeper", || !place.path.join("bivouac/.keeper").exists());
}

#[test]
fn who_ignores_its_gates_is_stopped_as_long_as_there_is_a_keeper() {
    let place = Place::new();
    start(&place, "sly", &["--cap", "5", "--user-exec", "direct"]);
    wait_for_domains(&place, 1);
    part_from_gates(&place, "sly");
    start(&place, "fair", &["--cap", "20"]);
    wait_for_domains(&place, 2);
    let (fair, sly) = (place.pid("fair"), place.pid("sly"));
    wait_for("it is found out again and again", || numbers(&place, "stops")[1] >= 3.0);
    // What it takes between two stops it does not keep.
    wait_for("it gains nothing", || shares(&place)[1] < 0.5);
    assert!(numbers(&place, "stops")[0] == 0.0 && !is_stopped(fair), "{:?}", top(&place));
    for _ in 0..2 {
        wait_for("it is stopped", || is_stopped(sly));
        let killed = keeper(&place).expect("somebody has stopped it");
        signal(killed, "KILL");
        // Nobody is left who could let it go on but the host.
        wait_for("it goes on", || !is_stopped(sly));
        wait_for("the keeper is gone", || keeper(&place).is_none());
        assert!(place.exec("sly", "echo it runs").status.success());
        // The next domain brings another keeper.
        start(&place, "next", &[]);
        wait_for_domains(&place, 3);
        place.says(&["rm", "--force", "next"]);
    }
    // It ends with its helpers though they are stopped.
    let helpers = fs::read_to_string(place.path.join("bivouac/sly/helpers")).expect("it is there");
    let helpers = PathBuf::from("/proc").join(helpers.trim());
    assert!(helpers.join("stat").exists(), "{helpers:?}");
    wait_for("it is stopped once more", || is_stopped(sly));
    place.says(&["rm", "--force", "sly"]);
    wait_for("its helpers are gone", || !helpers.exists());
}
