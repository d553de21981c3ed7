//! Paravirtual domains whose memory and processors change, that go on from snapshots, and whose store is looked at.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use whole_machine::complaints::complaint;
use whole_machine::text;
use whole_machine::waiting::wait_for;

use super::COUNTING;
use super::place::{Place, end_of, start};

const MIB: u64 = 1 << 20;

/// Starts a paravirtual domain.
#[track_caller]
fn run(place: &Place, name: &str, options: &[&str], script: &str) {
    let first = ["run", "-d", "--xen", "--name", name];
    let command = ["--", "sh", "-c", script];
    assert_eq!(place.says(&[&first, options, &command].concat()), format!("{name}\n"));
}

/// What a script prints in a domain.
fn said(place: &Place, name: &str, script: &str) -> String {
    text(&place.exec(name, script).stdout).trim().to_owned()
}

/// Bytes that the kernel of a domain says it has.
fn total(place: &Place, name: &str) -> u64 {
    said(place, name, "awk '/^MemTotal/ { print $2 }' /proc/meminfo").parse::<u64>().unwrap_or(0)
        << 10
}

/// Nothing that a domain has counted wrong, and no complaint of its kernel's.
#[track_caller]
fn is_in_order(place: &Place, name: &str) {
    assert_eq!(place.says(&["xen", "audit", name]), "");
    let log = said(place, name, "dmesg");
    assert_eq!(complaint(&log), None, "{log}");
}

/// The numbers that a domain has said.
fn numbers(place: &Place, name: &str) -> Vec<u64> {
    let log = text(&place.output(&["logs", name]).stdout);
    let whole = log.rsplit_once('\n').map_or("", |(whole, _)| whole);
    whole.lines().filter_map(|line| line.parse().ok()).collect()
}

#[test]
fn the_stock_balloon_gives_memory_back_and_takes_it_up_to_the_maximum() {
    let place = Place::new();
    let options = ["--cpus", "1", "--mem", "512M", "--max-mem", "640M", "--net", "none"];
    run(&place, "db", &options, "sleep 1000");
    let statistics = || -> Value {
        let rows: Value =
            serde_json::from_str(&place.says(&["stats", "--format", "json", "db"])).expect("JSON");
        rows[0]["statistics"].clone()
    };
    let used = || statistics()["memory_used"].as_u64().expect("a number");
    // All of it has been used, and is free in the guest only.
    place.exec("db", "dd if=/dev/zero bs=1M count=200 2>/dev/null > /tmp/x; rm /tmp/x");
    assert!(used() > 200 * MIB);
    let all = total(&place, "db");
    place.says(&["xen", "set", "db", "--mem", "128M"]);
    wait_for("it keeps 128 MiB", || statistics()["balloon"]["given"] == 512 * MIB);
    wait_for("the host has the rest", || used() < 150 * MIB);
    assert_eq!(total(&place, "db"), all - 384 * MIB);
    assert!(place.complains(&["xen", "set", "db", "--mem", "1G"]).contains("bytes of memory"));
    place.says(&["balloon", "db", "1G"]);
    wait_for("it has all that it may have", || statistics()["balloon"]["given"] == 0);
    wait_for("its kernel uses it", || total(&place, "db") > all + 100 * MIB);
    let filled = "dd if=/dev/zero bs=1M count=200 2>/dev/null | tr '\\0' x > /tmp/x; \
                  tr -d x < /tmp/x | wc -c";
    assert_eq!(said(&place, "db", filled), "0");
    assert!(place.complains(&["xen", "set", "db", "--cpus", "2"]).contains("1 to 1 processors"));
    is_in_order(&place, "db");
}

#[test]
fn paravirtual_domains_go_on_from_a_snapshot_as_often_as_one_likes() {
    let place = Place::new();
    run(&place, "one", &["--cpus", "2", "--mem", "192M"], COUNTING);
    wait_for("it counts", || numbers(&place, "one").len() > 5);
    let file = place.path.join("one.snapshot");
    let path = file.to_str().expect("it is UTF-8");
    place.says(&["snapshot", "one", path]);
    let seen = *numbers(&place, "one").last().expect("it counts");
    for name in ["two", "three"] {
        assert_eq!(place.says(&["restore", "-d", "--name", name, path]), format!("{name}\n"));
    }
    let clock = "cat /proc/uptime; sleep 0.2; cat /proc/uptime";
    for name in ["one", "two", "three"] {
        wait_for("it goes on", || numbers(&place, name).len() > 5);
        let numbers = numbers(&place, name);
        assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "{name}: {numbers:?}");
        assert!(name == "one" || numbers[0] <= seen + 20, "{name}: {numbers:?} after {seen}");
        let times: Vec<f64> = said(&place, name, clock)
            .lines()
            .filter_map(|line| line.split(' ').next()?.parse().ok())
            .collect();
        assert!(times.len() == 2 && times[1] - times[0] >= 0.19, "{name}: {times:?}");
        is_in_order(&place, name);
    }
    let random = |name| said(&place, name, "head -c 16 /dev/urandom | od -An -tx1");
    assert_ne!(random("two"), random("three"));
    // One that has gone on can be kept again, and its memory can be changed.
    let again = place.path.join("two.snapshot");
    let again = again.to_str().expect("it is UTF-8");
    place.says(&["snapshot", "--compress", "two", again]);
    place.says(&["restore", "-d", "--name", "four", again]);
    place.says(&["xen", "set", "four", "--mem", "128M"]);
    let target = |name| place.says(&["xen", "store", "read", "--domain", name, "memory/target"]);
    assert_eq!((target("four"), target("one")), ("131072\n".into(), "196608\n".into()));
    wait_for("it keeps 128 MiB", || total(&place, "four") < total(&place, "one") - 60 * MIB);
    is_in_order(&place, "four");
    place.says(&["stop", "four"]);
    assert_eq!(place.says(&["wait", "four"]), "143\n");
}

