//! What programs took, each sample in a fresh machine: a row for each system, with how far apart its starts are.

use crate::spread::Spread;

use crate::number::Number;
use crate::results::{Outcome, Results, Sample};
use crate::systems::Family;

use crate::markdown::{amount, markdown};

const HEAD: [&str; 11] = [
    "program",
    "unit",
    "system",
    "starts",
    "median",
    "min",
    "max",
    "max/min",
    "of host",
    "CPU s",
    "of host's",
];

/// All programs that were tried.
pub fn table(results: &Results) -> Option<String> {
    let numbers = results.numbers();
    let programs: Vec<_> = numbers.iter().filter(|number| number.work.is_fresh()).collect();
    if programs.is_empty() {
        return None;
    }
    let mut rows = vec![HEAD.map(str::to_owned).to_vec()];
    for number in programs {
        let systems =
            (0..results.systems.len()).filter(|&system| results.systems[system].measures(number));
        rows.extend(systems.map(|system| row(results, system, number)));
    }
    Some(markdown(&rows))
}

/// *Of host* is the median divided by the host's, whether that is a time or a rate.
fn row(results: &Results, system: usize, number: &Number) -> Vec<String> {
    let samples: Vec<&Sample> = samples(results, system, number).collect();
    let measured =
        samples.iter().filter(|sample| matches!(sample.outcome, Outcome::Value(_))).count();
    let name = results.systems[system].name.clone();
    let mut row = vec![number.title.to_owned(), number.unit.name.to_owned(), name];
    let Some(spread) = results.spread(system, number) else {
        let failed = samples.iter().any(|sample| matches!(sample.outcome, Outcome::Failed(_)));
        row.extend(["0".to_owned(), if failed { "crashed" } else { "absent" }.to_owned()]);
        return row;
    };
    // Not every start has succeeded where this is a fraction.
    row.push(if measured == samples.len() {
        measured.to_string()
    } else {
        format!("{measured}/{}", samples.len())
    });
    row.extend(
        [spread.median, spread.min, spread.max].map(|value| amount(value / number.unit.divisor)),
    );
    row.push(format!("{:.2}", spread.max / spread.min));
    let ratio = |own: f64, other: Option<f64>| {
        other
            .filter(|&other| other > 0.0)
            .map_or("-".to_owned(), |other| format!("{:.2}", own / other))
    };
    row.push(ratio(spread.median, results.best(Family::Host, number).map(|host| host.median)));
    let Some(cpu) = cpu_seconds(results, system, number) else { return row };
    row.push(amount(cpu));
    // Who works for a given time, has computed as much as there was to be had.
    let host = results.members(Family::Host).first().copied().filter(|_| !number.unit.rate);
    row.push(ratio(cpu, host.and_then(|host| cpu_seconds(results, host, number))));
    row
}

/// The median of all starts.
fn cpu_seconds(results: &Results, system: usize, number: &Number) -> Option<f64> {
    let of_all = samples(results, system, number);
    let of_all = of_all.filter_map(|sample| sample.details.cpu_seconds);
    Spread::of(of_all.collect()).map(|spread| spread.median)
}

fn samples<'r>(
    results: &'r Results,
    system: usize,
    number: &'r Number,
) -> impl Iterator<Item = &'r Sample> {
    results.samples.iter().filter(move |sample| sample.system == system && sample.number == number)
}

/// Medians of what machines have counted, if it was asked for.
pub fn counters(results: &Results) -> Option<String> {
    let mut rows =
        vec![["program", "system", "counter", "median", "min", "max"].map(str::to_owned).to_vec()];
    for number in results.numbers() {
        for system in 0..results.systems.len() {
            let of_both =
                || samples(results, system, number).flat_map(|sample| &sample.details.counters);
            let mut names: Vec<&String> = Vec::new();
            for (name, _) in of_both() {
                if !names.contains(&name) {
                    names.push(name);
                }
            }
            for name in names {
                let values = of_both().filter(|(other, _)| other == name).map(|(_, value)| *value);
                let Some(spread) = Spread::of(values.collect()) else { continue };
                let mut row = vec![
                    number.name.to_owned(),
                    results.systems[system].name.clone(),
                    name.clone(),
                ];
                row.extend([spread.median, spread.min, spread.max].map(amount));
                rows.push(row);
            }
        }
    }
    (rows.len() > 1).then(|| markdown(&rows))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Details;
    use crate::systems::System;

    fn measured(name: &str, values: [&[f64]; 3]) -> Results {
        let families = [Family::Biv, Family::Host, Family::Gvisor];
        let mut results =
            Results::new(families.map(|family| System::new(family, family.name(), &[])).into());
        let is_it = |number: &&Number| number.name == name;
        let number = crate::numbers::ALL.into_iter().find(is_it).unwrap();
        for (system, values) in values.into_iter().enumerate() {
            for (index, &value) in values.iter().enumerate() {
                let outcome = if value > 0.0 {
                    Outcome::Value(value * number.unit.divisor)
                } else {
                    Outcome::Failed("it crashed".into())
                };
                let details = Details {
                    cpu_seconds: Some(value / 2.0),
                    counters: vec![("faults".into(), value * 1e3)],
                };
                results
                    .samples
                    .push(Sample { details, ..Sample::new(index + 1, system, number, outcome) });
            }
        }
        results
    }

    fn cells(table: &str, line: usize) -> Vec<&str> {
        table.lines().nth(line).unwrap().split('|').skip(2).map(str::trim).collect()
    }

    #[test]
    fn starts_that_are_far_apart_are_shown() {
        let table =
            table(&measured("build", [&[8.0, 24.0, 10.0], &[5.0, 4.0, 6.0], &[0.0, 0.0]])).unwrap();
        let expected =
            ["s", "biv", "3", "10.0", "8.00", "24.0", "3.00", "2.00", "5.00", "2.00", ""];
        assert_eq!(cells(&table, 2), expected, "{table}");
        assert_eq!(cells(&table, 3)[1..7], ["host", "3", "5.00", "4.00", "6.00", "1.50"]);
        assert_eq!(cells(&table, 4)[1..4], ["gvisor", "0", "crashed"]);
    }

    #[test]
    fn a_rate_is_compared_as_it_is_and_failures_are_counted() {
        let table = table(&measured("nginx", [&[50.0, 0.0], &[100.0], &[]])).unwrap();
        let row = cells(&table, 2);
        assert_eq!((row[2], row[3], row[7], row[9]), ("1/2", "50.0", "0.50", "-"), "{table}");
        assert_eq!(cells(&table, 4)[1..4], ["gvisor", "0", "absent"]);
    }

    #[test]
    fn functions_are_no_programs() {
        assert_eq!(super::table(&measured("stat", [&[1.0], &[1.0], &[1.0]])), None);
    }

    #[test]
    fn counters_have_medians() {
        let table = super::counters(&measured("build", [&[1.0, 3.0], &[], &[]])).unwrap();
        assert_eq!(cells(&table, 2)[..4], ["biv", "faults", "2000", "1000"], "{table}");
        assert_eq!(super::counters(&measured("build", [&[], &[], &[]])), None);
    }
}
