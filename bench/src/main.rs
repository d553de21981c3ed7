//! The project's measuring instrument: the same programs on the host, under `biv`, QEMU's TCG,
//! User-Mode Linux and gVisor, interleaved round by round.
//!
//! ```text
//! cargo run --release -p bench -- [--quick] [--against host,tcg,uml,gvisor] [--only NAME,...]
//!     [--ladder] [--rounds N] [--starts N] [--variants NAME,...|all] [--pin] [--out DIRECTORY]
//! ```
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

mod counters;
mod family;
mod files;
mod group;
mod number;
mod numbers;
mod options;
mod promises;
mod report;
mod results;
mod root;
mod round;
mod systems;
mod variants;

use std::process::ExitCode;

use number::Number;
use options::Options;
use results::Results;

fn main() -> ExitCode {
    let options = match Options::parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(error) => {
            eprintln!("bench: {error}\n{}", options::USAGE);
            return ExitCode::from(2);
        }
    };
    match measure(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}

/// All systems, in each round from another one on: what disturbs the host by the clock, or whenever a round
/// begins, does not meet the same one each time.
fn order(systems: usize, round: usize, rounds: usize) -> impl Iterator<Item = usize> {
    let first = systems * (round - 1) / rounds;
    (first..systems).chain(0..first)
}

fn measure(options: &Options) -> Result<(), Box<dyn std::error::Error>> {
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