/// An image of 32 MiB with an empty file system.
fn image(path: &Path) {
    File::create(path).and_then(|file| file.set_len(32 * MIB)).expect("a file");
    let made = Command::new("mkfs.ext4").args(["-q", "-F"]).arg(path).status();
    assert!(made.expect("e2fsprogs is installed").success());
}

#[test]
fn a_disk_goes_on_with_its_domain_if_it_is_the_same() {
    let place = Place::new();
    let disk = place.path.join("disk.img");
    image(&disk);
    let disk_name = disk.to_str().expect("it is UTF-8");
    let script = "mount -t ext4 /dev/xvda /mnt; n=0; while :; do n=$((n+1)); \
                  seq 1 20000 | sha256sum >> /mnt/sums; echo $n; done";
    run(&place, "one", &["--mem", "160M", "--net", "none", "--disk", disk_name], script);
    wait_for("it writes", || numbers(&place, "one").len() > 10);
    let file = place.path.join("one.snapshot");
    let path = file.to_str().expect("it is UTF-8");
    place.says(&["snapshot", "one", path]);
    place.says(&["pause", "one"]);
    // The disk of that moment, or nearly: what was written since is in the file system's journal.
    let copy = place.path.join("copy.img");
    fs::copy(&disk, &copy).expect("a copy");
    place.says(&["rm", "-f", "one"]);
    let copy_name = copy.to_str().expect("it is UTF-8");
    place.says(&["restore", "-d", "--name", "two", "--disk", copy_name, path]);
    wait_for("it writes", || numbers(&place, "two").len() > 10);
    let sums = said(&place, "two", "sync; sort -u /mnt/sums | wc -l");
    assert_eq!(sums, "1", "{:?}", place.exec("two", "sort -u /mnt/sums; dmesg | tail"));
    assert_eq!(place.says(&["xen", "audit", "two"]), "");
    place.says(&["rm", "-f", "two"]);
    // Another disk is none that its guest knows.
    let other = place.path.join("other.img");
    File::create(&other).and_then(|file| file.set_len(16 * MIB)).expect("a file");
    let other = other.to_str().expect("it is UTF-8");
    let complaint = place.complains(&["restore", "--name", "three", "--disk", other, path]);
    assert!(complaint.contains("sectors"), "{complaint}");
}

#[test]
fn processors_go_and_come_back() {
    let place = Place::new();
    run(&place, "db", &["--cpus", "4", "--mem", "160M", "--net", "none"], "sleep 1000");
    place.says(&["xen", "set", "db", "--cpus", "1"]);
    wait_for("it uses one", || said(&place, "db", "nproc") == "1");
    place.says(&["xen", "set", "db", "--cpus", "3"]);
    // The kernel has them again; that they are used is for its user space to say.
    let online = "cd /sys/devices/system/cpu; for n in 1 2; do \
                  until echo 1 > cpu$n/online; do sleep 0.1; done 2> /dev/null; done; nproc";
    assert_eq!(said(&place, "db", online), "3");
    let each = "cd /sys/devices/system/cpu; for n in 1 2; do echo 0 > cpu$n/online; nproc; \
                echo 1 > cpu$n/online; nproc; done | tr '\\n' ' '";
    assert_eq!(said(&place, "db", each), "2 3 2 3");
    is_in_order(&place, "db");
}

#[test]
fn a_store_is_read_written_and_watched_from_outside() {
    let place = Place::new();
    run(&place, "db", &["--mem", "128M", "--net", "none"], "sleep 1000");
    let store = |action: &[&str]| {
        place.says(&[&["xen", "store", action[0], "--domain", "db"], &action[1..]].concat())
    };
    assert_eq!(store(&["read", "/local/domain/1/domid"]), "1\n");
    let listed = store(&["ls", "-p", "device/console/1"]);
    assert!(listed.contains("state = \"4\"  (n1,r0)\n"), "{listed}");
    let watcher = place.command(&["xen", "store", "watch", "--domain", "db", "-n", "2", "data"]);
    let mut watcher = start(watcher);
    // Until it has seen one it may not watch yet.
    wait_for("it has seen a change", || {
        store(&["write", "data/x", "some text"]);
        watcher.try_wait().expect("it can be asked").is_some()
    });
    let seen = text(&end_of(watcher).stdout);
    assert_eq!(seen, "/local/domain/1/data\n/local/domain/1/data/x\n");
    assert_eq!(store(&["read", "data/x"]), "some text\n");
    store(&["rm", "data/x"]);
    let read = ["xen", "store", "read", "--domain", "db", "data/x"];
    assert!(place.complains(&read).contains("ENOENT"));
    assert!(place.complains(&["xen", "store", "read", "data/x"]).contains("domain"));
    // A kernel that is asked to suspend hears that it need not, and goes on.
    store(&["write", "control/shutdown", "suspend"]);
    wait_for("it has been asleep", || said(&place, "db", "dmesg").contains("Restarting tasks"));
    assert_eq!(said(&place, "db", "echo awake"), "awake");
    is_in_order(&place, "db");
}
