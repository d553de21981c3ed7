//! A system at work: start it, read what the runner in it says, start it again for what broke. One round of
//! functions, which share a machine, or one sample of a program, which has a fresh one.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use crate::processes;

use crate::counters;
use crate::files::Files;
use crate::number::{Number, Shape};
use crate::options::Options;
use crate::results::{Details, Outcome, Results, Sample};
use crate::systems::{Family, Settings, System};

/// How long a system may take to start.
const START_PATIENCE_SECONDS: u64 = 180;

/// How long a machine may take to end by itself where its counters are wanted.
const END_PATIENCE_SECONDS: u64 = 30;

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
    Timed(&'a str),
    Value(&'a str, f64),
    Unsupported(&'a str),
    Absent(&'a str, &'a str),
    Failed(&'a str),
    Idle,
}

impl Line<'_> {
    /// From a console, whose lines may begin with a terminal's control sequences.
    fn parse(line: &str) -> Option<Line<'_>> {
        let line = line[line.find("@ ")? + 2..].trim_end();
        if let Some((name, why)) =
            line.strip_prefix("absent ").and_then(|rest| rest.split_once(' '))
        {
            return Some(Line::Absent(name, why));
        }
        let mut words = line.split_whitespace();
        let line = match (words.next()?, words.next(), words.next()) {
            ("init", None, None) => Line::Init,
            ("idle", None, None) => Line::Idle,
            ("clock", Some(value), None) => Line::Clock(value.parse().ok()?),
            ("begin", Some(name), None) => Line::Begin(name),
            ("timed", Some(name), None) => Line::Timed(name),
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
    /// What all processes had computed when the work that is timed began, in seconds.
    computed_before: Option<f64>,
    /// What is known beside values.
    details: Details,
}

/// What became of some numbers.
struct Attempts {
    outcomes: BTreeMap<String, Outcome>,
    remarks: Vec<String>,
    details: Details,
}

/// Measure all functions that were asked for on one system.
pub fn measure(
    round: usize,
    system: usize,
    options: &Options,
    files: &Files,
    results: &mut Results,
) {
    for shape in Shape::SHARED {
        let who = results.systems[system].clone();
        let of_shape = |number: &&&Number| {
            let work = &number.work;
            let is_due = !work.is_fresh() && round <= options.amount(work).rounds;
            is_due && work.shape() == shape && who.measures(number)
        };
        let numbers: Vec<_> = options.numbers.iter().filter(of_shape).copied().collect();
        if numbers.is_empty() {
            continue;
        }
        eprintln!("round {round}: {}, {:?}, {} CPU", who.name, shape.root, shape.processors);
        let run = Run { system: &who, shape, options, files, round };
        let attempts = run.with_retries(&numbers);
        for number in numbers {
            let outcome = attempts.outcome(number);
            results.samples.push(Sample::new(round, system, number, outcome));
        }
        results.remarks.extend(attempts.remarks);
    }
}

/// Measure one program in a fresh machine.
pub fn sample(
    start: usize,
    system: usize,
    number: &'static Number,
    options: &Options,
    files: &Files,
    results: &mut Results,
) {
    let who = results.systems[system].clone();
    let run = Run { system: &who, shape: number.work.shape(), options, files, round: start };
    let attempts = run.with_retries(&[number]);
    let outcome = attempts.outcome(number);
    let said = match &outcome {
        Outcome::Value(value) => format!("{:.3} {}", value / number.unit.divisor, number.unit.name),
        Outcome::Absent(why) => format!("absent: {why}"),
        Outcome::Failed(why) => format!("failed: {why}"),
    };
    eprintln!("start {start}: {}: {}: {said}", number.name, who.name);
    results.remarks.extend(attempts.remarks);
    let details = attempts.details;
    results.samples.push(Sample { details, ..Sample::new(start, system, number, outcome) });
}

impl Attempts {
    fn outcome(&self, number: &Number) -> Outcome {
        let missing = || Outcome::Absent("it was not tried".into());
        self.outcomes.get(number.name).cloned().unwrap_or_else(missing)
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
    fn with_retries(&self, numbers: &[&Number]) -> Attempts {
        let (mut outcomes, mut remarks) = (BTreeMap::new(), Vec::new());
        let mut details = Details::default();
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
                return Attempts { outcomes, remarks, details };
            }
            let transcript = self.once(&open);
            details = transcript.details.clone();
            remarks.extend(transcript.clock_remark(&self.system.name));
            for number in self.blamed(&open, &transcript) {
                let attempt = attempts.entry(number.name).or_default();
                *attempt += 1;
                let log = self.log_path(&open);
                let failed = || format!("its program failed ({} says how)", log.display());
                let why = transcript.trouble.clone().unwrap_or_else(failed);
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
            for number in numbers.iter().filter(|number| number.work.is_outside()) {
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
        let inside = numbers.iter().filter(|number| !number.work.is_outside());
        let names: Vec<&str> = inside.map(|number| number.name).collect();
        let amount = self.options.amount(&numbers[0].work);
        let settings = Settings::new(self.shape, amount, &names, self.options.pin);
        let path = self.log_path(numbers);
        let file = self.log(&path).map_err(|error| format!("cannot write its log: {error}"))?;
        let errors = file.try_clone().map_err(|error| error.to_string())?;
        let written = file.metadata().map_or(0, |data| data.len());
        let mut command =
            self.system.command(self.files, &settings).map_err(|error| error.to_string())?;
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(errors);
        let start = Instant::now();
        transcript.computed_before = self.computed();
        let mut child = command.spawn().map_err(|error| format!("cannot start it: {error}"))?;
        let lines = lines_of(&mut child, file);
        let result = self.listen(&lines, start, &child, numbers, transcript);
        if result.is_ok() && self.options.wants_counters() && self.system.family == Family::Biv {
            await_end(&mut child);
            let log = fs::read(&path).unwrap_or_default();
            let said = log.get(written as usize..).unwrap_or_default();
            let said = String::from_utf8_lossy(said);
            transcript.details.counters = counters::among(&said, &self.options.counters);
        }
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
        let mut deadline = start + Duration::from_secs(patience);
        let since = |before: Option<f64>| Some(self.computed()? - before?);
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let (when, line) = match lines.recv_timeout(left) {
                Ok(line) => line,
                Err(RecvTimeoutError::Timeout) => {
                    return Err(format!("not done after {patience} s"));
                }
                Err(RecvTimeoutError::Disconnected) => return Err("it crashed".into()),
            };
            let mut keep = |name: &str, outcome| {
                transcript.outcomes.insert(name.to_owned(), outcome);
            };
            match Line::parse(&line) {
                Some(Line::Init) if self.system.family.boots() => {
                    keep("launch", Outcome::Value((when - start).as_nanos() as f64));
                    transcript.details.cpu_seconds = since(transcript.computed_before);
                }
                Some(Line::Clock(clock)) => transcript.clocks.push((when, clock)),
                Some(Line::Begin(name)) => {
                    transcript.current = Some(name.to_owned());
                    transcript.computed_before = self.computed();
                    let number = numbers.iter().find(|number| number.name == name);
                    patience = number.map_or(patience, |number| number.work.patience_seconds());
                    deadline = when + Duration::from_secs(patience);
                }
                Some(Line::Timed(_)) => transcript.computed_before = self.computed(),
                Some(Line::Value(name, value)) => {
                    keep(name, Outcome::Value(value));
                    transcript.details.cpu_seconds = since(transcript.computed_before);
                }
                Some(Line::Absent(name, why)) => keep(name, Outcome::Absent(why.into())),
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

    /// What all processes of all systems have computed so far, in seconds of a core.
    fn computed(&self) -> Option<f64> {
        self.files.group.as_ref()?.seconds()
    }

    /// Where everything that is said goes: a file for each round of functions, and for each start of a program.
    fn log_path(&self, numbers: &[&Number]) -> PathBuf {
        let what = match numbers {
            [number] if number.work.is_fresh() => number.name.to_owned(),
            _ => format!("{:?}-{}", self.shape.root, self.shape.processors),
        };
        let name = format!("{}-{what}-{}.log", self.system.name, self.round).to_lowercase();
        self.options.out.join("logs").join(name.replace(' ', "-"))
    }

    fn log(&self, path: &Path) -> std::io::Result<File> {
        fs::create_dir_all(path.parent().unwrap_or(path))?;
        File::options().create(true).append(true).open(path)
    }
}

/// Until a machine has ended by itself, or should have.
fn await_end(child: &mut Child) {
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(END_PATIENCE_SECONDS) {
        if !matches!(child.try_wait(), Ok(None)) {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
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
        assert_eq!(Line::parse("@ timed build"), Some(Line::Timed("build")));
        assert_eq!(Line::parse("@ clock 12"), Some(Line::Clock(12.0)));
        let absent = Line::Absent("nginx", "no wrk here");
        assert_eq!(Line::parse("@ absent nginx no wrk here\r"), Some(absent));
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
