//! `biv stats`: the resources that domains use, by their own account and by the host's.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::Error;
use crate::cli::domains::Stats;
use crate::live::Live;
use api::client::{self, Client};
use api::v1::Statistics;
use api::{Entry, Registry};
pub(crate) use processes::Group;

mod processes;

/// How long is looked if it is shown once.
const ONCE_PERIOD: Duration = Duration::from_millis(300);

/// One domain at one time.
struct Sample {
    at: Instant,
    group: Group,
    statistics: Statistics,
}

impl Sample {
    fn take(entry: &Entry) -> Option<Sample> {
        let client = Client::connect(entry).ok()?;
        let process = client.process()?;
        let statistics = client.get("/v1/domain/statistics").ok()?;
        let group = Group::of(process.as_raw_pid());
        Some(Sample { at: Instant::now(), group, statistics })
    }
}

/// What is shown of a domain.
#[derive(Debug, Serialize)]
struct Row {
    name: String,
    /// Percent of one core.
    cpu: f64,
    /// Processes, helpers included.
    processes: usize,
    /// Bytes of the host's memory: what is shared counts in parts.
    memory_host: u64,
    /// Bytes that the guest has touched.
    memory_used: u64,
    memory: u64,
    exits_per_second: u64,
    /// From and to disks.
    read_bytes: u64,
    written_bytes: u64,
    statistics: Statistics,
}

/// `biv stats`.
pub fn stats(arguments: &Stats) -> Result<(), Error> {
    let registry = Registry::open()?;
    for name in &arguments.names {
        let entry = registry.find(name)?;
        if !entry.alive {
            return Err(client::Error::NotRunning(api::Kind::Domain, entry.name).into());
        }
    }
    let (format, once) = (arguments.format, arguments.once);
    let rows = |before: &BTreeMap<String, Sample>, now: &BTreeMap<String, Sample>| {
        let row = |(name, sample): (&String, _)| Some(row(name, before.get(name)?, sample));
        now.iter().filter_map(row).collect()
    };
    Live { format, once, once_period: ONCE_PERIOD }.show(
        || samples(&registry, arguments),
        rows,
        table,
    )
}

fn samples(registry: &Registry, arguments: &Stats) -> Result<BTreeMap<String, Sample>, Error> {
    let entries = if arguments.names.is_empty() {
        registry.list()?
    } else {
        arguments.names.iter().map(|name| registry.find(name)).collect::<Result<_, _>>()?
    };
    let alive = entries.iter().filter(|entry| entry.alive);
    Ok(alive.filter_map(|entry| Some((entry.name.to_string(), Sample::take(entry)?))).collect())
}

fn row(name: &str, before: &Sample, now: &Sample) -> Row {
    let seconds = (now.at - before.at).as_secs_f64().max(0.001);
    let computed = now.group.computed.saturating_sub(before.group.computed);
    let exits = |sample: &Sample| -> u64 {
        sample.statistics.processors.iter().map(|processor| processor.exits).sum()
    };
    let exits = exits(now).saturating_sub(exits(before));
    Row {
        name: name.to_owned(),
        cpu: (computed.as_secs_f64() / seconds * 1000.0).round() / 10.0,
        processes: now.group.processes,
        memory_host: now.group.memory,
        memory_used: now.statistics.memory_used,
        memory: now.statistics.memory,
        exits_per_second: (exits as f64 / seconds) as u64,
        // By the host's account, or else by the domain's, which knows of fewer processes.
        read_bytes: now.group.read.max(now.statistics.read_bytes),
        written_bytes: now.group.written.max(now.statistics.written_bytes),
        statistics: now.statistics.clone(),
    }
}

fn table(rows: &[Row]) -> String {
    let wide = rows.iter().map(|row| row.name.len()).max().unwrap_or(0).max(4);
    let mut text = format!(
        "{:<wide$} {:>7} {:>6} {:>9} {:>15} {:>9} {:>9} {:>9}\n",
        "NAME", "CPU", "PROCS", "HOST MEM", "GUEST MEM", "EXITS/S", "READ", "WRITTEN"
    );
    for row in rows {
        let given = row.statistics.balloon.as_ref().map_or(0, |balloon| balloon.given);
        let kept = row.memory.saturating_sub(given);
        let guest = format!("{} / {}", size(row.memory_used), size(kept));
        text.push_str(&format!(
            "{:<wide$} {:>6.1}% {:>6} {:>9} {:>15} {:>9} {:>9} {:>9}\n",
            row.name,
            row.cpu,
            row.processes,
            size(row.memory_host),
            guest,
            row.exits_per_second,
            size(row.read_bytes),
            size(row.written_bytes)
        ));
    }
    text
}

/// Bytes as people read them.
fn size(bytes: u64) -> String {
    let mebibytes = bytes as f64 / f64::from(1 << 20);
    match bytes >> 20 {
        0 => format!("{}K", bytes >> 10),
        1..=9 => format!("{mebibytes:.1}M"),
        10..=10_239 => format!("{}M", bytes >> 20),
        _ => format!("{:.1}G", mebibytes / 1024.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_short() {
        let check = |bytes, expected: &str| assert_eq!(size(bytes), expected);
        check(0, "0K");
        check((1 << 20) - 1, "1023K");
        check(3 << 19, "1.5M");
        check(1 << 30, "1024M");
        check(12 << 30, "12.0G");
    }
}
