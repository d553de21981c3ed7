//! Idle domains: what many of them together compute and hold in memory while nobody wants anything of them.
//!
//! ```text
//! cargo run --release -p bench --bin idle -- [--domains N] [--seconds N] [--network KIND]
//! ```
//!
//! N domains of 128 MiB that sleep are started one after the other, in a registry of their own. When they
//! have become quiet, all that their processes compute is counted for so many seconds: the domains' own and
//! their helpers, which are the descendants of this one, because it adopts orphans. They are removed in the
//! end; if this program is killed, they end by their own time-out.

#![forbid(unsafe_code)]

use std::fs;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use bench::processes::{Computed, computed, end, held_kib, tree};
use bench::{Spread, run};

/// What one domain may need of the host, in KiB: none is started where there is no room for all.
const ROOM_KIB: u64 = 192 << 10;

/// The longest that one may need to start.
const START_SECONDS: u64 = 60;

/// Domains are quiet when they compute more than this part of what they did in the span before.
const QUIET: f64 = 0.9;

/// The span, and how many of them to wait at most.
const SPAN: Duration = Duration::from_secs(5);
const MOST_SPANS: u32 = 24;

struct Options {
    domains: usize,
    seconds: u64,
    network: String,
}

fn main() -> ExitCode {
    match parse().and_then(|options| measure(&options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("idle: {error}");
            ExitCode::FAILURE
        }
    }
}

fn parse() -> Result<Options, String> {
    let mut options = Options { domains: 100, seconds: 60, network: "user".into() };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let value = arguments.next().ok_or(format!("{argument} needs a value"))?;
        let number = || value.parse::<u64>().map_err(|_| format!("{value} is no number"));
        match argument.as_str() {
            "--domains" => options.domains = number()?.max(1) as usize,
            "--seconds" => options.seconds = number()?.max(1),
            "--network" => options.network = value,
            other => return Err(format!("unknown option {other}")),
        }
    }
    Ok(options)
}

/// Domains, all of which vanish with this.
struct Domains {
    biv: PathBuf,
    registry: PathBuf,
    names: Vec<String>,
}

impl Domains {
    fn new() -> Result<Domains, String> {
        let own = std::env::current_exe().map_err(|error| error.to_string())?;
        let registry = std::env::temp_dir().join(format!("bivouac-idle-{}", std::process::id()));
        fs::create_dir(&registry).map_err(|error| format!("{}: {error}", registry.display()))?;
        Ok(Domains { biv: own.with_file_name("biv"), registry, names: Vec::new() })
    }

    /// `biv` in this registry; it does not outlive its patience.
    fn biv(&self, patience: u64) -> Command {
        let mut command = Command::new("timeout");
        command.args(["--kill-after=5", &patience.to_string()]).arg(&self.biv);
        command.env("XDG_RUNTIME_DIR", &self.registry);
        command
    }

    fn start(&mut self, options: &Options) -> Result<(), String> {
        let name = format!("idle-{}", self.names.len());
        // Enough for all to start, to become quiet and to be watched.
        let life = options.domains as u64 * START_SECONDS / 4 + 300 + options.seconds;
        let mut command = self.biv(START_SECONDS);
        command.args(["run", "-d", "--name", &name, "--busybox", "--mem", "128M"]);
        command.args(["--net", &options.network, "--timeout", &life.to_string()]);
        run(command.args(["--", "sleep", "1000000"]))?;
        self.names.push(name);
        Ok(())
    }
}

impl Drop for Domains {
    fn drop(&mut self) {
        let patience = 30 + self.names.len() as u64;
        let removed = run(self.biv(patience).args(["rm", "--force"]).args(&self.names));
        if let Err(error) = removed {
            eprintln!("idle: {error}");
        }
        others().into_iter().for_each(end);
        let _ = fs::remove_dir_all(&self.registry);
    }
}

/// All that descends from this process, without it.
fn others() -> Vec<u32> {
    tree(std::process::id()).split_off(1)
}

fn measure(options: &Options) -> Result<(), String> {
    let available = available_kib().ok_or("/proc/meminfo does not say what is available")?;
    if available < options.domains as u64 * ROOM_KIB {
        return Err(format!(
            "{} MiB are available, and {} domains may need {}",
            available >> 10,
            options.domains,
            (options.domains as u64 * ROOM_KIB) >> 10,
        ));
    }
    // Domains go on without whoever has started them, and are not to get out of sight.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
        .map_err(|error| error.to_string())?;
    let mut domains = Domains::new()?;
    let begun = Instant::now();
    for _ in 0..options.domains {
        domains.start(options)?;
    }
    println!("{} domains started in {:.0} s", options.domains, begun.elapsed().as_secs_f64());
    let spans = settle();
    println!("quiet after {} s", u64::from(spans) * SPAN.as_secs());
    let processes = others();
    let load = load();
    let used = watch(&processes, Duration::from_secs(options.seconds));
    report(options, &processes, used)?;
    println!("the host's load before and after: {load}; {}", self::load());
    Ok(())
}

/// Wait until the domains compute hardly less than in the span before; how many spans that took.
fn settle() -> u32 {
    let mut last = f64::INFINITY;
    for span in 1..=MOST_SPANS {
        let now = watch(&others(), SPAN).seconds;
        if now > QUIET * last {
            return span;
        }
        last = now;
    }
    MOST_SPANS
}

/// What they compute in a time.
fn watch(processes: &[u32], time: Duration) -> Computed {
    let (start, before) = (Instant::now(), computed(processes));
    std::thread::sleep(time);
    let after = computed(processes);
    // A busy host may be late.
    let late = time.as_secs_f64() / start.elapsed().as_secs_f64();
    let times = (after.times.saturating_sub(before.times) as f64 * late) as u64;
    Computed { seconds: (after.seconds - before.seconds) * late, times }
}

fn report(options: &Options, processes: &[u32], used: Computed) -> Result<(), String> {
    let (count, seconds) = (options.domains as f64, options.seconds as f64);
    println!(
        "together {:.2}% of one core: a domain computes {:.2} ms and is woken {:.2} times a second",
        100.0 * used.seconds / seconds,
        1000.0 * used.seconds / seconds / count,
        used.times as f64 / seconds / count,
    );
    let held: Vec<f64> = processes.iter().map(|one| held_kib(*one) as f64 / 1024.0).collect();
    // A domain's own process has the guest's memory, and is the largest of its.
    let mut largest = held.clone();
    largest.sort_by(|one, other| other.total_cmp(one));
    largest.truncate(options.domains);
    let Spread { median, min, max } = Spread::of(largest).ok_or("no process is left")?;
    println!(
        "memory (proportional): {:.0} MiB a domain, of which its process {median:.0} \
         ({min:.0}..{max:.0}); \
         {:.1} processes a domain",
        held.iter().sum::<f64>() / count,
        processes.len() as f64 / count,
    );
    Ok(())
}

fn available_kib() -> Option<u64> {
    let all = fs::read_to_string("/proc/meminfo").ok()?;
    let line = all.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().trim_end_matches(" kB").parse().ok()
}

fn load() -> String {
    fs::read_to_string("/proc/loadavg").unwrap_or_default().trim().to_owned()
}
