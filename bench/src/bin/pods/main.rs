//! The experiments of Laadan and Nieh, "Operating System Virtualization: Practice and Experience" (SYSTOR 2010),
//! repeated with pods of `biv`, and what their verbs take.
//!
//! ```text
//! cargo build --release -p biv -p pod-probe && cargo run --release -p bench --bin pods -- [--only EXPERIMENT,...]
//!     [--rounds N] [--pods N] [--cycles N] [--out DIRECTORY]
//! ```
//!
//! Rounds alternate between the host and pods, each with the same programs; tables have medians, with minimum and
//! maximum. Pods are in a registry of their own, which goes with the program. `target/bench/pods` has a table
//! (Markdown and CSV) for each experiment, and a picture for the paper's figures. Figures 7 and 8 need the applications
//! of the program `bench`; root's pods read them only where everybody may (`XDG_CACHE_HOME`).

#![forbid(unsafe_code)]

mod applications;
mod calls;
mod criu;
mod programs;
mod servers;
mod verbs;

use std::path::PathBuf;
use std::process::ExitCode;

use bench::Spread;
use bench::experiment::{self, Experiment};
use bench::markdown::amount;

/// The command line.
#[derive(Debug)]
struct Options {
    /// Rounds of each measurement.
    rounds: usize,
    /// The most pods at once.
    pods: usize,
    /// Cycles of checkpoint and restart.
    cycles: usize,
    /// Where reports go.
    out: PathBuf,
}

/// The paper's figures in its order, and ours.
const EXPERIMENTS: [Experiment<Options>; 5] =
    [calls::EXPERIMENT, applications::EXPERIMENT, servers::EXPERIMENT, verbs::TIMES, verbs::CYCLES];

const USAGE: &str = "\
usage: pods [OPTION]...
  --only LIST      experiments, by name (default: all)
  --rounds N       rounds of each measurement (default: 9)
  --pods N         the most pods at once (default: 128)
  --cycles N       cycles of checkpoint and restart (default: 1000)
  --out DIRECTORY  where tables and pictures go (default: target/bench/pods)
  --list           print the names of experiments, and end";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|argument| argument == "--list") {
        println!("{}", EXPERIMENTS.map(|one| one.name).join(" "));
        return ExitCode::SUCCESS;
    }
    let outcome = parse(arguments.into_iter()).map_err(|error| format!("{error}\n{USAGE}"));
    match outcome.and_then(|(options, chosen)| experiment::make(&options, &chosen, &options.out)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("pods: {error}");
            ExitCode::FAILURE
        }
    }
}

type Chosen = Vec<&'static Experiment<Options>>;

fn parse(mut arguments: impl Iterator<Item = String>) -> Result<(Options, Chosen), String> {
    let out = PathBuf::from("target/bench/pods");
    let mut options = Options { rounds: 9, pods: 128, cycles: 1000, out };
    let mut chosen: Chosen = EXPERIMENTS.iter().collect();
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{argument} needs a value"));
        match argument.as_str() {
            "--rounds" => options.rounds = number(&value()?)?,
            "--pods" => options.pods = number(&value()?)?,
            "--cycles" => options.cycles = number(&value()?)?,
            "--out" => options.out = value()?.into(),
            "--only" => chosen = experiment::named(&EXPERIMENTS, &value()?)?,
            other => return Err(format!("unknown option {other}")),
        }
    }
    Ok((options, chosen))
}

fn number(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| (1..=1_000_000).contains(number));
    number.ok_or(format!("{text} is no number from 1 to 1000000"))
}

/// A spread, for a cell of a table.
fn shown(spread: &Spread) -> String {
    let [median, min, max] = [spread.median, spread.min, spread.max].map(amount);
    format!("{median} ({min}, {max})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read() {
        let parsed = |line: &str| parse(line.split_whitespace().map(str::to_owned));
        let (options, chosen) = parsed("--only verbs,calls --rounds 3 --pods 4").unwrap();
        assert_eq!((options.rounds, options.pods, options.cycles), (3, 4, 1000));
        assert_eq!(chosen.iter().map(|one| one.name).collect::<Vec<_>>(), ["verbs", "calls"]);
        assert_eq!(parsed("").unwrap().1.len(), EXPERIMENTS.len());
        for wrong in ["--rounds 0", "--only nothing", "--pods", "--what"] {
            assert!(parsed(wrong).is_err(), "{wrong}");
        }
    }
}
