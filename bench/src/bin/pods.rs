//! What calls about names cost in a pod, beside the host: figure 6 of Laadan and Nieh, "Operating System
//! Virtualization" (getpid, getsid, getpgid, fork, execve, shmget, shmat), and how soon a pod runs its command.
//!
//! ```text
//! cargo build --release -p biv -p pod-probe && cargo run --release -p bench --bin pods -- [--rounds N]
//! ```
//!
//! Rounds alternate between the host and one pod, each with the same program; the table has medians, with minimum and
//! maximum. The pod is in a registry of its own, which goes with the program.

#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use bench::{Spread, run};

/// Rounds, unless somebody wants another number.
const ROUNDS: usize = 9;

/// The calls, in the paper's order.
const CALLS: [&str; 7] = ["getpid", "getsid", "getpgid", "fork", "execve", "shmget", "shmat"];

/// The pod's name in its registry.
const NAME: &str = "measured";

/// Where the program that measures is in the pod.
const IN_POD: &str = "/tmp/pod-probe";

/// A registry with its pod, which ends with it.
struct Place {
    biv: PathBuf,
    probe: PathBuf,
    directory: PathBuf,
}

impl Place {
    fn new() -> Result<Self, String> {
        let own = std::env::current_exe().map_err(|error| error.to_string())?;
        let directory = std::env::temp_dir().join(format!("biv-pods-bench-{}", std::process::id()));
        fs::create_dir(&directory).map_err(|error| error.to_string())?;
        let (biv, probe) = (own.with_file_name("biv"), own.with_file_name("pod-probe"));
        Ok(Self { biv, probe, directory })
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.biv);
        command.arg("pod").args(arguments);
        command.env("XDG_RUNTIME_DIR", &self.directory).current_dir("/");
        command
    }

    fn pod(&self, arguments: &[&str]) -> Result<String, String> {
        run(&mut self.command(arguments))
    }

    /// Starts the pod, with the program that measures in it.
    fn start(&self) -> Result<(), String> {
        self.pod(&["run", "-d", "--name", NAME, "--", "sleep", "1000000"])?;
        let probe = File::open(&self.probe)
            .map_err(|error| format!("{}: {error}", self.probe.display()))?;
        let put = format!("cat >{IN_POD} && chmod 755 {IN_POD}");
        let mut command = self.command(&["exec", "-i", NAME, "sh", "-c", &put]);
        let status = command.stdin(Stdio::from(probe)).status();
        match status.is_ok_and(|status| status.success()) {
            true => Ok(()),
            false => Err("the program that measures cannot be copied into the pod".to_owned()),
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = self.pod(&["rm", "--force", NAME]);
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Nanoseconds of each call, round by round.
type Samples = BTreeMap<String, Vec<f64>>;

fn main() -> ExitCode {
    match rounds().and_then(measure) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("pods: {error}");
            ExitCode::FAILURE
        }
    }
}

fn rounds() -> Result<usize, String> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        [] => Ok(ROUNDS),
        ["--rounds", count] => count.parse().ok().filter(|count| *count > 0).ok_or_else(usage),
        _ => Err(usage()),
    }
}

fn usage() -> String {
    "usage: pods [--rounds N]".to_owned()
}

fn measure(rounds: usize) -> Result<(), String> {
    let place = Place::new()?;
    place.start()?;
    let (mut host, mut pod, mut starts) = (Samples::new(), Samples::new(), Vec::new());
    for round in 0..rounds {
        // What disturbs the host whenever a round begins does not meet the same one each time.
        for turn in [round, round + 1] {
            match turn % 2 {
                0 => note(&mut host, &run(Command::new(&place.probe).arg("measure"))?),
                _ => note(&mut pod, &place.pod(&["exec", NAME, IN_POD, "measure"])?),
            }
        }
        let start = Instant::now();
        place.pod(&["run", "--", "true"])?;
        starts.push(start.elapsed().as_secs_f64() * 1000.0);
    }
    println!("| call | host, ns (min, max) | pod, ns (min, max) | pod / host |");
    println!("| --- | --- | --- | --- |");
    for call in CALLS {
        let of = |samples: &Samples| samples.get(call).cloned().and_then(Spread::of);
        let (Some(host), Some(pod)) = (of(&host), of(&pod)) else {
            return Err(format!("{call} was not measured"));
        };
        let ratio = pod.median / host.median;
        println!("| {call} | {} | {} | {ratio:.3} |", shown(&host), shown(&pod));
    }
    if let Some(starts) = Spread::of(starts) {
        println!("\n`biv pod run -- true`: {} ms", shown(&starts));
    }
    Ok(())
}

fn note(samples: &mut Samples, said: &str) {
    for line in said.lines() {
        if let Some((call, Ok(nanoseconds))) =
            line.split_once(' ').map(|(call, number)| (call, number.parse()))
        {
            samples.entry(call.to_owned()).or_default().push(nanoseconds);
        }
    }
}

fn shown(spread: &Spread) -> String {
    format!("{:.1} ({:.1}, {:.1})", spread.median, spread.min, spread.max)
}
