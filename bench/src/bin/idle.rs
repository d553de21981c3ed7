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

use std::process::ExitCode;
use std::time::{Duration, Instant};

use bench::Spread;
use bench::domains::{Domains, SPAN, START_SECONDS, available_kib, load, others, settle, watch};
use bench::processes::{Computed, held_kib};

/// What one domain may need of the host, in KiB: none is started where there is no room for all.
const ROOM_KIB: u64 = 192 << 10;

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
    let mut domains = Domains::new("idle")?;
    let begun = Instant::now();
    // Enough for all to start, to become quiet and to be watched.
    let life = options.domains as u64 * START_SECONDS / 4 + 300 + options.seconds;
    for number in 0..options.domains {
        let given = ["--busybox", "--mem", "128M", "--net", &options.network];
        domains.start(&format!("idle-{number}"), life, &given, &["sleep", "1000000"])?;
    }
    println!("{} domains started in {:.0} s", options.domains, begun.elapsed().as_secs_f64());
    let spans = settle();
    println!("quiet after {} s", u64::from(spans) * SPAN.as_secs());
    let processes = others();
    let before = load();
    let used = watch(&processes, Duration::from_secs(options.seconds));
    report(options, &processes, used)?;
    println!("the host's load before and after: {before}; {}", load());
    Ok(())
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
