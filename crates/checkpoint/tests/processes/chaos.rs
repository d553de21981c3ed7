//! Tracers that die, processes that cannot be stopped, processes that multiply, and hundreds of rounds.

use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use checkpoint::{Error, freeze, freeze_children};
use rustix::process::Signal;

use crate::support::{self, Directory, Namespace, Subject, compile, image, kill};

/// In a process that is to be a tracer: whom it freezes.
const TRACED: &str = "BIVOUAC_CHECKPOINT_TRACED";

/// Freezes a process, again and again, until somebody kills us.
fn trace(pid: u32) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while Instant::now() < deadline {
        match freeze(pid) {
            Ok(mut frozen) => drop(image(&mut frozen)),
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn tracers_that_are_killed() {
    // Each is this same test in a process of its own.
    if let Ok(traced) = std::env::var(TRACED) {
        return trace(traced.parse().expect("it is a number"));
    }
    let directory = Directory::new("killed");
    let Some(program) = compile(&directory, "still") else { return };
    for round in 0..12 {
        let _ = fs::remove_file(directory.path("output"));
        let Some(mut subject) = Subject::start(&directory, &program) else { return };
        let maps = || fs::read_to_string(format!("/proc/{}/maps", subject.pid));
        let before = maps().expect("it is there");
        let mut tracer = Command::new(std::env::current_exe().expect("we are a program"));
        tracer.args(["--exact", "chaos::tracers_that_are_killed"]);
        tracer.env(TRACED, subject.pid.to_string());
        tracer.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut tracer = tracer.spawn().expect("we can be started");
        thread::sleep(Duration::from_micros(20_000 + 1_700 * round));
        tracer.kill().expect("it is our child");
        tracer.wait().expect("it is our child");
        // It is as it was, or about to end: never half of both.
        let deadline = Instant::now() + Duration::from_secs(20);
        let is_alive = loop {
            match maps() {
                Ok(after) if after == before => break true,
                Ok(after) if !after.is_empty() => {}
                _ => break false,
            }
            assert!(Instant::now() < deadline, "it goes on with something that is not its own");
            thread::sleep(Duration::from_millis(1));
        };
        if is_alive && !is_ending(subject.pid) {
            subject.check();
        }
    }
}

/// Whether a process has got a signal that ends it, or has ended.
fn is_ending(pid: u32) -> bool {
    thread::sleep(Duration::from_millis(5));
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    // On a busy host it takes a while until it has noticed.
    let is_killed = |line: &str| {
        let mask = line.strip_prefix("SigPnd:").or_else(|| line.strip_prefix("ShdPnd:"));
        let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        mask.is_some_and(|mask| mask >> (libc::SIGKILL - 1) & 1 == 1)
    };
    status.is_empty() || status.contains("State:\tZ") || status.lines().any(is_killed)
}

/// A shell that bears a child and waits for what it says, again and again.
const BEARS: &str = "while :; do x=$(sh -c 'echo $PPID'); done";

#[test]
fn a_process_that_bears_a_child_as_it_is_stopped() {
    let Some(namespace) = Namespace::new(&["sh", "-c", BEARS]) else { return };
    for _ in 0..1500 {
        let frozen = freeze_children(namespace.init, &BTreeSet::new()).expect("all of them stop");
        assert!(!frozen.processes().is_empty());
    }
}

#[test]
fn a_process_that_waits_in_vfork() {
    let directory = Directory::new("vfork");
    let Some(program) = compile(&directory, "vfork") else { return };
    let Some(subject) = Subject::start(&directory, &program) else { return };
    let mut stuck = 0;
    for _ in 0..1000 {
        match freeze(subject.pid) {
            Err(Error::Stuck { why, .. }) => {
                assert!(why.contains("vfork"), "{why}");
                stuck += 1;
            }
            // It was not there yet.
            Ok(frozen) => frozen.thaw(),
            Err(error) => panic!("{error}"),
        }
        if stuck == 2 {
            break;
        }
    }
    assert_eq!(stuck, 2);
    fs::write(directory.path("place").join("go"), "").expect("there is room");
    assert_eq!(support::wait_for_lines(&subject.output, 2), "ok");
}

#[test]
fn a_process_that_waits_in_vfork_again_and_again() {
    let directory = Directory::new("vforks");
    let Some(program) = compile(&directory, "vforks") else { return };
    let Some(mut subject) = Subject::start(&directory, &program) else { return };
    for round in 0..1500 {
        match freeze(subject.pid) {
            Ok(frozen) => assert!(!frozen.processes().is_empty()),
            Err(error) => panic!("round {round}: {error}"),
        }
    }
    // It was let go each time.
    subject.check();
}

#[test]
fn processes_that_multiply() {
    let directory = Directory::new("bomb");
    let Some(program) = compile(&directory, "bomb") else { return };
    let Some(subject) = Subject::start(&directory, &program) else { return };
    kill(subject.pid, Signal::USR1);
    for _ in 0..5 {
        match freeze(subject.pid) {
            Ok(frozen) => {
                let stopped = frozen.processes();
                for _ in 0..2 {
                    check_stopped(subject.pid, &stopped);
                    thread::sleep(Duration::from_millis(5));
                }
            }
            Err(Error::Outrun) => println!("it was faster"),
            Err(error) => panic!("{error}"),
        }
        thread::sleep(Duration::from_millis(2));
    }
}

/// All living processes of a tree are among `stopped`, and stopped.
fn check_stopped(root: u32, stopped: &[u32]) {
    let mut found = vec![root];
    while let Some(pid) = found.pop() {
        found.extend(support::children(pid));
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("it is there");
        let state = stat.rsplit_once(") ").expect("it has a state").1.chars().next();
        match state {
            Some('Z' | 'X') => {}
            state => {
                assert_eq!(state, Some('t'), "{stat}");
                assert!(stopped.contains(&pid), "{pid} is not known");
            }
        }
    }
}

#[test]
fn two_hundred_rounds_leave_nothing() {
    let directory = Directory::new("rounds");
    let Some(program) = compile(&directory, "still") else { return };
    let Some(mut subject) = Subject::start(&directory, &program) else { return };
    let count = |pid: u32| {
        let own = fs::read_dir(format!("/proc/{pid}/fd")).expect("it is there").count();
        let maps = fs::read_to_string(format!("/proc/{pid}/maps")).expect("it is there");
        (own, maps.lines().count(), descriptors_of(pid))
    };
    let before = count(subject.pid);
    for round in 0..200 {
        let mut frozen = subject.freeze();
        image(&mut frozen);
        frozen.thaw();
        if round % 20 == 0 {
            subject.check();
        }
    }
    assert_eq!(count(subject.pid), before);
    // Mappings that could be one are one afterwards.
    subject.transplant();
    let before = count(subject.pid);
    for _ in 0..20 {
        subject.transplant();
        assert_eq!(count(subject.pid), before);
        assert_eq!(descriptors_of(subject.namespace.init), 0);
    }
    subject.check();
}

/// How many of our own descriptors lead to a process.
fn descriptors_of(pid: u32) -> usize {
    let (name, line) = (format!("/proc/{pid}/"), format!("Pid:\t{pid}\n"));
    let entries = fs::read_dir("/proc/self/fd").expect("there is /proc");
    let leads_there = |number: String| {
        let link = fs::read_link(format!("/proc/self/fd/{number}")).unwrap_or_default();
        let info = fs::read_to_string(format!("/proc/self/fdinfo/{number}")).unwrap_or_default();
        link.to_string_lossy().starts_with(&name) || info.contains(&line)
    };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|number| leads_there(number.clone()))
        .count()
}
