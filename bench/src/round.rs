//! One round on one system: start it, read what the runner in it says, start it again for what
//! broke.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use bench::processes;

use crate::files::Files;
use crate::number::{Number, Shape, Work};
use crate::options::Options;
use crate::results::{Outcome, Results, Sample};
use crate::systems::{Settings, System};

/// How long a system may take to start.
const START_PATIENCE_SECONDS: u64 = 180;

/// Attempts at a number.
const ATTEMPTS: u32 = 2;

/// How far a guest's clock may be from the host's, over a whole run.
const CLOCK_TOLERANCE: f64 = 0.02;

/// A run that is shorter tells nothing about clocks.
const CLOCK_MIN_SECONDS: f64 = 2.0;

/// What the runner says.
#[derive(Debug, PartialEq)]
enum Line<'a> {
    Init,
    Clock(f64),
    Begin(&'a str),
    Value(&'a str, f64),
    Unsupported(&'a str),
    Failed(&'a str),
    Idle,
}

impl Line<'_> {
    /// From a console, whose lines may begin with a terminal's control sequences.
    fn parse(line: &str) -> Option<Line<'_>> {
        let mut words = line[line.find("@ ")? + 2..].split_whitespace();
        let line = match (words.next()?, words.next(), words.next()) {
            ("init", None, None) => Line::Init,
            ("idle", None, None) => Line::Idle,
            ("clock", Some(value), None) => Line::Clock(value.parse().ok()?),
            ("begin", Some(name), None) => Line::Begin(name),
            ("unsupported", Some(name), None) => Line::Unsupported(name),
            ("failed", Some(name), None) => Line::Failed(name),
            ("value", Some(name), Some(value)) => Line::Value(name, value.parse().ok()?),
            _ => return None,
        };
        words.next().is_none().then_some(line)
    }
}

/// What one run of a system gave.
#[derive(Debug, Default)]
struct Transcript {
    outcomes: BTreeMap<String, Outcome>,
    /// What was being measured when it ended.
    current: Option<String>,
    /// Why it ended before its time.
    trouble: Option<String>,
    /// When the runner said its clock, on the host's and on its own.
    clocks: Vec<(Instant, f64)>,
}

/// Measure all numbers that were asked for on one system.
pub fn measure(
    round: usize,
    system: usize,
    options: &Options,
    files: &Files,
    results: &mut Results,
) {
    for shape in Shape::ALL {
        if round > options.amount(shape.root).rounds {
            continue;
        }
        let who = results.systems[system].clone();
        let of_shape = |number: &&&Number| number.work.shape() == shape && who.measures(number);
        let numbers: Vec<_> = options.numbers.iter().filter(of_shape).copied().collect();
        if numbers.is_empty() {
            continue;
        }
        eprintln!("round {round}: {}, {:?}, {} CPU", who.name, shape.root, shape.processors);
        let run = Run { system: &who, shape, options, files, round };
        let (outcomes, remarks) = run.with_retries(&numbers);
        results.remarks.extend(remarks);
        for number in numbers {
            let missing = || Outcome::Absent("it was not tried".into());
            let outcome = outcomes.get(number.name).cloned().unwrap_or_else(missing);
            results.samples.push(Sample { round, system, number, outcome });
        }
    }
}

struct Run<'a> {
    system: &'a System,
    shape: Shape,
    options: &'a Options,
    files: &'a Files,
    round: usize,
}

