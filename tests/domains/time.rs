//! The guest's clock is the host's, however the machine has started.

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use whole_machine::text;

use super::place::Place;

/// What is promised, in nanoseconds.
const MOST: i128 = 1_000_000;

/// How often the clocks are compared; the more often, the better it is known how far they are apart.
const COMPARISONS: usize = 300;

fn now() -> i128 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later").as_nanos() as i128
}

/// The least and the most that the guest's clock can be ahead of the host's, in nanoseconds: each answer of the
/// guest's came between the question and its arrival, and the clocks are where all answers say.
fn ahead(place: &Place, name: &str) -> (i128, i128) {
    let script = "while read line; do echo $EPOCHREALTIME; done";
    let mut biv = place.command(&["exec", "-i", name, "bash", "-c", script]);
    let biv = biv.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    let mut shell = biv.spawn().expect("biv can be started");
    let (stdin, stdout) = (shell.stdin.take(), shell.stdout.take());
    let mut stdin = stdin.expect("it is piped");
    let mut lines = BufReader::new(stdout.expect("it is piped")).lines();
    let (mut least, mut most) = (i128::MIN, i128::MAX);
    for _ in 0..COMPARISONS {
        let before = now();
        stdin.write_all(b"\n").expect("it reads");
        let line = lines.next().expect("it answers").expect("it answers");
        let after = now();
        let guest = line.replace('.', "").parse::<i128>().expect("microseconds") * 1000;
        // The shell leaves out what is less than a microsecond.
        least = least.max(guest - after);
        most = most.min(guest + 1000 - before);
    }
    drop(stdin);
    assert!(shell.wait().expect("it ends").success());
    (least, most)
}

/// The clocks are not known to be further apart than promised.
#[track_caller]
fn check(place: &Place, name: &str, when: &str) {
    let (least, most) = ahead(place, name);
    println!("{when}: between {least} and {most} ns ahead");
    assert!(least <= MOST && most >= -MOST, "{when}: between {least} and {most} ns ahead");
}

#[test]
fn the_guests_clock_is_the_hosts_after_every_start_and_stays_so() {
    let place = Place::new();
    let run = |name: &str, more: &[&str]| {
        let kind = format!("biv.test=time-{}", std::process::id());
        let all = ["run", "-d", "--name", name, "--mem", "192M", "--append", &kind];
        place.says(&[&all[..], more, &["--", "sleep", "1000"]].concat());
    };
    run("cold", &["--cold"]);
    check(&place, "cold", "cold");
    run("first", &[]);
    check(&place, "first", "the first of its kind");
    place.says(&["rm", "-f", "first"]);
    run("warm", &[]);
    check(&place, "warm", "warm");
    let file = place.path.join("snapshot");
    let file = file.to_str().expect("it is UTF-8");
    place.says(&["snapshot", "warm", file]);
    std::thread::sleep(Duration::from_secs(1));
    place.says(&["restore", "-d", "--name", "restored", file]);
    check(&place, "restored", "restored");
    // Long enough for it to have been told the time again, twice.
    std::thread::sleep(Duration::from_secs(8));
    for name in ["cold", "warm", "restored"] {
        check(&place, name, &format!("{name}, later"));
    }
    // One that stood still is as late as the host.
    place.says(&["pause", "cold"]);
    std::thread::sleep(Duration::from_secs(2));
    place.says(&["resume", "cold"]);
    check(&place, "cold", "after a pause");
}

#[test]
fn a_clock_that_is_set_in_the_guest_stays_set() {
    let place = Place::new();
    place.detach("one", "sleep 1000");
    assert!(place.exec("one", "date -s '2001-02-03 04:05:06' >/dev/null").status.success());
    std::thread::sleep(Duration::from_secs(8));
    let year = text(&place.exec("one", "date +%Y").stdout);
    assert_eq!(year, "2001\n");
}

#[test]
fn make_finds_no_file_of_the_future_in_a_shared_directory() {
    let place = Place::new();
    let directory = place.path.join("shared");
    std::fs::create_dir(&directory).expect("a directory");
    let volume = format!("{}:/mnt", directory.display());
    let script = "cd /mnt || exit 9; command -v make >/dev/null || { echo no make; exit 0; }
        echo 'all: x' >M; printf 'x: y\\n\\ttouch x\\n' >>M; touch y; make -s -f M";
    // The first of a kind boots, the others do not.
    for _ in 0..4 {
        let output =
            place.output(&["run", "--mem", "168M", "--volume", &volume, "--", "sh", "-c", script]);
        let said = text(&output.stdout) + &text(&output.stderr);
        assert!(output.status.success(), "{said}");
        assert!(!said.contains("skew") && !said.contains("in the future"), "{said}");
        if said.contains("no make") {
            println!("left out: the host has no make");
        }
        let _ = std::fs::remove_file(directory.join("x"));
    }
}
