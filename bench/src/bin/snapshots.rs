//! Snapshots: for how long a guest stands still for one, how soon a machine goes on from it, what each
//! machine that does costs the host, and how much sooner a warm start is than a cold one.
//!
//! ```text
//! cargo run --release -p bench --bin snapshots -- [--rounds N] [--mem SIZE] [--touched MIB]
//! ```
//!
//! The machine has 512 MiB of memory, of which it has touched as much as its kernel needs, and as many more
//! as are asked for with `--touched`. Domains are in a registry of their own, which goes with the program.

#![forbid(unsafe_code)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use bench::{Spread, run};

/// Machines that go on from one snapshot, for what each costs.
const SIBLINGS: usize = 8;

/// How long these are left alone before that is looked at.
const QUIET: Duration = Duration::from_secs(3);

struct Options {
    rounds: usize,
    memory: String,
    touched: u32,
}

/// A registry with its domains, which end with it.
struct Place {
    biv: PathBuf,
    directory: PathBuf,
}

impl Place {
    fn new() -> Result<Self, String> {
        let biv = std::env::current_exe().map_err(|error| error.to_string())?.with_file_name("biv");
        let directory = PathBuf::from(format!("snapshots-{}", std::process::id()));
        fs::create_dir(&directory).map_err(|error| error.to_string())?;
        let directory = fs::canonicalize(directory).map_err(|error| error.to_string())?;
        Ok(Self { biv, directory })
    }

    fn biv(&self, arguments: &[&str]) -> Result<String, String> {
        let mut command = Command::new(&self.biv);
        run(command.args(arguments).env("XDG_RUNTIME_DIR", &self.directory))
    }

    /// Milliseconds that it takes.
    fn time(&self, arguments: &[&str]) -> Result<f64, String> {
        let start = Instant::now();
        self.biv(arguments)?;
        Ok(start.elapsed().as_secs_f64() * 1000.0)
    }

    fn file(&self) -> String {
        self.directory.join("snapshot").display().to_string()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        for entry in fs::read_dir(self.directory.join("bivouac")).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let _ = self.biv(&["rm", "--force", &name]);
        }
        let _ = fs::remove_dir_all(&self.directory);
    }
}

fn main() -> ExitCode {
    match options().and_then(|options| measure(&options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("snapshots: {error}");
            ExitCode::FAILURE
        }
    }
}

fn options() -> Result<Options, String> {
    let mut options = Options { rounds: 5, memory: "512M".to_owned(), touched: 0 };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let value = arguments.next().ok_or(format!("{argument} needs a value"))?;
        let number = || value.parse::<u32>().map_err(|_| format!("{value} is no number"));
        match argument.as_str() {
            "--rounds" => options.rounds = number()?.max(1) as usize,
            "--touched" => options.touched = number()?,
            "--mem" => options.memory = value,
            other => return Err(format!("unknown option {other}")),
        }
    }
    Ok(options)
}

fn measure(options: &Options) -> Result<(), String> {
    let place = Place::new()?;
    let script = format!(
        "head -c {}m /dev/urandom > /tmp/touched; echo ready; sleep 100000",
        options.touched
    );
    let begin = ["run", "-d", "--name=first", "--busybox", "--cpus=1", "--mem", &options.memory];
    place.biv(&[&begin[..], &["--", "sh", "-c", &script]].concat())?;
    while !place.biv(&["logs", "first"])?.contains("ready") {
        std::thread::sleep(Duration::from_millis(100));
    }
    println!("| what | unit | median (min..max) |");
    println!("| --- | --- | ---: |");
    let (mut paused, mut per_gib, mut whole) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..options.rounds {
        let start = Instant::now();
        let told =
            place.biv(&["snapshot", "--force", "--format", "json", "first", &place.file()])?;
        whole.push(start.elapsed().as_secs_f64() * 1000.0);
        let [pause, memory] = ["paused", "memory"].map(|name| number_of(&told, name));
        let gib = memory? / (1 << 30) as f64;
        paused.push(pause?);
        per_gib.push(paused[paused.len() - 1] / gib);
    }
    say("standing still for a snapshot", "ms", paused)?;
    say("the same for each GiB that is not zero", "ms", per_gib)?;
    say("`biv snapshot`", "ms", whole)?;
    measure_restored(&place, options)?;
    measure_starts(&place, options)
}

fn measure_restored(place: &Place, options: &Options) -> Result<(), String> {
    for (what, more) in
        [("`biv restore -d`", &[][..]), ("`biv restore -d --no-verify`", &["--no-verify"])]
    {
        let mut times = Vec::new();
        for _ in 0..options.rounds {
            let restore = ["restore", "-d", "--rm", "--name", "again"];
            times.push(place.time(&[&restore[..], more, &[&place.file()]].concat())?);
            place.biv(&["rm", "-f", "again"])?;
        }
        say(what, "ms", times)?;
    }
    let names: Vec<_> = (0..SIBLINGS).map(|number| format!("sibling-{number}")).collect();
    for name in &names {
        place.biv(&["restore", "-d", "--name", name, &place.file()])?;
    }
    std::thread::sleep(QUIET);
    let costs: Result<Vec<_>, _> = names.iter().map(|name| cost_of(place, name)).collect();
    say("memory of each of 8 machines from one snapshot (PSS)", "MiB", costs?)
}

fn measure_starts(place: &Place, options: &Options) -> Result<(), String> {
    let (mut cold, mut warm) = (Vec::new(), Vec::new());
    let start = |more: &[&str]| place.time(&[&["run"], more, &["--", "true"]].concat());
    // Whoever is first leaves a snapshot.
    start(&[])?;
    for _ in 0..options.rounds {
        cold.push(start(&["--cold"])?);
        warm.push(start(&[])?);
    }
    say("`biv run --cold -- true`", "ms", cold)?;
    say("`biv run -- true`", "ms", warm)
}

fn say(what: &str, unit: &str, values: Vec<f64>) -> Result<(), String> {
    let Spread { median, min, max } = Spread::of(values).ok_or("there were no rounds")?;
    println!("| {what} | {unit} | {median:.0} ({min:.0}..{max:.0}) |");
    Ok(())
}

/// A number in a JSON object.
fn number_of(json: &str, name: &str) -> Result<f64, String> {
    let found = json.split(&format!("\"{name}\":")).nth(1).and_then(|rest| {
        let digits: String = rest.trim().chars().take_while(char::is_ascii_digit).collect();
        digits.parse().ok()
    });
    found.ok_or(format!("there is no {name} in {json}"))
}

/// MiB that a domain's processes have, each page shared among those who have it.
fn cost_of(place: &Place, name: &str) -> Result<f64, String> {
    let pid = number_of(&place.biv(&["inspect", name])?, "pid")? as u32;
    let mut total = 0.0;
    let mut processes = vec![pid];
    while let Some(process) = processes.pop() {
        total += proportional(Path::new(&format!("/proc/{process}")))?;
        let children = fs::read_to_string(format!("/proc/{process}/task/{process}/children"));
        let children = children.unwrap_or_default();
        processes.extend(children.split_whitespace().filter_map(|child| child.parse::<u32>().ok()));
    }
    Ok(total)
}

fn proportional(process: &Path) -> Result<f64, String> {
    let rollup = fs::read_to_string(process.join("smaps_rollup"));
    let rollup = rollup.map_err(|error| format!("{}: {error}", process.display()))?;
    let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:"));
    let kib: Option<f64> = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    kib.map(|kib| kib / 1024.0).ok_or(format!("{} does not say", process.display()))
}
