//! Many machines, one after the other in one process, leave nothing behind: no descriptor, thread,
//! process, mapping, memory or file. They take turns among the modes of execution.
//!
//! The machines run in a process of their own, this test's program started once more, so that
//! nothing else of a test run is counted and the directories for temporary files can be made its own.
//! `BIVOUAC_BOOTS=200 cargo test --release -p whole-machine --test leaks -- --nocapture` makes it
//! 200 boots and prints what was counted.

#![forbid(unsafe_code)]

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use vmm::{Configuration, Contents, Machine, Outcome};
use whole_machine::census::{ALLOCATOR, Census};
use whole_machine::in_process::{self, Files};
use whole_machine::modes::Mode;

/// Boots of Linux that are counted, unless `BIVOUAC_BOOTS` says otherwise. With each comes a machine
/// of another kind.
const BOOTS: usize = 20;

/// Rounds before the counting starts: caches of libc's and ours fill.
const WARM_UP_ROUNDS: usize = 12;

/// Resident memory may differ by this between two moments of one process, whatever lies between:
/// the allocator does not return to the same state.
const MEMORY_SLACK_KIB: u64 = 1 << 10;

/// Where the inner process keeps its files, and how it knows that it is the inner one.
const SCRATCH: &str = "BIVOUAC_LEAKS_SCRATCH";

const NAME: &str = "machines_in_a_row_leave_nothing_behind";

#[test]
fn machines_in_a_row_leave_nothing_behind() {
    let boots = std::env::var("BIVOUAC_BOOTS").ok().and_then(|n| n.parse().ok()).unwrap_or(BOOTS);
    match std::env::var_os(SCRATCH) {
        Some(scratch) => count(boots, Path::new(&scratch)),
        None => start_inner(boots),
    }
}

fn start_inner(boots: usize) {
    let scratch = std::env::temp_dir().join(format!("whole-machine-leaks-{}", std::process::id()));
    let _ = fs::remove_dir_all(&scratch);
    for directory in ["temporary", "runtime"] {
        fs::create_dir_all(scratch.join(directory)).expect("the temporary directory is writable");
    }
    let mut inner = Command::new("timeout");
    inner.arg((120 + 20 * boots).to_string());
    inner.arg(std::env::current_exe().expect("a test has a path"));
    inner.args(["--exact", NAME, "--nocapture", "--test-threads=1"]);
    inner.envs(ALLOCATOR);
    inner.env(SCRATCH, &scratch).env("TMPDIR", scratch.join("temporary"));
    let status = inner.env("XDG_RUNTIME_DIR", scratch.join("runtime")).status();
    let left = ["temporary", "runtime"].map(|directory| names(&scratch.join(directory)));
    let cached = names(&scratch.join("cache"));
    let _ = fs::remove_dir_all(&scratch);
    assert!(status.expect("`timeout` can be started").success());
    assert_eq!(left.concat(), Vec::<String>::new(), "files were left behind");
    assert_eq!(cached.len(), 1, "one kernel was unpacked: {cached:?}");
}

/// What is in a directory.
fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().filter_map(Result::ok);
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// The inner process: run the machines and compare.
fn count(boots: usize, scratch: &Path) {
    let files = Files::default_guest().cached_in(scratch.join("cache"));
    (0..WARM_UP_ROUNDS).for_each(|round| run_round(&files, round));
    let before = Census::take();
    for round in 0..boots {
        run_round(&files, round);
        if round % 20 == 19 {
            println!("{} boots: {}", round + 1, Census::take());
        }
    }
    let after = Census::settled(&before, MEMORY_SLACK_KIB);
    println!("{boots} boots of Linux and as many other machines");
    println!("before: {before}\nafter:  {after}");
    assert!(after.fits(&before, MEMORY_SLACK_KIB), "before: {before:#?}\nafter: {after:#?}");
    prove_that_it_counts(&after);
}