impl Run<'_> {
    /// Until every number has a value or has failed twice.
    fn with_retries(&self, numbers: &[&Number]) -> (BTreeMap<String, Outcome>, Vec<String>) {
        let (mut outcomes, mut remarks) = (BTreeMap::new(), Vec::new());
        let mut attempts: BTreeMap<&str, u32> = BTreeMap::new();
        loop {
            let open: Vec<&Number> = numbers
                .iter()
                .filter(|number| match outcomes.get(number.name) {
                    None => true,
                    Some(Outcome::Failed(_)) => attempts[number.name] < ATTEMPTS,
                    Some(_) => false,
                })
                .copied()
                .collect();
            if open.is_empty() {
                return (outcomes, remarks);
            }
            let transcript = self.once(&open);
            remarks.extend(transcript.clock_remark(&self.system.name));
            for number in self.blamed(&open, &transcript) {
                let attempt = attempts.entry(number.name).or_default();
                *attempt += 1;
                let why = transcript.trouble.clone().unwrap_or("its program failed".into());
                let what =
                    format!("{}: {}, attempt {attempt}: {why}", self.system.name, number.name);
                eprintln!("  {what}");
                remarks.push(format!("round {}: {what}", self.round));
                outcomes.insert(number.name.into(), Outcome::Failed(why));
            }
            outcomes.extend(transcript.outcomes);
        }
    }

    /// Who is to blame: what said so, and what was measured when the run broke off, or, where
    /// nothing was, all. Every run that is not complete has somebody to blame.
    fn blamed<'n>(&self, open: &[&'n Number], transcript: &Transcript) -> Vec<&'n Number> {
        let lacks = |number: &&&Number| !transcript.outcomes.contains_key(number.name);
        let current = transcript.current.as_deref();
        let missing: Vec<&Number> = open.iter().filter(lacks).copied().collect();
        let guilty = |number: &&Number| Some(number.name) == current;
        if transcript.trouble.is_some() && missing.iter().any(guilty) {
            return missing.into_iter().filter(|number| guilty(number)).collect();
        }
        missing
    }

    fn once(&self, numbers: &[&Number]) -> Transcript {
        let mut transcript = Transcript::default();
        if let Err(error) = self.follow(numbers, &mut transcript) {
            transcript.trouble = Some(error);
        }
        // Not every system starts anything, and not every one can be looked into.
        if transcript.trouble.is_none() {
            for number in numbers.iter().filter(|number| number.work == Work::Outside) {
                let why = match self.system.family.boots() {
                    true => "it cannot be looked into",
                    false => "it is no machine",
                };
                let absent = Outcome::Absent(why.into());
                transcript.outcomes.entry(number.name.into()).or_insert(absent);
            }
        }
        transcript
    }

    fn follow(&self, numbers: &[&Number], transcript: &mut Transcript) -> Result<(), String> {
        let inside = numbers.iter().filter(|number| number.work != Work::Outside);
        let names: Vec<&str> = inside.map(|number| number.name).collect();
        let amount = self.options.amount(self.shape.root);
        let settings = Settings::new(self.shape, amount, &names, self.options.pin);
        let file = self.log().map_err(|error| format!("cannot write its log: {error}"))?;
        let errors = file.try_clone().map_err(|error| error.to_string())?;
        let mut command =
            self.system.command(self.files, &settings).map_err(|error| error.to_string())?;
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(errors);
        let start = Instant::now();
        let mut child = command.spawn().map_err(|error| format!("cannot start it: {error}"))?;
        let lines = lines_of(&mut child, file);
        let result = self.listen(&lines, start, &child, numbers, transcript);
        processes::end(child.id());
        let _ = child.wait();
        result
    }

    /// Until the runner is done, or silent for too long.
    fn listen(
        &self,
        lines: &Receiver<(Instant, String)>,
        start: Instant,
        child: &Child,
        numbers: &[&Number],
        transcript: &mut Transcript,
    ) -> Result<(), String> {
        let mut patience = START_PATIENCE_SECONDS;
        loop {
            let (when, line) = match lines.recv_timeout(Duration::from_secs(patience)) {
                Ok(line) => line,
                Err(RecvTimeoutError::Timeout) => return Err(format!("silent for {patience} s")),
                Err(RecvTimeoutError::Disconnected) => return Err("it crashed".into()),
            };
            let mut keep = |name: &str, outcome| {
                transcript.outcomes.insert(name.to_owned(), outcome);
            };
            match Line::parse(&line) {
                Some(Line::Init) if self.system.family.boots() => {
                    keep("launch", Outcome::Value((when - start).as_nanos() as f64));
                }
                Some(Line::Clock(clock)) => transcript.clocks.push((when, clock)),
                Some(Line::Begin(name)) => {
                    transcript.current = Some(name.to_owned());
                    let number = numbers.iter().find(|number| number.name == name);
                    patience = number.map_or(patience, |number| number.work.patience_seconds());
                }
                Some(Line::Value(name, value)) => keep(name, Outcome::Value(value)),
                Some(Line::Unsupported(name)) => {
                    let why = "its processor lacks what the program needs";
                    keep(name, Outcome::Absent(why.into()));
                }
                Some(Line::Failed(_) | Line::Init) | None => {}
                Some(Line::Idle) => {
                    let memory = self.shape.memory_mib();
                    let watched = self.system.family.boots();
                    if let Some(bytes) =
                        processes::overhead_bytes(child.id(), memory).filter(|_| watched)
                    {
                        keep("memory", Outcome::Value(bytes));
                    }
                    return Ok(());
                }
            }
        }
    }

    fn log(&self) -> std::io::Result<File> {
        let directory = self.options.out.join("logs");
        fs::create_dir_all(&directory)?;
        let Shape { root, processors } = self.shape;
        let name =
            format!("{}-{root:?}-{processors}-{}.log", self.system.name, self.round).to_lowercase();
        File::options().create(true).append(true).open(directory.join(name.replace(' ', "-")))
    }
}

