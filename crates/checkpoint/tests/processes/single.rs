//! One process with everything that a single-threaded process can have.

use crate::support::{Directory, Subject, compile, image, pages};

fn start(directory: &Directory) -> Option<Subject> {
    Subject::start(directory, &compile(directory, "single")?)
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
    let [before, after] = subject.check_transplant();
    assert_eq!(pages(&before).len(), pages(&after).len());
    subject.check();
}
