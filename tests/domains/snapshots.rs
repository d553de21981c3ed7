//! Domains that go on from a snapshot, and files that are none.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;

use whole_machine::text;
use whole_machine::waiting::wait_for;

use super::COUNTING;
use super::place::{Place, end_of, start};

impl Place {
    fn at(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Takes a snapshot of a domain; the file.
    #[track_caller]
    fn snapshot(&self, name: &str, more: &[&str]) -> PathBuf {
        let file = self.at(&format!("{name}.snapshot"));
        let path = file.to_str().expect("it is UTF-8");
        self.says(&[&["snapshot"], more, &[name, path]].concat());
        file
    }

    #[track_caller]
    fn restore(&self, name: &str, file: &std::path::Path) {
        let path = file.to_str().expect("it is UTF-8");
        assert_eq!(self.says(&["restore", "-d", "--name", name, path]), format!("{name}\n"));
    }

    /// The numbers that a domain has said.
    fn numbers(&self, name: &str) -> Vec<u64> {
        let log = text(&self.output(&["logs", name]).stdout);
        // Who is killed may have written half of a line.
        let whole = log.rsplit_once('\n').map_or("", |(whole, _)| whole);
        whole.lines().filter_map(|line| line.parse().ok()).collect()
    }
}

/// Each number follows the one before.
fn are_consecutive(numbers: &[u64]) -> bool {
    numbers.windows(2).all(|pair| pair[1] == pair[0] + 1)
}

#[test]
fn domains_go_on_from_a_snapshot_as_often_as_one_likes() {
    let place = Place::new();
    place.detach("one", COUNTING);
    wait_for("it counts", || place.numbers("one").len() > 5);
    let file = place.snapshot("one", &[]);
    let seen = *place.numbers("one").last().expect("it counts");
    let compressed = place.at("compressed");
    place.says(&["snapshot", "--compress", "one", compressed.to_str().expect("it is UTF-8")]);
    let metadata = fs::metadata(&file).expect("it is there");
    assert_eq!(metadata.mode() & 0o777, 0o600);
    assert!(fs::metadata(&compressed).expect("it is there").len() < metadata.len());
    for (name, file) in [("two", &file), ("three", &file), ("four", &compressed)] {
        place.restore(name, file);
    }
    for name in ["one", "two", "three", "four"] {
        wait_for("it goes on", || place.numbers(name).len() > 5);
        let numbers = place.numbers(name);
        assert!(are_consecutive(&numbers), "{name}: {numbers:?}");
        assert!(name == "one" || numbers[0] <= seen + 20, "{name}: {numbers:?} after {seen}");
        assert_eq!(place.exec(name, "echo hello").stdout, b"hello\n");
    }
    let complaint = place.complains(&["snapshot", "one", file.to_str().expect("it is UTF-8")]);
    assert!(complaint.contains("--force"), "{complaint}");
    // One that goes on from a snapshot can be kept in one, and is stopped as any other.
    let again = place.snapshot("two", &[]);
    place.says(&["stop", "two"]);
    place.restore("five", &again);
    wait_for("it goes on", || place.numbers("five").len() > 5);
    assert!(are_consecutive(&place.numbers("five")));
}

#[test]
fn one_that_is_not_detached_has_the_commands_streams_and_status() {
    let place = Place::new();
    // Whoever says that it may go on is to hear that he has said so, before the machine ends.
    let script =
        "until test -e /tmp/go; do sleep 0.1; done; sleep 1; echo out; echo err >&2; exit 7";
    place.detach("one", script);
    let file = place.snapshot("one", &[]);
    let path = file.to_str().expect("it is UTF-8");
    let restored = start(place.command(&["restore", "--name", "two", path]));
    wait_for("it goes on", || place.exec("two", "touch /tmp/go").status.success());
    let output = end_of(restored);
    assert_eq!((&output.stdout[..], &output.stderr[..]), (&b"out\n"[..], &b"err\n"[..]));
    assert_eq!(output.status.code(), Some(7));
    place.says(&["rm", "-f", "one"]);
    assert_eq!(place.says(&["ps", "-a", "--format", "json"]).trim(), "[]");
}

#[test]
fn domains_from_one_snapshot_differ_in_what_is_random_and_not_in_the_time() {
    let place = Place::new();
    place.detach("one", "sleep 1000");
    let file = place.snapshot("one", &[]);
    std::thread::sleep(std::time::Duration::from_secs(2));
    place.restore("two", &file);
    place.restore("three", &file);
    let random = |name| place.exec(name, "head -c 16 /dev/urandom | od -An -tx1").stdout;
    assert_ne!(random("two"), random("three"));
    let time = |name| -> i64 {
        text(&place.exec(name, "date +%s").stdout).trim().parse().expect("a number")
    };
    let (then, now) = (time("one"), time("two"));
    assert!((0..=5).contains(&(now - then)), "{then}, {now}");
}

#[test]
fn several_processors_that_compute_go_on_computing() {
    let place = Place::new();
    let script = "for job in 1 2 3; do
        (n=0; while :; do n=$((n + 1)); \
        echo $job $(seq 1 20000 | sha256sum | head -c 8); done) & done; wait";
    let all = ["--busybox", "--mem", "128M", "--cpus", "2", "--", "sh", "-c", script];
    place.says(&[&["run", "-d", "--name", "one"], &all[..]].concat());
    let lines = |name: &str| {
        let log = text(&place.output(&["logs", name]).stdout);
        log.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    wait_for("it computes", || lines("one").len() > 6);
    let file = place.snapshot("one", &[]);
    place.says(&["rm", "-f", "one"]);
    for name in ["two", "three"] {
        place.restore(name, &file);
        wait_for("it computes", || lines(name).len() > 6);
        let lines = lines(name);
        let digest = |line: &String| line.split(' ').nth(1).map(str::to_owned);
        assert!(lines.iter().all(|line| digest(line) == digest(&lines[0])), "{lines:?}");
        place.says(&["rm", "-f", name]);
    }
}

#[test]
fn what_a_guest_writes_while_it_is_copied_is_of_one_moment() {
    let place = Place::new();
    // Half of memory is always being written, and one half of that says what the other should be.
    let script = "cd /tmp; n=0; while :; do
        head -c 12000000 /dev/urandom > one; cp one two; cmp one two || echo torn
        n=$((n + 1)); echo $n; done";
    place.detach("one", script);
    wait_for("it writes", || place.numbers("one").len() > 3);
    for (name, more) in [("two", &[][..]), ("three", &["--compress"])] {
        let file = place.snapshot("one", &[more, &["--force"]].concat());
        place.restore(name, &file);
        wait_for("it goes on", || place.numbers(name).len() > 3);
        assert!(are_consecutive(&place.numbers(name)));
        let log = text(&place.output(&["logs", name]).stdout);
        assert!(!log.contains("torn"), "{name}: {log}");
        place.says(&["rm", "-f", name]);
    }
}

#[test]
fn files_of_the_host_stay_open() {
    let place = Place::new();
    let directory = place.at("shared");
    fs::create_dir(&directory).expect("a directory");
    let volume = format!("{}:/shared", directory.display());
    let script = "cd /shared; exec 3>>log; mkdir -p deep/er; cd deep/er; n=0
        while :; do n=$((n + 1)); echo $n >&3; echo $n; cat ../../given; sleep 0.1; done";
    fs::write(directory.join("given"), "").expect("a file");
    place.says(&[
        "run", "-d", "--name", "one", "--mem", "256M", "--volume", &volume, "--", "sh", "-c",
        script,
    ]);
    wait_for("it counts", || place.numbers("one").len() > 3);
    let file = place.snapshot("one", &[]);
    place.says(&["rm", "-f", "one"]);
    place.restore("two", &file);
    wait_for("it goes on", || place.numbers("two").len() > 5);
    fs::write(directory.join("given"), "777777\n").expect("a file");
    wait_for("it sees what is new", || place.numbers("two").contains(&777_777));
    let log = fs::read_to_string(directory.join("log")).expect("it is there");
    let last = log.lines().last().and_then(|line| line.parse::<u64>().ok());
    assert!(last > place.numbers("two").first().copied(), "{log}");
    // A directory that is another by now is not taken for it.
    place.says(&["rm", "-f", "two"]);
    fs::rename(&directory, place.at("elsewhere")).expect("it can be moved");
    fs::create_dir(&directory).expect("a directory");
    let path = file.to_str().expect("it is UTF-8");
    let complaint = place.complains(&["restore", "-d", "--name", "three", path]);
    assert!(complaint.contains("does not fit"), "{complaint}");
}

#[test]
fn many_start_at_once_from_one_snapshot() {
    const DOMAINS: usize = 50;
    let place = Place::new();
    place.detach("first", "sleep 1000");
    let file = place.snapshot("first", &[]);
    let path = file.to_str().expect("it is UTF-8");
    let names: Vec<_> = (0..DOMAINS).map(|number| format!("many-{number}")).collect();
    let started: Vec<_> = names
        .iter()
        .map(|name| {
            place.command(&["restore", "-d", "--name", name, path]).spawn().expect("it starts")
        })
        .collect();
    for mut restored in started {
        assert!(restored.wait().expect("it ends").success());
    }
    for name in &names {
        assert_eq!(place.exec(name, "echo hello").stdout, b"hello\n", "{name}");
    }
    let all: Vec<_> = names.iter().map(String::as_str).collect();
    place.says(&[&["rm", "-f"], &all[..]].concat());
}

#[test]
fn what_is_damaged_is_refused_and_leaves_nothing() {
    let place = Place::new();
    place.detach("one", "sleep 1000");
    let good = fs::read(place.snapshot("one", &[])).expect("it can be read");
    place.says(&["rm", "-f", "one"]);
    let check = |bytes: &[u8], expected: &str| {
        let file = place.at("damaged");
        fs::write(&file, bytes).expect("a file");
        let path = file.to_str().expect("it is UTF-8");
        let output = place.output(&["restore", "-d", "--name", "two", path]);
        let complaint = text(&output.stderr);
        assert_eq!(output.status.code(), Some(125), "{complaint}");
        assert!(complaint.contains(expected) && complaint.lines().count() == 1, "{complaint}");
        assert_eq!(place.says(&["ps", "-a", "--format", "json"]).trim(), "[]");
    };
    check(b"", "no snapshot");
    check(b"This is no snapshot, but a text.", "no snapshot");
    check(&good[..good.len() - 1], "damaged");
    check(&good[..good.len() / 2], "damaged");
    check(&good[..5000], "damaged");
    // Where there is nothing, there may be anything.
    let something = |from: usize| good[from..].iter().position(|&byte| byte != 0);
    let memory = [4096, good.len() / 2].map(|from| from + something(from).expect("there is more"));
    for place in [20, 70, good.len() - 10].into_iter().chain(memory) {
        let mut changed = good.clone();
        changed[place] ^= 1;
        check(&changed, "damaged");
    }
    let complaint = place.complains(&["restore", "/no/such/file"]);
    assert!(complaint.contains("/no/such/file"), "{complaint}");
    assert!(place.complains(&["restore", "/"]).contains("no snapshot"));
    assert!(place.complains(&["snapshot", "nobody", "/tmp/x"]).contains("no domain"));
}

#[test]
fn a_file_that_is_cut_while_it_is_in_use_ends_who_needs_it_and_nobody_else() {
    let place = Place::new();
    place.detach("one", "sleep 1; find / -xdev -type f | xargs cat > /dev/null; sleep 1000");
    let file = place.snapshot("one", &[]);
    place.detach("bystander", COUNTING);
    let path = file.to_str().expect("it is UTF-8");
    place.says(&["restore", "-d", "--no-verify", "--name", "two", path]);
    let length = fs::metadata(&file).expect("it is there").len();
    let cut = File::options().write(true).open(&file).expect("it can be written");
    cut.set_len(length / 4).expect("it can be cut");
    // Whatever it is asked for, some of it is in what is missing.
    let _ = place.exec("two", "ls -R / > /dev/null; cat /bin/busybox > /dev/null");
    wait_for("it has ended", || place.state("two").is_none_or(|state| state != "running"));
    let before = place.numbers("bystander").len();
    wait_for("the other goes on", || place.numbers("bystander").len() > before + 3);
    cut.write_all_at(b"x", 0).expect("it can be written");
    assert_eq!(place.exec("one", "echo hello").stdout, b"hello\n");
}

#[test]
fn what_a_snapshot_cannot_keep_is_said() {
    let place = Place::new();
    let image = place.at("disk");
    File::create(&image).and_then(|file| file.set_len(1 << 20)).expect("a disk");
    let disk = format!("{},snapshot", image.display());
    place.says(&[
        "run",
        "-d",
        "--name",
        "one",
        "--busybox",
        "--mem",
        "128M",
        "--disk",
        &disk,
        "--",
        "sleep",
        "1000",
    ]);
    let complaint = place.complains(&["snapshot", "one", "/tmp/never"]);
    assert!(complaint.contains("a snapshot cannot contain"), "{complaint}");
}

#[test]
fn the_second_of_a_kind_starts_warm() {
    let place = Place::new();
    let kind = format!("biv.test={}", std::process::id());
    let run = |more: &[&str]| {
        let all = ["run", "--mem", "160M", "--append", &kind];
        let command = ["--", "sh", "-c", "echo $((6 * 7)); exit 3"];
        let mut biv = place.command(&[&all[..], more, &command].concat());
        let output = biv.env("RUST_LOG", "debug").output().expect("it can be started");
        assert_eq!((&output.stdout[..], output.status.code()), (&b"42\n"[..], Some(3)));
        text(&output.stderr)
    };
    assert!(run(&["--cold"]).contains("the guest's init is up"));
    let first = run(&[]);
    assert!(first.contains("the next start is warm"), "{first}");
    let second = run(&[]);
    assert!(!second.contains("the next start is warm"), "{second}");
    assert!(second.contains("going on from a snapshot"), "{second}");
    // Where it is started makes no difference: it is told what to mount.
    let mut elsewhere = place.command(&["run", "--mem", "160M", "--append", &kind, "--", "pwd"]);
    let output = elsewhere.current_dir(&place.path).output().expect("it can be started");
    assert_eq!(text(&output.stdout), format!("{}\n", place.path.display()), "{output:?}");
    // Another kind of machine has nothing of it.
    assert!(run(&["--cpus", "3"]).contains("the next start is warm"));
}

/// The streams' line is full when the snapshot is taken, and nothing of what is on its way is lost or said
/// twice.
#[test]
fn who_says_much_goes_on_without_a_gap() {
    let place = Place::new();
    let file = place.path.join("much.snapshot");
    place.detach("web", "n=0; while :; do n=$((n + 1)); echo $n; done");
    wait_for("it has begun", || place.numbers("web").len() > 1000);
    place.says(&["snapshot", "web", file.to_str().expect("it is UTF-8")]);
    place.restore("again", &file);
    for name in ["web", "again"] {
        let before = place.numbers(name).last().copied().unwrap_or(0);
        wait_for("it goes on", || {
            place.numbers(name).last().is_some_and(|last| *last > before + 1000)
        });
        place.says(&["kill", name]);
        let numbers = place.numbers(name);
        let gap = numbers.windows(2).find(|pair| pair[0] + 1 != pair[1]);
        assert_eq!(gap, None, "{name} has a gap");
    }
}
