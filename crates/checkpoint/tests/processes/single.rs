//! One process with everything that a single-threaded process can have.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use crate::support::{Directory, Subject, compile, image, pages};

fn start(directory: &Directory) -> Option<Subject> {
    Subject::start(directory, &compile(directory, "single")?)
}

/// Wait until it computes, in its loop: what it does before that takes no such time.
fn wait_for_loop(pid: u32) {
    let deadline = Instant::now() + Duration::from_secs(20);
    let ticks = || {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("it is there");
        let fields = stat.rsplit_once(") ").expect("it has a name").1.to_owned();
        fields.split(' ').nth(11).and_then(|field| field.parse::<u64>().ok()).expect("a number")
    };
    let before = ticks();
    while ticks() < before + 5 {
        assert!(Instant::now() < deadline, "it does not compute");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn it_goes_on_after_a_dump() {
    let directory = Directory::new("leave-running");
    let Some(mut subject) = start(&directory) else { return };
    subject.check();
    for _ in 0..3 {
        let mut frozen = subject.freeze();
        let first = image(&mut frozen);
        let second = image(&mut frozen);
        assert_eq!(first.state().processes[0].threads, second.state().processes[0].threads);
        frozen.thaw();
        subject.check();
    }
}

#[test]
fn it_is_restarted_twice_in_a_row() {
    let directory = Directory::new("restart");
    let Some(mut subject) = start(&directory) else { return };
    for _ in 0..3 {
        subject.transplant();
        subject.check();
    }
}

#[test]
fn a_dump_of_what_was_restarted_is_the_same() {
    let directory = Directory::new("same");
    let Some(mut subject) = start(&directory) else { return };
    wait_for_loop(subject.pid);
    let [before, after] = subject.check_transplant();
    assert_eq!(pages(&before).len(), pages(&after).len());
    subject.check();
}
