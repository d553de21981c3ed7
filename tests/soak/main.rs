//! Machines for a long time, one after the other in all modes, that do everything at once and check
//! it: processes, programs, page faults, mappings, signals, pipes, threads, code that is rewritten.
//! `guest.c` is what they run. The kernel must not complain, and nothing may be left behind.
//!
//! In the environment, `BIVOUAC_SOAK_SECONDS=N` sets how long it takes in all; a day is 86400. The
//! machines run in a process of their own, this test's program started once more, so that nothing
//! else of a test run is counted.

#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use vmm::Outcome;
use whole_machine::census::{ALLOCATOR, Census};
use whole_machine::complaints::complaint;
use whole_machine::in_process::{self, Files};
use whole_machine::modes::Mode;

/// How long it takes unless the environment says otherwise.
const SECONDS: u64 = 180;

/// How long one machine may be at it, and into how many a day is divided.
const SHORTEST_SECONDS: u64 = 10;
const LONGEST_SECONDS: u64 = 600;
const MACHINES: u64 = 144;

/// How long one may take beyond that, to boot and to tidy up on a busy host; then it hangs.
const PATIENCE: Duration = Duration::from_secs(150);

/// What a process may have more after a machine than after the first one in each mode, however many
/// there have been: the allocator does not return to the same state.
const MEMORY_SLACK_KIB: u64 = 8 << 10;

/// A file system with nothing but the program.
const ROOT: &str = env!("SOAK_ROOT");

/// Where the inner process keeps its files, and how it knows that it is the inner one.
const SCRATCH: &str = "BIVOUAC_SOAK_SCRATCH";

const NAME: &str = "machines_compute_right_for_long_and_leave_nothing_behind";

#[test]
fn machines_compute_right_for_long_and_leave_nothing_behind() {
    let seconds = std::env::var("BIVOUAC_SOAK_SECONDS").ok().and_then(|n| n.parse().ok());
    let seconds = seconds.unwrap_or(SECONDS);
    match std::env::var_os(SCRATCH) {
        Some(scratch) => soak(seconds, Path::new(&scratch)),
        None => start_inner(seconds),
    }
}

fn start_inner(seconds: u64) {
    let scratch = std::env::temp_dir().join(format!("whole-machine-soak-{}", std::process::id()));
    std::fs::create_dir_all(&scratch).expect("the temporary directory is writable");
    let all_modes = Mode::ALL.len() as u64 * (machine_seconds(seconds) + PATIENCE.as_secs());
    let mut inner = Command::new("timeout");
    inner.arg((seconds + all_modes).to_string());
    inner.arg(std::env::current_exe().expect("a test has a path"));
    inner.args(["--exact", NAME, "--nocapture", "--test-threads=1"]);
    let status = inner.envs(ALLOCATOR).env(SCRATCH, &scratch).status();
    let _ = std::fs::remove_dir_all(&scratch);
    assert!(status.expect("`timeout` can be started").success());
}

/// How long each machine is at it.
fn machine_seconds(seconds: u64) -> u64 {
    (seconds / MACHINES).clamp(SHORTEST_SECONDS, LONGEST_SECONDS)
}

/// The inner process: machines in turn among the modes, each at least once.
fn soak(seconds: u64, scratch: &Path) {
    let files = Files::default_guest().cached_in(scratch.join("cache")).holding(Path::new(ROOT));
    let modes: Vec<_> = Mode::ALL.into_iter().filter(|mode| !mode.is_unwanted()).collect();
    let (start, limit) = (Instant::now(), Duration::from_secs(seconds));
    let mut totals = BTreeMap::new();
    let mut warm = None;
    for (number, &mode) in modes.iter().cycle().enumerate() {
        if number == modes.len() {
            warm = Some(Census::take());
        }
        if number >= modes.len() && start.elapsed() >= limit {
            break;
        }
        let counts = run_machine(&files, mode, machine_seconds(seconds), number as u64 + 1);
        for (name, count) in counts {
            *totals.entry(name).or_insert(0) += count;
        }
        check_nothing_left(warm.as_ref(), number, mode);
    }
    println!("in {:.0} s: {totals:?}", start.elapsed().as_secs_f64());
}

/// One machine, which must come to its end and have found nothing wrong. Returns how often it has
/// done what.
fn run_machine(files: &Files, mode: Mode, seconds: u64, seed: u64) -> BTreeMap<String, u64> {
    // Warnings and worse, but nothing that would only get in between what the program says.
    let words = format!("loglevel=5 rdinit=/soak -- {seconds} {seed}");
    let (configuration, ends) = files.clone().in_mode(mode).configuration(&words);
    let limit = Duration::from_secs(seconds) + PATIENCE;
    let booted = in_process::run_within(limit, configuration, ends).expect("the machine runs");
    let said = &booted.console;
    let what = format!("{mode:?}, seed {seed}");
    assert_eq!(complaint(said), None, "{what}");
    assert!(!said.contains("FAILED"), "{what}: {said}");
    assert_eq!(booted.outcome, Outcome::PoweredOff, "{what}: {said}");
    assert!(said.contains("DONE"), "{what}: {said}");
    assert!(said.contains(&format!("PROCESSORS {}", mode.processors)), "{what}: {said}");
    let counts = said.lines().filter_map(|line| {
        let (name, count) = line.trim().strip_prefix("COUNT ")?.split_once(' ')?;
        Some((name.to_owned(), count.parse().ok()?))
    });
    let counts: BTreeMap<String, u64> = counts.collect();
    println!("{what}: {} rounds", counts.values().sum::<u64>());
    assert!(counts.len() >= 10 && counts.values().sum::<u64>() > 10, "{what}: {said}");
    counts
}

/// What each machine has had is gone; memory is compared once every mode has been.
fn check_nothing_left(warm: Option<&Census>, number: usize, mode: Mode) {
    let now = Census::take();
    let before = warm.unwrap_or(&now);
    let after = Census::settled(before, MEMORY_SLACK_KIB);
    println!("machine {number}: {after}");
    assert_eq!(after.children, Vec::<String>::new(), "after machine {number}, {mode:?}");
    assert!(after.shared.is_empty(), "after machine {number}, {mode:?}: {:?}", after.shared);
    assert!(after.fits(before, MEMORY_SLACK_KIB), "before: {before:#?}\nafter: {after:#?}");
}
