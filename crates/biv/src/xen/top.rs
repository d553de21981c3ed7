//! `biv xen top`.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use api::keeper::{self, Standing};
use api::{Registry, client};
use serde::Serialize;

use crate::cli::xen::Top;
use crate::life::Error;
use crate::live::{Live, PERIOD};

/// How domains stood at a time, by name.
type Sample = (Instant, BTreeMap<String, Standing>);

/// What is shown of a domain.
#[derive(Debug, Serialize)]
struct Row {
    /// Percent of one processor, since the last time.
    cpu: f64,
    /// How long its vCPUs have waited for their turns, in percent of the time.
    wait: f64,
    #[serde(flatten)]
    standing: Standing,
}

/// `biv xen top`.
pub fn top(arguments: &Top) -> Result<(), Error> {
    let registry = Registry::open()?;
    let sample = || Ok((Instant::now(), standings(&registry)?));
    let rows = |before: &Sample, now: &Sample| {
        let passed = now.0 - before.0;
        let row = |now: &Standing| row(before.1.get(&now.name)?, now, passed);
        now.1.values().filter_map(row).collect()
    };
    let (format, once) = (arguments.format, arguments.once);
    Live { format, once, once_period: PERIOD }.show(sample, rows, table)
}

fn standings(registry: &Registry) -> Result<BTreeMap<String, Standing>, client::Error> {
    let all = keeper::standings(registry)?;
    Ok(all.into_iter().map(|standing| (standing.name.clone(), standing)).collect())
}

fn row(before: &Standing, now: &Standing, passed: Duration) -> Option<Row> {
    // Another keeper counts from the beginning.
    let used = now.used_ns.checked_sub(before.used_ns)?;
    let waited = now.waited_ns.saturating_sub(before.waited_ns);
    let percent = |nanoseconds: u64| {
        let share = nanoseconds as f64 / passed.as_nanos().max(1) as f64;
        (share * 1000.0).round() / 10.0
    };
    Some(Row { cpu: percent(used), wait: percent(waited), standing: now.clone() })
}

fn table(rows: &[Row]) -> String {
    let wide = rows.iter().map(|row| row.standing.name.len()).max().unwrap_or(0).max(4);
    let mut text = format!(
        "{:<wide$} {:>7} {:>7} {:>5} {:>8} {:>6} {:>6} {:>6} {:>10}\n",
        "NAME", "CPU", "WAIT", "CPUS", "RUNNABLE", "WEIGHT", "CAP", "WARP", "TIME(S)"
    );
    for Row { cpu, wait, standing } in rows {
        let cap = standing.cap.map_or_else(|| "-".to_owned(), |cap| format!("{cap}%"));
        let seconds = Duration::from_nanos(standing.used_ns).as_secs_f64();
        text.push_str(&format!(
            "{:<wide$} {cpu:>6.1}% {wait:>6.1}% {:>5} {:>8} {:>6} {cap:>6} {:>4}ms \
             {seconds:>10.1}\n",
            standing.name, standing.vcpus, standing.runnable, standing.weight, standing.warp_ms,
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_what_has_passed() {
        let standing = |used_ns, waited_ns| Standing {
            name: "db".to_owned(),
            vcpus: 2,
            runnable: 1,
            weight: 512,
            cap: Some(50),
            used_ns,
            waited_ns,
            ..Standing::default()
        };
        let row = row(&standing(1_000_000, 0), &standing(501_000_000, 250_000_000), PERIOD);
        let row = row.expect("it is the same keeper");
        assert_eq!((row.cpu, row.wait), (50.0, 25.0));
        assert_eq!(
            table(&[row]),
            "NAME     CPU    WAIT  CPUS RUNNABLE WEIGHT    CAP   WARP    TIME(S)\n\
             db     50.0%   25.0%     2        1    512    50%    0ms        0.5\n"
        );
        assert!(super::row(&standing(2, 0), &standing(1, 0), PERIOD).is_none());
    }
}
