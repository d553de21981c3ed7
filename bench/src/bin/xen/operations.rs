//! Tables 3 to 5 (lmbench) and figure 3: what one machine takes for what one program does. The program `bench` beside
//! this one measures it, with a paravirtual and an ordinary machine as two of its variants; here its medians are put
//! beside the paper's.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use bench::bars::Group;
use bench::experiment::{Experiment, Report};
use bench::markdown::amount;

use crate::Options;
use crate::paper::{self, Row, Score};

/// Figure 3.
pub const APPLICATIONS: Experiment<Options> = Experiment {
    name: "applications",
    title: "Figure 3: applications, as parts of the host's speed",
    run: |options| applications(options, &paper::APPLICATIONS),
};

/// Table 3.
pub const PROCESSES: Experiment<Options> = Experiment {
    name: "processes",
    title: "Table 3: processes, times in us",
    run: |options| times(options, &paper::PROCESSES),
};

/// Table 4.
pub const SWITCHES: Experiment<Options> = Experiment {
    name: "switches",
    title: "Table 4: context switches, times in us",
    run: |options| times(options, &paper::SWITCHES),
};

/// Table 5.
pub const FILES: Experiment<Options> = Experiment {
    name: "files",
    title: "Table 5: files and virtual memory, times in us",
    run: |options| times(options, &paper::FILES),
};

/// What `bench` calls the machines.
const PARAVIRTUAL: &str = "biv xen";
const ORDINARY: &str = "biv";

/// A median, with the divisor that makes microseconds of it.
#[derive(Debug, Clone, Copy)]
struct Median {
    value: f64,
    unit_us: Option<f64>,
}

/// By number and system.
type Medians = BTreeMap<(String, String), Median>;

/// Have `bench` measure; the systems that it found, in its order.
fn measure(options: &Options, numbers: &[&str]) -> Result<(Medians, Vec<String>), String> {
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let out = options.out.join("bench");
    let mut command = Command::new(own.with_file_name("bench"));
    command.args(["--only", &numbers.join(","), "--variants", "default,xen"]);
    command.args(["--against", &options.against]).arg("--out").arg(&out);
    if options.quick {
        command.args(["--quick", "--scale", "25"]);
    }
    // Its own tables are not ours.
    command.stdout(std::process::Stdio::null());
    let status = command.status().map_err(|error| format!("bench: {error}"))?;
    if !status.success() {
        return Err(format!("bench: {status}"));
    }
    let path = out.join("bench.csv");
    let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(parse(&text))
}

/// The lines `number,system,unit,median,min,max`.
fn parse(csv: &str) -> (Medians, Vec<String>) {
    let (mut medians, mut systems) = (Medians::new(), Vec::new());
    for line in csv.lines().skip(1) {
        let mut fields = line.split(',');
        let (Some(number), Some(system), Some(unit), Some(value)) =
            (fields.next(), fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        let Ok(value) = value.parse() else { continue };
        let unit_us = match unit {
            "ns" => Some(1e-3),
            "us" => Some(1.0),
            "ms" => Some(1e3),
            "s" => Some(1e6),
            _ => None,
        };
        if !systems.iter().any(|known| known == system) {
            systems.push(system.to_owned());
        }
        medians.insert((number.to_owned(), system.to_owned()), Median { value, unit_us });
    }
    (medians, systems)
}

fn microseconds(medians: &Medians, number: &str, system: &str) -> Option<f64> {
    let found = medians.get(&(number.to_owned(), system.to_owned()))?;
    Some(found.value * found.unit_us?)
}

fn cell(value: Option<f64>) -> String {
    value.map_or("-".to_owned(), amount)
}

/// One of tables 3 to 5.
fn times(options: &Options, rows: &[Row]) -> Result<Report, String> {
    let numbers: Vec<&str> = rows.iter().map(|row| row.number).collect();
    let (medians, systems) = measure(options, &numbers)?;
    let mut head = vec!["work", "paper: Linux", "Xen", "VMW", "UML", "Xen / Linux"];
    head.extend(systems.iter().map(String::as_str));
    head.extend(["biv xen / host", "biv xen / biv"]);
    let mut report = Report::new(&head);
    report.series = vec!["paper's Xen".into(), PARAVIRTUAL.into(), ORDINARY.into()];
    for row in rows {
        let of = |system: &str| microseconds(&medians, row.number, system);
        let ratio = |other: &str| Some(of(PARAVIRTUAL)? / of(other)?);
        let mut cells = vec![row.name.to_owned()];
        cells.extend(row.times.map(amount));
        cells.push(amount(row.times[1] / row.times[0]));
        cells.extend(systems.iter().map(|system| cell(of(system))));
        cells.extend([cell(ratio("host")), cell(ratio(ORDINARY))]);
        report.rows.push(cells);
        let speed = |system: &str| Some(of("host")? / of(system)?);
        report.groups.push(Group {
            label: row.name.into(),
            bars: vec![Some(row.times[0] / row.times[1]), speed(PARAVIRTUAL), speed(ORDINARY)],
        });
    }
    report
        .remarks
        .push("Bars: speed, as a part of Linux's on the bare machine, theirs and ours.".into());
    Ok(report)
}

/// Figure 3.
fn applications(options: &Options, scores: &[Score]) -> Result<Report, String> {
    let numbers: Vec<&str> = scores.iter().map(|score| score.number).collect();
    let (medians, systems) = measure(options, &numbers)?;
    let others: Vec<&String> = systems.iter().filter(|system| *system != "host").collect();
    let mut head = vec!["the paper's work", "here", "paper's Xen"];
    head.extend(others.iter().map(|system| system.as_str()));
    let mut report = Report::new(&head);
    report.series = vec!["paper's Xen".into()];
    report.series.extend(others.iter().map(|system| (*system).clone()));
    for score in scores {
        let of = |system: &str| medians.get(&(score.number.to_owned(), system.to_owned()));
        let speed = |system: &str| {
            let (own, host) = (of(system)?, of("host")?);
            // Times have a unit of time, rates have none.
            Some(match own.unit_us {
                Some(_) => host.value / own.value,
                None => own.value / host.value,
            })
        };
        let bars: Vec<Option<f64>> = others.iter().map(|system| speed(system)).collect();
        let mut cells = vec![score.name.to_owned(), score.number.to_owned(), cell(score.xen)];
        cells.extend(bars.iter().map(|&bar| cell(bar)));
        report.rows.push(cells);
        let bars = [vec![score.xen], bars].concat();
        report.groups.push(Group { label: score.name.into(), bars });
    }
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_bench_writes_is_understood() {
        let csv = "number,system,unit,median,min,max\n\
                   stat,biv xen,ns,500,1,2\n\
                   stat,biv,ns,250,1,2\n\
                   nginx,biv,requests/s,9,9,9\n";
        let (medians, systems) = parse(csv);
        assert_eq!(systems, ["biv xen", "biv"]);
        assert_eq!(microseconds(&medians, "stat", PARAVIRTUAL), Some(0.5));
        assert_eq!(microseconds(&medians, "nginx", ORDINARY), None);
        assert_eq!(microseconds(&medians, "stat", "host"), None);
    }

    #[test]
    fn every_row_names_what_bench_can_measure() {
        let known = |name: &str| bench::numbers::ALL.iter().any(|number| number.name == name);
        let tables = [&paper::PROCESSES[..], &paper::SWITCHES[..], &paper::FILES[..]];
        for row in tables.into_iter().flatten() {
            assert!(known(row.number), "{}", row.number);
        }
        assert!(paper::APPLICATIONS.iter().all(|score| known(score.number)));
    }
}
