//! One process with everything that a single-threaded process can have.

use crate::support::{self, Directory, Subject, compile, image, pages};

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
    let mut frozen = subject.freeze();
    let before = image(&mut frozen);
    frozen.kill();
    subject.namespace = support::Namespace::new(&[]).expect("the first one could be made");
    let restarted = checkpoint::restart(subject.namespace.init, &before, &checkpoint::Given::new());
    let restarted = restarted.unwrap_or_else(|error| panic!("{error}"));
    subject.pid = restarted.numbers()[&before.state().processes[0].pid];
    restarted.go().unwrap_or_else(|error| panic!("{error}"));
    let after = image(&mut subject.freeze());
    support::check_same(&before, &after);
    assert_eq!(pages(&before).len(), pages(&after).len());
    subject.check();
}
