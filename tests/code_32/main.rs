//! 32-bit programs in a 64-bit guest: they do what they do on the host, translated, in every mode of execution.
//!
//! `guest.c` is the program.

#![forbid(unsafe_code)]

use std::path::Path;
use std::process::Command;

use whole_machine::modes::{Mode, PARAVIRTUAL};
use whole_machine::{counted, in_each_mode, text};

/// A file system with nothing but the program.
const ROOT: &str = env!("CODE_32_ROOT");

/// What it prints.
const SAID: &str = "\
fibonacci 196418
interpret 291066779
floats 12090146
strings 349387663
thread_local 10091070
precise 950055
written 44850
both_kinds 2667
processes 25003
fast_calls 1275
";

/// The host executes the same program, if its kernel has that.
#[test]
fn the_host_says_the_same() {
    match Command::new(Path::new(ROOT).join("probe")).output() {
        Ok(output) => assert_eq!(text(&output.stdout), SAID),
        Err(error) => println!("left out: this host has no 32-bit programs ({error})"),
    }
}

fn a_program_runs(mode: Mode) {
    let output = mode.in_machine(&["--root", ROOT, "--stats"], &["/probe"]);
    let stats = text(&output.stderr);
    assert_eq!(text(&output.stdout), SAID, "{mode:?}: {stats}");
    assert_eq!(output.status.code(), Some(0), "{mode:?}: {stats}");
    // It executes some thirty million instructions.
    let interpreted = counted(&stats, "interpreted");
    assert!(interpreted < 1_000_000, "{mode:?}: {interpreted} are interpreted: {stats}");
}

/// There the kernel's fast system calls are the hypervisor's to hand over.
fn a_program_runs_in_a_paravirtual_machine(mode: Mode) {
    let output = mode.in_machine(&[&PARAVIRTUAL[..], &["--root", ROOT]].concat(), &["/probe"]);
    assert_eq!(text(&output.stdout), SAID, "{mode:?}: {}", text(&output.stderr));
}

in_each_mode!(a_program_runs, a_program_runs_in_a_paravirtual_machine);
