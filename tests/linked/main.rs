//! A program that links `domain`, and not `biv`, runs machines (examples/start.rs).

#![forbid(unsafe_code)]

use std::process::{Command, Stdio};

use whole_machine::processes::{adopt_orphans, descendants, survivors};
use whole_machine::{PATIENCE_SECONDS, program, text};

/// The example with these arguments, ended when it takes too long.
fn start(arguments: &[&str]) -> Command {
    let mut command = Command::new("timeout");
    command.arg(PATIENCE_SECONDS).arg(program("start")).args(arguments);
    command.stdin(Stdio::null());
    command
}

#[test]
fn a_program_that_links_domain_runs_a_machine() {
    adopt_orphans();
    let output = start(&["sh", "-c", "echo said; echo complained >&2; exit 7"]).output();
    let output = output.expect("it can be started");
    assert_eq!(text(&output.stdout), "said\n", "{}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "complained\n");
    assert_eq!(output.status.code(), Some(7));
    let left = survivors(&descendants(), std::time::Duration::from_secs(10));
    assert!(left.is_empty(), "it leaves processes");
}

#[test]
fn what_is_for_its_own_processes_is_refused_to_others() {
    let output = start(&["--bivouac-process=nonsense"]).output().expect("it can be started");
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("no such process"), "{}", text(&output.stderr));
}
