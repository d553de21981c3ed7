//! Checkpoints of processes: for how long a process stands still for one, and how soon it is there again.
//!
//! ```text
//! cargo run --release -p bench --bin checkpoint -- [--rounds N] [--mib MIB]
//! ```
//!
//! The processes are `sleep`, and one that has written as many MiB of bytes that do not repeat. They are in a PID
//! namespace of their own, which goes with the program; images are in the current directory.

#![forbid(unsafe_code)]

use std::fs::{self, File, OpenOptions};
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use bench::Spread;
use checkpoint::{Compression, Given, Image, Slots, Writer, freeze, restart};

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// The part of the process that has written something.
const HOLD: &str = "--hold";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let result = match arguments.as_slice() {
        [hold, mib, ready] if hold == HOLD => keep(mib, ready),
        options => measure(options),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("checkpoint: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Write so much memory, say so, and wait.
fn keep(mib: &str, ready: &str) -> Result<(), String> {
    let mib: usize = mib.parse().map_err(|_| format!("{mib} is no number"))?;
    let mut state = 1_u64;
    let words: Vec<u64> = (0..mib << 17)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            state
        })
        .collect();
    fs::write(ready, words[words.len() - 1].to_string()).map_err(|error| error.to_string())?;
    loop {
        std::thread::sleep(PATIENCE);
    }
}

fn measure(options: &[String]) -> Result<(), String> {
    let (mut rounds, mut mib) = (9, 1024);
    for pair in options.chunks(2) {
        let [name, value] = pair else { return Err(format!("{} needs a value", pair[0])) };
        let number = value.parse().map_err(|_| format!("{value} is no number"))?;
        match name.as_str() {
            "--rounds" => rounds = usize::max(number, 1),
            "--mib" => mib = usize::max(number, 1),
            other => return Err(format!("unknown option {other}")),
        }
    }
    let place = Place::new()?;
    println!("| what | unit | median (min..max) |");
    println!("| --- | --- | ---: |");
    let sleep = ["sleep".to_owned(), "100000".to_owned()];
    rounds_of("`sleep`", &sleep, &place, rounds, Compression::Fast)?;
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let ready = place.file("ready");
    let hold = [own, HOLD.into(), mib.to_string().into(), ready];
    let hold = hold.map(|part| part.display().to_string());
    rounds_of(&format!("{mib} MiB, not compressed"), &hold, &place, rounds, Compression::None)?;
    rounds_of(&format!("{mib} MiB, compressed"), &hold, &place, rounds, Compression::Fast)
}

fn rounds_of(
    what: &str,
    command: &[String],
    place: &Place,
    rounds: usize,
    compression: Compression,
) -> Result<(), String> {
    let (mut still, mut whole, mut again) = (Vec::new(), Vec::new(), Vec::new());
    let mut bytes = 0;
    for _ in 0..rounds {
        let _ = fs::remove_file(place.file("ready"));
        let namespace = Namespace::new(command, place)?;
        let root = namespace.child()?;
        let file = place.image()?;
        let start = Instant::now();
        let mut frozen = freeze(root).map_err(|error| error.to_string())?;
        let mut writer = Writer::new(file, compression);
        let state = frozen.dump(&mut writer, &Slots::new()).map_err(|error| error.to_string())?;
        frozen.thaw();
        still.push(milliseconds(start));
        let file = writer.finish(state).map_err(|error| error.to_string())?;
        whole.push(milliseconds(start));
        bytes = file.metadata().map_err(|error| error.to_string())?.len();
        drop(namespace);
        let namespace = Namespace::new(&[], place)?;
        let start = Instant::now();
        let image = Image::open(file).map_err(|error| error.to_string())?;
        let restarted =
            restart(namespace.init, &image, &Given::new()).map_err(|error| error.to_string())?;
        restarted.go().map_err(|error| error.to_string())?;
        again.push(milliseconds(start));
    }
    say(&format!("{what}: stands still"), still)?;
    say(&format!("{what}: until the image ({} KiB) is on the disk", bytes >> 10), whole)?;
    say(&format!("{what}: restarted"), again)
}

fn milliseconds(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1000.0
}

fn say(what: &str, values: Vec<f64>) -> Result<(), String> {
    let Spread { median, min, max } = Spread::of(values).ok_or("there were no rounds")?;
    println!("| {what} | ms | {median:.1} ({min:.1}..{max:.1}) |");
    Ok(())
}

/// A directory for images, which goes with the program.
struct Place(PathBuf);

impl Place {
    fn new() -> Result<Self, String> {
        let directory = PathBuf::from(format!("checkpoint-{}", std::process::id()));
        fs::create_dir(&directory).map_err(|error| error.to_string())?;
        fs::canonicalize(directory).map(Self).map_err(|error| error.to_string())
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn image(&self) -> Result<File, String> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true);
        options.open(self.file("image")).map_err(|error| error.to_string())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A PID namespace with a first process that waits, and a program beside it.
struct Namespace {
    outer: Child,
    init: u32,
}

impl Namespace {
    fn new(command: &[String], place: &Place) -> Result<Self, String> {
        let mut unshare = Command::new("unshare");
        unshare.args(["--user", "--map-root-user", "--pid", "--fork", "--mount-proc"]);
        unshare.args(["--kill-child=KILL", "sh", "-c"]);
        let beside = "\"$@\" & exec sleep 100000";
        unshare.arg(if command.is_empty() { "exec sleep 100000" } else { beside });
        unshare.arg("sh").args(command).stdin(Stdio::null()).stdout(Stdio::null());
        let outer = unshare.spawn().map_err(|error| format!("unshare: {error}"))?;
        let mut namespace = Self { outer, init: 0 };
        namespace.init = until("the namespace", || {
            let init = children(namespace.outer.id()).first().copied()?;
            (name(init) == "sleep").then_some(init)
        })?;
        let holds = command.iter().any(|argument| argument == HOLD);
        let is_ready = || (!holds || place.file("ready").exists()).then_some(());
        until("the process", is_ready)?;
        if !command.is_empty() {
            let begun = || namespace.child().ok().filter(|child| name(*child) != "sh");
            until("the process", begun)?;
        }
        Ok(namespace)
    }

    fn child(&self) -> Result<u32, String> {
        children(self.init).first().copied().ok_or("the process is gone".to_owned())
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = self.outer.kill();
        let _ = self.outer.wait();
    }
}

fn until<T>(what: &str, find: impl Fn() -> Option<T>) -> Result<T, String> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = find() {
            return Ok(found);
        }
        if Instant::now() > deadline {
            return Err(format!("{what} does not begin"));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn children(pid: u32) -> Vec<u32> {
    let list = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    list.split_whitespace().filter_map(|child| child.parse().ok()).collect()
}

fn name(pid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim().to_owned()
}
