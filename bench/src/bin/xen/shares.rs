//! Section 3.3.1, Borrowed Virtual Time: what domains get of the processors by their weights, and what a cap leaves.

use std::time::{Duration, Instant};

use bench::bars::Group;
use bench::domains::Domains;
use bench::experiment::{Experiment, Report};
use bench::markdown::amount;
use serde_json::Value;

use crate::Options;
use crate::work;

/// See the head of this file.
pub const EXPERIMENT: Experiment<Options> = Experiment {
    name: "shares",
    title: "Weights and caps: what computing domains get of the processors",
    run,
};

/// A domain, and the part of one core that is its due on this host.
struct Domain {
    name: &'static str,
    options: &'static [&'static str],
    weight: f64,
    /// Of a core.
    cap: f64,
}

const fn domain(name: &'static str, options: &'static [&'static str], weight: f64) -> Domain {
    Domain { name, options, weight, cap: 1.0 }
}

const WEIGHTED: [Domain; 4] = [
    domain("one", &["--weight", "128"], 128.0),
    domain("two", &["--weight", "256"], 256.0),
    domain("three", &["--weight", "384"], 384.0),
    domain("four", &["--weight", "512"], 512.0),
];

const CAPPED: [Domain; 1] =
    [Domain { cap: 0.25, ..domain("capped", &["--weight", "256", "--cap", "25"], 256.0) }];

fn run(options: &Options) -> Result<Report, String> {
    let cores = std::thread::available_parallelism().map_err(|error| error.to_string())?.get();
    let head = ["domain", "weight", "its due, of a core", "used", "used / due", "work / due"];
    let mut report = Report::new(&head);
    report.series = vec!["used / due".into()];
    for domains in [&WEIGHTED[..], &CAPPED[..]] {
        let due = dues(domains, cores as f64);
        let got = measure(options, domains)?;
        let all_work: f64 = got.iter().map(|(_, work)| work).sum();
        let all_due: f64 = due.iter().sum();
        for ((domain, due), (used, work)) in domains.iter().zip(due).zip(got) {
            let by_work = (work / all_work) / (due / all_due);
            report.rows.push(vec![
                domain.name.into(),
                amount(domain.weight),
                format!("{due:.3}"),
                format!("{used:.3}"),
                format!("{:.3}", used / due),
                format!("{by_work:.3}"),
            ]);
            let bars = vec![Some(used / due)];
            report.groups.push(Group { label: domain.name.into(), bars });
        }
    }
    report.remarks.push(
        "Used: what the host says that all processes of the domain have computed. Work: what the \
         guests have counted, as parts of all."
            .into(),
    );
    Ok(report)
}

/// Water-filling: by weight, but nobody gets more than a cap, and what is over goes to the others.
fn dues(domains: &[Domain], cores: f64) -> Vec<f64> {
    let mut due: Vec<Option<f64>> = vec![None; domains.len()];
    loop {
        let left = cores - due.iter().flatten().sum::<f64>();
        let open = || domains.iter().zip(&due).filter(|(_, due)| due.is_none());
        let weights: f64 = open().map(|(domain, _)| domain.weight).sum();
        let share = |domain: &Domain| left * domain.weight / weights;
        let full: Vec<bool> = domains
            .iter()
            .zip(&due)
            .map(|(domain, due)| due.is_none() && share(domain) >= domain.cap)
            .collect();
        if !full.contains(&true) {
            let rest =
                |(domain, due): (&Domain, &Option<f64>)| due.unwrap_or_else(|| share(domain));
            return domains.iter().zip(&due).map(rest).collect();
        }
        for ((domain, due), _) in
            domains.iter().zip(&mut due).zip(full).filter(|(_, is_full)| *is_full)
        {
            *due = Some(domain.cap);
        }
    }
}

/// Cores that each used, and pieces of work that it did in a second.
fn measure(options: &Options, wanted: &[Domain]) -> Result<Vec<(f64, f64)>, String> {
    let mut domains = Domains::new("shares")?;
    let seconds = options.seconds;
    // They go on computing while the keeper is asked, which takes it a second each time.
    let script = work::computing(seconds + 4);
    for domain in wanted {
        let given =
            [&["--xen", "--busybox", "--mem", "128M", "--net", "none"], domain.options].concat();
        domains.start(domain.name, seconds * 3 + 300, &given, &["sh", "-c", &script])?;
    }
    let names: Vec<String> = wanted.iter().map(|domain| domain.name.to_owned()).collect();
    let begin = work::begin(&domains, &names)?;
    work::sleep_until(begin + 1);
    let (before, start) = (used(&domains, wanted)?, Instant::now());
    std::thread::sleep(Duration::from_secs(seconds));
    let (after, took) = (used(&domains, wanted)?, start.elapsed().as_secs_f64());
    work::sleep_until(begin + seconds + 5);
    let rates = wanted.iter().map(|domain| work::rate(&domains, domain.name));
    let rates = rates.collect::<Result<Vec<f64>, _>>()?;
    let cores = before.iter().zip(&after).map(|(before, after)| (after - before) / took);
    Ok(cores.zip(rates).collect())
}

/// Seconds of processors that each has used, helpers and all, by the keeper's account.
fn used(domains: &Domains, wanted: &[Domain]) -> Result<Vec<f64>, String> {
    let output = domains.biv(30).args(["xen", "top", "--format", "json"]).output();
    let output = output.map_err(|error| error.to_string())?;
    let rows: Vec<Value> =
        serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())?;
    let seconds = |domain: &Domain| {
        let row = rows.iter().find(|row| row["name"] == domain.name);
        let nanoseconds = row.and_then(|row| row["used_ns"].as_f64());
        Ok(nanoseconds.ok_or(format!("{} is not kept", domain.name))? / 1e9)
    };
    wanted.iter().map(seconds).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dues_are_by_weight_and_never_above_a_cap() {
        assert_eq!(dues(&WEIGHTED, 2.0), [0.2, 0.4, 0.6, 0.8]);
        assert_eq!(dues(&WEIGHTED, 8.0), [1.0; 4]);
        assert_eq!(dues(&CAPPED, 2.0), [0.25]);
        let large = [domain("a", &[], 1000.0), domain("b", &[], 1.0), domain("c", &[], 1.0)];
        assert_eq!(dues(&large, 2.0), [1.0, 0.5, 0.5]);
    }
}
