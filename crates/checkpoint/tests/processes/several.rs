//! Threads, and trees of processes.

use checkpoint::{Given, restart};

use crate::support::{self, Directory, Network, Subject, compile, image};

/// It goes on after a dump, is restarted twice, and a dump of what was restarted is the same.
pub fn check(program: &str) {
    check_in(Network::Ours, program);
}

/// The same with that network.
pub fn check_in(network: Network, program: &str) {
    let directory = Directory::new(program);
    let Some(compiled) = compile(&directory, program) else { return };
    let Some(mut subject) = Subject::start_in(network, &directory, &compiled) else { return };
    subject.check();
    subject.check_dumps(2);
    for _ in 0..3 {
        subject.transplant();
        subject.check();
    }
    subject.check_transplant();
    subject.check();
}

/// Whoever restarts on a smaller host has that host's limits.
#[test]
fn limits_that_cannot_be_had_are_those_that_can() {
    const PROCESSES: usize = 6;
    let directory = Directory::new("limits");
    let Some(compiled) = compile(&directory, "still") else { return };
    let Some(mut subject) = Subject::start(&directory, &compiled) else { return };
    let limit =
        |subject: &Subject| image(&mut subject.freeze()).state().processes[0].limits[PROCESSES];
    let before = limit(&subject);
    subject.transplant_with(|state| {
        state.processes[0].limits[PROCESSES] = (before.0, u64::MAX);
    });
    assert_eq!(limit(&subject), before);
}

#[test]
fn threads_that_wait_in_several_ways() {
    check("threads");
}

#[test]
fn threads_that_run_in_several_ways() {
    check("modes");
}

#[test]
fn processes_with_rights_of_their_own() {
    check("credentials");
}

#[test]
fn threads_that_wait_in_all_kinds_of_calls() {
    check("calls");
}

#[test]
fn futexes_whose_owners_end() {
    check("futexes");
}

#[test]
fn memory_of_all_kinds() {
    check("memory");
}

#[test]
fn a_process_that_waits_for_events() {
    check("events");
}

#[test]
fn processes_that_are_open_and_owners_of_files() {
    check("tasks");
}

#[test]
fn named_pipes_and_locks() {
    check("locks");
}

#[test]
fn system_v_ipc() {
    check("sysv");
}

#[test]
fn semaphores_that_are_given_back() {
    check("undo");
}

#[test]
fn posix_message_queues() {
    // Where namespaces of these tests have them as files.
    if !std::path::Path::new("/srv").is_dir() {
        println!("skipped: there is no /srv");
        return;
    }
    check("queues");
}

#[test]
fn posix_shared_memory() {
    if !std::path::Path::new("/dev/shm").is_dir() {
        println!("skipped: there is no /dev/shm");
        return;
    }
    check("shm");
}

#[test]
fn changes_of_files() {
    check("inotify");
}

#[test]
fn a_tree_of_processes() {
    check("tree");
}

/// Pages that parent and child have in common take memory once, before and after.
#[test]
fn what_was_copied_on_write_still_is() {
    let directory = Directory::new("shared-pages");
    let Some(compiled) = compile(&directory, "tree") else { return };
    let Some(mut subject) = Subject::start(&directory, &compiled) else { return };
    let before = resident(subject.pid);
    subject.transplant();
    let after = resident(subject.pid);
    println!("{before} KiB before, {after} KiB after");
    assert!(after < before + before / 4, "{before} KiB became {after} KiB");
    subject.check();
}

/// The proportional set size of a tree, in KiB.
fn resident(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"));
    let own = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    own.unwrap_or(0) + support::children(pid).into_iter().map(resident).sum::<u64>()
}

/// If the tracer gives up in the midst, nothing is left.
#[test]
fn processes_that_were_made_and_not_let_go_are_no_more() {
    let directory = Directory::new("dropped");
    let Some(compiled) = compile(&directory, "still") else { return };
    let Some(mut subject) = Subject::start(&directory, &compiled) else { return };
    let mut frozen = subject.freeze();
    let image = image(&mut frozen);
    frozen.kill();
    subject.namespace = support::Namespace::new(&[]).expect("the first one could be made");
    for _ in 0..3 {
        let restarted = restart(subject.namespace.init, &image, &Given::new());
        drop(restarted.unwrap_or_else(|error| panic!("{error}")));
        // They are zombies of the first process at the most, which waits for nobody.
        for pid in subject.namespace.processes() {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            assert!(stat.contains(") Z ") || stat.is_empty(), "{stat}");
        }
        subject.namespace = support::Namespace::new(&[]).expect("the first one could be made");
    }
}
