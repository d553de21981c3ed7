//! The project's measuring instrument: the same programs on the host, under `biv`, QEMU's TCG,
//! User-Mode Linux and gVisor, interleaved round by round.
//!
//! What it is not: a test. Nothing here runs in continuous integration but the tests of its own
//! arithmetic.
//!
//! What rules it:
//!
//! 1. *One machine, one run.* Every promise is a ratio of two numbers of the same run; rounds
//!    alternate between the systems, so that a disturbance of the host meets all of them.
//!    *Functions* share a machine in a round. A *program* has a fresh machine for each sample, one system after
//!    the other: what is fast in one start and slow in the next, is a defect that no median shows, so the tables
//!    have the largest value over the smallest.
//! 2. *The same bytes.* One static runner (`guest/`), one file system, one kernel for all machines
//!    that take it.
//! 3. *Nothing is dropped silently.* What crashes is tried once more and then reported as crashed.
//! 4. *Medians, with minimum and maximum.*
//! 5. *Each number is one file* in `numbers/`, its promise one line in `promises.rs`, each way to
//!    run `biv` one line in `variants.rs`.

#![forbid(unsafe_code)]

pub mod bars;
mod counters;
pub mod domains;
pub mod experiment;
mod family;
pub mod files;
mod group;
pub mod markdown;
pub mod number;
pub mod numbers;
pub mod options;
pub mod pods;
pub mod processes;
mod promises;
pub mod report;
pub mod results;
pub mod root;
mod round;
mod spread;
pub mod systems;
mod variants;

use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use number::Number;
use options::Options;
use results::Results;

pub use spread::Spread;

/// All systems, in each round from another one on: what disturbs the host by the clock, or whenever a round
/// begins, does not meet the same one each time.
fn order(systems: usize, round: usize, rounds: usize) -> impl Iterator<Item = usize> {
    let first = systems * (round - 1) / rounds;
    (first..systems).chain(0..first)
}

/// Measure what was asked for, and report it.
///
/// # Errors
///
/// When there is nothing to measure with, or reports cannot be written.
pub fn measure(options: &Options) -> Result<(), Box<dyn std::error::Error>> {
    let files = files::Files::prepare(options)?;
    let (systems, absent) = systems::installed(options, &files);
    let mut results = Results::new(systems);
    results.remarks = absent;
    let of_functions = |number: &&&Number| !number.work.is_fresh();
    let rounds = options
        .numbers
        .iter()
        .filter(of_functions)
        .map(|number| options.amount(&number.work).rounds);
    let rounds = rounds.max().unwrap_or(0);
    for number in 1..=rounds {
        for system in order(results.systems.len(), number, rounds) {
            round::measure(number, system, options, &files, &mut results);
        }
        // A run that is broken off leaves what it had.
        report::write_samples(&results, &options.out)?;
    }
    let starts = options.programs.rounds;
    for start in 1..=starts {
        for &number in options.numbers.iter().filter(|number| number.work.is_fresh()) {
            for system in order(results.systems.len(), start, starts) {
                if results.systems[system].measures(number) {
                    round::sample(start, system, number, options, &files, &mut results);
                }
            }
            report::write_samples(&results, &options.out)?;
        }
    }
    report::write(&results, options)?;
    Ok(())
}

/// Has a command run to its end, without input; what it says.
///
/// # Errors
///
/// When it cannot be started or fails, with what it complains about.
pub fn run(command: &mut Command) -> Result<String, String> {
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("{:?}: {error}", command.get_program()))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let complaint = String::from_utf8_lossy(&output.stderr);
    Err(format!("{:?}: {}: {complaint}", command.get_program(), output.status))
}

/// A moment so many seconds from now, in seconds of the wall clock.
pub fn moment(seconds: u64) -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.as_secs() + seconds
}

#[cfg(test)]
mod tests {
    #[test]
    fn each_round_begins_with_another_system() {
        let order = |round| super::order(7, round, 3).collect::<Vec<_>>();
        assert_eq!(order(1), [0, 1, 2, 3, 4, 5, 6]);
        assert_eq!(order(2), [2, 3, 4, 5, 6, 0, 1]);
        assert_eq!(order(3), [4, 5, 6, 0, 1, 2, 3]);
    }
}