/// Lines of its output as they come, which are also kept in a file.
fn lines_of(child: &mut Child, mut log: File) -> Receiver<(Instant, String)> {
    let (sender, receiver) = channel();
    if let Some(output) = child.stdout.take() {
        std::thread::spawn(move || {
            for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
                let now = Instant::now();
                let line = String::from_utf8_lossy(&line).trim_end().to_owned();
                // A log that cannot be written is no reason to lose the measurement.
                let _ = writeln!(log, "{line}");
                if sender.send((now, line)).is_err() {
                    return;
                }
            }
        });
    }
    receiver
}

impl Transcript {
    /// Something to say if the guest's clock does not go like the host's: then nothing it measured
    /// can be believed.
    fn clock_remark(&self, name: &str) -> Option<String> {
        let [(host_start, guest_start), .., (host_end, guest_end)] = self.clocks.as_slice() else {
            return None;
        };
        let (host, guest) =
            ((*host_end - *host_start).as_secs_f64(), (guest_end - guest_start) / 1e9);
        let drift = guest / host - 1.0;
        (host >= CLOCK_MIN_SECONDS && drift.abs() > CLOCK_TOLERANCE)
            .then(|| format!("{name}: its clock went {:.1}% off the host's", drift * 100.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_runner_is_understood_through_a_console() {
        assert_eq!(Line::parse("\x1b[2J\x1b[1;1H@ init"), Some(Line::Init));
        assert_eq!(Line::parse("@ value fork-exit 85.25\r"), Some(Line::Value("fork-exit", 85.25)));
        assert_eq!(Line::parse("@ begin sha256"), Some(Line::Begin("sha256")));
        assert_eq!(Line::parse("@ clock 12"), Some(Line::Clock(12.0)));
        for other in
            ["", "[    0.1] random: crng init done", "@ value x", "@ value x y", "@ init 1"]
        {
            assert_eq!(Line::parse(other), None, "{other}");
        }
    }

    #[test]
    fn a_clock_that_goes_wrong_is_reported() {
        let start = Instant::now();
        let after = |guest: f64| Transcript {
            clocks: vec![(start, 1e9), (start + Duration::from_secs(10), 1e9 + guest * 1e9)],
            ..Transcript::default()
        };
        assert_eq!(after(10.1).clock_remark("x"), None);
        assert!(after(9.0).clock_remark("x").is_some());
        assert_eq!(Transcript::default().clock_remark("x"), None);
    }
}
