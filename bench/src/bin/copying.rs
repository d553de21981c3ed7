//! Pods with much memory: for how long they stand still for an image, an increment, and a move.
//!
//! ```text
//! cargo build --release -p biv && cargo run --release -p bench --bin copying -- [--rounds N] [--mib MIB]
//! ```
//!
//! Each round has a fresh pod with a program that has written as many MiB of bytes that do not repeat. It then does
//! nothing, or goes on to write pages at 100 MB/s, and says for how long it did not get on. Images are in the directory
//! for temporary files, and the pods in registries of their own; both go with the program.

#![forbid(unsafe_code)]

use std::fs;
use std::ops::Deref;
use std::path::PathBuf;
use std::process::{ExitCode, Stdio};
use std::time::{Duration, Instant};

use bench::Spread;
use bench::pods::Place;
use serde_json::Value;

/// Rounds, unless somebody wants another number.
const ROUNDS: usize = 10;
/// MiB of memory, unless somebody wants another number.
const MIB: usize = 1024;
/// Bytes that a program writes in a second, if it goes on.
const BYTES_PER_SECOND: u64 = 100_000_000;
/// Bytes that a program writes between two images.
const INCREMENT_BYTES: u64 = 10_000_000;
/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// The part of the program in the pod.
const HOLD: &str = "--hold";
/// Words of a page.
const PAGE_WORDS: usize = 512;
/// What a program notices that writes all the time.
const GAP: Duration = Duration::from_millis(2);

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let result = match arguments.as_slice() {
        [hold, mib, rate] if hold == HOLD => keep(mib, rate),
        options => measure(options),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("copying: {error}");
            ExitCode::FAILURE
        }
    }
}

/// In the pod: write so much memory, say so, and go on writing. Without a rate, write some whenever /tmp/write is
/// there.
fn keep(mib: &str, rate: &str) -> Result<(), String> {
    let number = |text: &str| text.parse::<u64>().map_err(|_| format!("{text} is no number"));
    let (mib, rate) = (number(mib)?, number(rate)?);
    let mut state = 1_u64;
    let mut words: Vec<u64> = (0..mib << 17)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            state
        })
        .collect();
    println!("ready");
    let mut at = 0;
    let mut write = |bytes: u64| {
        for _ in 0..bytes / 4096 {
            words[at] = words[at].wrapping_add(1);
            at = (at + PAGE_WORDS) % words.len();
        }
    };
    if rate == 0 {
        loop {
            std::thread::sleep(Duration::from_millis(5));
            if fs::remove_file("/tmp/write").is_ok() {
                write(INCREMENT_BYTES);
                println!("written");
            }
        }
    }
    let (mut begin, mut last, mut written) = (Instant::now(), Instant::now(), 0);
    loop {
        write(1 << 18);
        written += 1 << 18;
        while begin.elapsed().as_secs_f64() * (rate as f64) < written as f64 {
            std::thread::sleep(Duration::from_micros(500));
            note(&mut last);
        }
        note(&mut last);
        if begin.elapsed() > Duration::from_secs(1) {
            // What was missed is not made up for.
            (begin, written) = (Instant::now(), 0);
        }
    }
}

/// Say for how long nothing has gone on.
fn note(last: &mut Instant) {
    let gap = last.elapsed();
    if gap > GAP {
        println!("gap {}", gap.as_secs_f64() * 1000.0);
    }
    *last = Instant::now();
}

/// What was measured, by what it is.
type Samples = Vec<(&'static str, &'static str, Vec<f64>)>;

fn measure(options: &[String]) -> Result<(), String> {
    let (mut rounds, mut mib) = (ROUNDS, MIB);
    for pair in options.chunks(2) {
        let [name, value] = pair else { return Err(format!("{} needs a value", pair[0])) };
        let number = value.parse().map_err(|_| format!("{value} is no number"))?;
        match name.as_str() {
            "--rounds" => rounds = usize::max(number, 1),
            "--mib" => mib = usize::max(number, 64),
            other => return Err(format!("unknown option {other}")),
        }
    }
    let (here, there) = (Held::new("here")?, Held::new("there")?);
    let mut samples = Samples::new();
    for _ in 0..rounds {
        idle(&here, mib, &mut samples)?;
        busy(&here, mib, &mut samples)?;
        moves(&here, &there, mib, &mut samples)?;
    }
    println!("| what | unit | median (min..max) |");
    println!("| --- | --- | ---: |");
    for (what, unit, values) in samples {
        let Spread { median, min, max } = Spread::of(values).ok_or("there were no rounds")?;
        println!("| {mib} MiB, {what} | {unit} | {median:.1} ({min:.1}..{max:.1}) |");
    }
    Ok(())
}

fn add(samples: &mut Samples, what: &'static str, unit: &'static str, value: f64) {
    match samples.iter_mut().find(|(found, ..)| *found == what) {
        Some((.., values)) => values.push(value),
        None => samples.push((what, unit, vec![value])),
    }
}