/// A census that never sees anything would prove nothing.
fn prove_that_it_counts(before: &Census) {
    let (held, _other) = std::io::pipe().expect("a pipe");
    let thread = std::thread::spawn(move || std::io::copy(&mut &held, &mut std::io::sink()));
    let mut zombie = Command::new("true").spawn().expect("`true` can be started");
    let memory = std::hint::black_box(vec![1u8; (2 * MEMORY_SLACK_KIB as usize) << 10]);
    let now = Census::take();
    std::hint::black_box(&memory);
    assert_eq!(now.descriptors.len(), before.descriptors.len() + 2);
    assert_eq!(now.threads, before.threads + 1);
    assert_eq!(now.children.len(), before.children.len() + 1);
    assert!(now.resident_kib > before.resident_kib + MEMORY_SLACK_KIB, "{now}");
    drop((memory, _other));
    let _ = (zombie.wait(), thread.join());
}

/// One boot of Linux and one other machine.
fn run_round(files: &Files, round: usize) {
    let files = &files.clone().in_mode(Mode::ALL[round % Mode::ALL.len()]);
    let booted = match round % 2 {
        0 => files.boot("rdinit=/sbin/poweroff -- -f"),
        // On a thread of its own, through our init.
        _ => std::thread::scope(|scope| {
            let words = format!("rdinit={}", provision::initramfs::INIT);
            scope.spawn(move || files.boot(&words)).join().expect("no panic")
        }),
    };
    assert_eq!(booted.outcome, Outcome::PoweredOff, "round {round}: {}", booted.console);
    match round % 8 {
        0 => check_tiny(tiny_kernels::POWER_OFF, Outcome::PoweredOff),
        1 => check_tiny(tiny_kernels::RESET, Outcome::Reset),
        2 => check_triple_fault(),
        3 => check_stopped(in_process::tiny(tiny_kernels::HANG), 20),
        4 => check_stopped(in_process::tiny(tiny_kernels::BABBLE), 20),
        // In the middle of its boot.
        5 => check_stopped(files.configuration("rdinit=/sbin/poweroff -- -f"), 300),
        6 => drop(Machine::new(files.configuration("").0).expect("a machine that never runs")),
        _ => check_refused(),
    }
}

fn check_tiny(code: &[u8], expected: Outcome) {
    let (configuration, ends) = in_process::tiny(code);
    let booted = in_process::run(configuration, ends).expect("the machine runs");
    assert_eq!(booted.outcome, expected);
}

fn check_triple_fault() {
    let (configuration, ends) = in_process::tiny(tiny_kernels::TRIPLE_FAULT);
    let booted = in_process::run(configuration, ends).expect("the machine runs");
    assert!(matches!(booted.outcome, Outcome::TripleFault(_)), "{:?}", booted.outcome);
}

/// A machine that is stopped from another thread after some milliseconds.
fn check_stopped((configuration, ends): (Configuration, in_process::Ends), milliseconds: u64) {
    let reader = ends.discard();
    let mut machine = Machine::new(configuration).expect("a machine");
    let stop = machine.stop_handle();
    let stopper = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(milliseconds));
        stop.stop();
    });
    assert_eq!(machine.run().expect("the machine runs"), Outcome::Stopped);
    drop(machine);
    stopper.join().expect("no panic");
    reader.join().expect("no panic");
}

/// Machines that there are none of: a kernel that is none, memory that nobody has.
fn check_refused() {
    let (configuration, ends) = in_process::tiny(tiny_kernels::RESET);
    let kernel = Contents::new(b"This is no kernel.");
    let configuration = Configuration { kernel, ..configuration };
    assert!(in_process::run(configuration, ends).is_err());
    let (configuration, ends) = in_process::tiny(tiny_kernels::RESET);
    let configuration = Configuration { memory: 8 << 40, ..configuration };
    assert!(in_process::run(configuration, ends).is_err());
}
