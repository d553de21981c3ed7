//! The experiments of "Xen and the Art of Virtualization" (Barham et al., SOSP'03), repeated with paravirtual machines
//! of `biv`, and the paper's numbers beside ours.
//!
//! ```text
//! cargo build --release && cargo run --release -p bench --bin xen -- [--only EXPERIMENT,...] [--quick]
//!     [--seconds N] [--domains N] [--against host,tcg,uml] [--out DIRECTORY]
//! ```
//!
//! 1. *The paper's machine is not ours.* It had two Xeons of 2.4 GHz in 2003. What can be compared is a ratio: what a
//!    system takes over what Linux on the bare machine takes, theirs over theirs and ours over ours.
//! 2. *Its programs are not ours either*, where they are not free or no more to be had: each experiment says what
//!    stands in for what.
//! 3. *Machines of both kinds in one run.* A paravirtual machine and an ordinary one have the same kernel and the same
//!    programs, in turn.
//! 4. Experiments with several domains start all of them at one moment of the host's clock, and count work that the
//!    guests have done ([`work`]); where the processor's time is the question, also what the host says that their
//!    processes have computed.
//!
//! What it is not: a test. `target/bench/xen` has a table (Markdown and CSV) and a picture for each experiment.

#![forbid(unsafe_code)]

mod isolation;
mod operations;
mod paper;
mod scale;
mod servers;
mod shares;
mod work;

use std::path::PathBuf;
use std::process::ExitCode;

use bench::experiment::{self, Experiment};

/// The command line.
#[derive(Debug)]
struct Options {
    /// Fewer rounds.
    quick: bool,
    /// How long domains of one measurement run.
    seconds: u64,
    /// The most domains at once.
    domains: u64,
    /// Systems that machines are compared with.
    against: String,
    /// Where reports go.
    out: PathBuf,
}

/// In the order of the paper.
const EXPERIMENTS: [Experiment<Options>; 9] = [
    operations::APPLICATIONS,
    operations::PROCESSES,
    operations::SWITCHES,
    operations::FILES,
    servers::WEB,
    servers::DATABASES,
    isolation::EXPERIMENT,
    scale::EXPERIMENT,
    shares::EXPERIMENT,
];

const USAGE: &str = "\
usage: xen [OPTION]...
  --only LIST      experiments, by name (default: all)
  --quick          fewer rounds, shorter spans
  --seconds N      how long domains of one measurement run (default: 20; 8 if quick)
  --domains N      the most domains at once (default: 128; 16 if quick)
  --against LIST   what to compare machines with: host, tcg, uml (default: host)
  --out DIRECTORY  where tables and pictures go (default: target/bench/xen)
  --list           print the names of experiments, and end";

fn main() -> ExitCode {
    if std::env::args().skip(1).any(|argument| argument == "--list") {
        println!("{}", EXPERIMENTS.map(|one| one.name).join(" "));
        return ExitCode::SUCCESS;
    }
    let outcome =
        parse(std::env::args().skip(1)).map_err(|complaint| format!("{complaint}\n{USAGE}"));
    match outcome.and_then(|(options, chosen)| experiment::make(&options, &chosen, &options.out)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xen: {error}");
            ExitCode::FAILURE
        }
    }
}

fn parse(
    mut arguments: impl Iterator<Item = String>,
) -> Result<(Options, Vec<&'static Experiment<Options>>), String> {
    let mut options = Options {
        quick: false,
        seconds: 0,
        domains: 0,
        against: "host".into(),
        out: PathBuf::from("target/bench/xen"),
    };
    let mut chosen: Vec<&Experiment<Options>> = EXPERIMENTS.iter().collect();
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{argument} needs a value"));
        match argument.as_str() {
            "--quick" => options.quick = true,
            "--seconds" => options.seconds = number(&value()?)?,
            "--domains" => options.domains = number(&value()?)?,
            "--against" => options.against = value()?,
            "--out" => options.out = value()?.into(),
            "--only" => chosen = experiment::named(&EXPERIMENTS, &value()?)?,
            other => return Err(format!("unknown option {other}")),
        }
    }
    let (seconds, domains) = if options.quick { (8, 16) } else { (20, 128) };
    options.seconds = if options.seconds == 0 { seconds } else { options.seconds };
    options.domains = if options.domains == 0 { domains } else { options.domains };
    Ok((options, chosen))
}

fn number(text: &str) -> Result<u64, String> {
    let number = text.parse().ok().filter(|number| (1..=3600).contains(number));
    number.ok_or(format!("{text} is no number from 1 to 3600"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<(Options, Vec<&'static str>), String> {
        let (options, chosen) = parse(line.split_whitespace().map(str::to_owned))?;
        Ok((options, chosen.into_iter().map(|one| one.name).collect()))
    }

    #[test]
    fn experiments_are_chosen_by_name() {
        assert_eq!(parsed("--only shares,isolation").unwrap().1, ["shares", "isolation"]);
        assert_eq!(parsed("").unwrap().1.len(), EXPERIMENTS.len());
        assert!(parsed("--only nothing").is_err() && parsed("--seconds 0").is_err());
    }

    #[test]
    fn quick_is_shorter_unless_it_is_said() {
        let (options, _) = parsed("--quick --seconds 3").unwrap();
        assert_eq!((options.seconds, options.domains), (3, 16));
        assert_eq!(parsed("").unwrap().0.seconds, 20);
    }
}