/// The stop at the end, and the longest before it, of a report.
fn stops(report: &str) -> Result<(f64, f64), String> {
    let report: Value = serde_json::from_str(report).map_err(|error| error.to_string())?;
    let milliseconds = |value: &Value| value["frozen"].as_f64().ok_or("the report lacks something");
    let rounds = report["rounds"].as_array().ok_or("the report lacks something")?;
    let before = rounds.iter().map(milliseconds).collect::<Result<Vec<_>, _>>()?;
    Ok((milliseconds(&report)?, before.into_iter().fold(0.0, f64::max)))
}

/// One that does nothing is written, and then what it has written since.
fn idle(place: &Held, mib: usize, samples: &mut Samples) -> Result<(), String> {
    place.start(mib, 0)?;
    let (image, increment) = (place.file("image"), place.file("increment"));
    let checkpoint = ["checkpoint", "--force", "--format", "json", "held", "--output"];
    let start = Instant::now();
    let said = place.pod(&[&checkpoint[..], &[&image, "--track"]].concat())?;
    let whole = start.elapsed();
    let (last, before) = stops(&said)?;
    add(samples, "does nothing: stands still in the end", "ms", last);
    add(samples, "does nothing: stands still at the longest before", "ms", before);
    add(samples, "does nothing: until the image is on the disk", "ms", milliseconds(whole));
    place.pod(&["exec", "held", "touch", "/tmp/write"])?;
    place.wait_for("written")?;
    let said = place.pod(&[&checkpoint[..], &[&increment, "--incremental"]].concat())?;
    add(samples, "an increment after 10 MB: stands still", "ms", stops(&said)?.0);
    let bytes = fs::metadata(&increment).map_err(|error| error.to_string())?.len();
    add(samples, "an increment after 10 MB: bytes of the file", "MB", bytes as f64 / 1e6);
    place.pod(&["rm", "--force", "held"])?;
    let start = Instant::now();
    place.pod(&["restart", "--detach", "--net", "none", "--name", "held", &increment])?;
    add(samples, "an increment: restarted", "ms", milliseconds(start.elapsed()));
    place.pod(&["rm", "--force", "held"]).map(drop)
}

/// One that goes on to write is written.
fn busy(place: &Held, mib: usize, samples: &mut Samples) -> Result<(), String> {
    place.start(mib, BYTES_PER_SECOND)?;
    let image = place.file("image");
    let checkpoint = ["checkpoint", "--force", "--format", "json", "held", "--output", &image];
    let (last, before) = stops(&place.pod(&checkpoint)?)?;
    add(samples, "writes 100 MB/s: stands still in the end", "ms", last);
    add(samples, "writes 100 MB/s: stands still at the longest before", "ms", before);
    add(samples, "writes 100 MB/s: does not get on, at the longest", "ms", place.longest_gap()?);
    place.pod(&["rm", "--force", "held"]).map(drop)
}

/// The same moves.
fn moves(here: &Held, there: &Held, mib: usize, samples: &mut Samples) -> Result<(), String> {
    here.start(mib, BYTES_PER_SECOND)?;
    let socket = there.file("socket");
    let address = format!("unix:{socket}");
    let mut receiver = there.command(&["receive", "--net", "none", &address]);
    let receiver = receiver.stdin(Stdio::null()).stdout(Stdio::null()).spawn();
    let mut receiver = receiver.map_err(|error| error.to_string())?;
    until("the receiver", || fs::metadata(&socket).is_ok())?;
    let said = here.pod(&["migrate", "--format", "json", "held", &address]);
    receiver.wait().map_err(|error| error.to_string())?;
    add(samples, "writes 100 MB/s: stands still while it moves", "ms", stops(&said?)?.0);
    there.pod(&["rm", "--force", "held"])?;
    here.pod(&["rm", "--force", "held"]).map(drop)
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

fn until(what: &str, is_so: impl Fn() -> bool) -> Result<(), String> {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        if Instant::now() > deadline {
            return Err(format!("{what} takes too long"));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// A place for the pod that is measured.
struct Held {
    own: PathBuf,
    place: Place,
}

impl Deref for Held {
    type Target = Place;

    fn deref(&self) -> &Place {
        &self.place
    }
}

impl Held {
    fn new(name: &str) -> Result<Self, String> {
        let own = std::env::current_exe().map_err(|error| error.to_string())?;
        // The pod sees the program there.
        let place = Place::new(name)?.at(own.parent().unwrap_or(&own));
        Ok(Self { own, place })
    }

    /// Starts the pod that is measured, and waits until it has its memory.
    fn start(&self, mib: usize, rate: u64) -> Result<(), String> {
        let own = self.own.display().to_string();
        let (mib, rate) = (mib.to_string(), rate.to_string());
        let pod = ["run", "--detach", "--net", "none", "--name", "held", "--"];
        self.pod(&[&pod[..], &[&own, HOLD, &mib, &rate]].concat())?;
        self.wait_for("ready")
    }

    fn wait_for(&self, word: &str) -> Result<(), String> {
        let has_said = || self.pod(&["logs", "held"]).is_ok_and(|said| said.contains(word));
        until(word, has_said)
    }

    fn longest_gap(&self) -> Result<f64, String> {
        let said = self.pod(&["logs", "held"])?;
        let gaps = said.lines().filter_map(|line| line.strip_prefix("gap ")?.parse::<f64>().ok());
        Ok(gaps.fold(0.0, f64::max))
    }
}
