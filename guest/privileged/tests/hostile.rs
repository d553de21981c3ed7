//! Kernels that mean harm: to every address, page table, register, port and device that they can
//! name, and by random bytes, at privilege level 0. Each may end its own machine, with a status that
//! says how. None may make `biv` panic or crash, have it try a forbidden system call, or leave
//! a process behind.
//!
//! In the environment, `BIVOUAC_HOSTILE_SEEDS=N` runs each with N seeds (2 without), which start at
//! `BIVOUAC_HOSTILE_FIRST`, and `BIVOUAC_HOSTILE_ROUNDS=N` gives each so many attacks.

#![forbid(unsafe_code)]

use std::env;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use whole_machine::endings::is_an_end_of_the_guests;
use whole_machine::modes::Mode;
use whole_machine::processes::{adopt_orphans, descendants, survivors};
use whole_machine::{bivouac, text};

/// The programs: names and images.
const PROGRAMS: &[(&str, &str)] = &include!(concat!(env!("OUT_DIR"), "/hostile/list.rs"));

/// How long a program may take before `--timeout` ends its machine: some stand still for ever.
const MACHINE_SECONDS: u64 = 8;

/// How long `biv` may take for that, on a busy host, before it hangs.
const PATIENCE_SECONDS: u64 = 120;

/// What is shown of what a program says: some say the same for ever.
const MESSAGE_BYTES: usize = 1000;

fn number(name: &str, default: u64) -> u64 {
    env::var(name).ok().and_then(|number| number.parse().ok()).unwrap_or(default)
}

fn attack(mode: Mode, image: &str, seed: u64, rounds: u64) -> Output {
    Command::new("timeout")
        .args(["-s", "KILL", &PATIENCE_SECONDS.to_string()])
        .arg(bivouac())
        .args(["run", "--kernel", image, "--mem", "256M", "--debug-exit", "--no-reboot"])
        .args(mode.options())
        .args(["--timeout", &MACHINE_SECONDS.to_string()])
        .args(["--append", &format!("seed={seed} rounds={rounds}")])
        .stdin(Stdio::null())
        .output()
        .expect("`timeout` can be started")
}

fn check_attack(name: &str, image: &str, seed: u64, rounds: u64) -> bool {
    let mode = Mode::ALL[seed as usize % Mode::ALL.len()];
    let output = attack(mode, image, seed, rounds);
    let (mut said, complaint) = (text(&output.stdout), text(&output.stderr));
    let survived = said.contains("ok survived");
    said.truncate(said.floor_char_boundary(MESSAGE_BYTES));
    let what = format!("{name}, seed {seed}, {rounds} rounds, {mode:?}: {}", output.status);
    let is_fine = is_an_end_of_the_guests(output.status.code(), &complaint);
    assert!(is_fine, "{what}\n{said}\n{complaint}");
    assert!(said.contains("ok begin"), "{what}\n{said}\n{complaint}");
    assert!(!said.contains("REACHED"), "{what}\n{said}");
    let left = survivors(&descendants(), Duration::from_secs(5));
    assert!(left.is_empty(), "{what} leaves processes behind: {left:?}");
    println!("{what}{}", if survived { ", through" } else { "" });
    survived
}

#[test]
fn a_hostile_kernel_harms_nobody_but_itself() {
    bivouac();
    adopt_orphans();
    let (first, seeds) = (number("BIVOUAC_HOSTILE_FIRST", 1), number("BIVOUAC_HOSTILE_SEEDS", 2));
    let rounds = number("BIVOUAC_HOSTILE_ROUNDS", 20_000);
    for (name, image) in PROGRAMS {
        let all = first..first + seeds;
        let through = all.filter(|&seed| check_attack(name, image, seed, rounds)).count();
        println!("{name}: {through} of {seeds} came to their end");
    }
}
