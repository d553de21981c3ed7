//! Comma-separated values, for other programs. Only what went wrong in words may have a comma.

use std::fmt::Write;

use crate::results::{Outcome, Results};

/// Every measurement; what went wrong in words.
pub fn samples(results: &Results) -> String {
    let mut csv = String::from("round,system,number,unit,value,cpu_seconds\n");
    for sample in &results.samples {
        let (unit, system) = (sample.number.unit, &results.systems[sample.system].name);
        let value = match &sample.outcome {
            Outcome::Value(value) => (value / unit.divisor).to_string(),
            Outcome::Absent(why) => format!("absent: {}", why.replace([',', '\n'], ";")),
            Outcome::Failed(why) => format!("failed: {}", why.replace([',', '\n'], ";")),
        };
        let (round, name) = (sample.round, sample.number.name);
        let cpu =
            sample.details.cpu_seconds.map_or(String::new(), |seconds| format!("{seconds:.2}"));
        let _ = writeln!(csv, "{round},{system},{name},{},{value},{cpu}", unit.name);
    }
    csv
}

/// What machines have counted, if it was asked for: a line for each counter of each start.
pub fn counters(results: &Results) -> String {
    let mut csv = String::from("start,system,number,counter,value\n");
    for sample in &results.samples {
        let (start, system, name) =
            (sample.round, &results.systems[sample.system].name, sample.number.name);
        for (counter, value) in &sample.details.counters {
            let _ = writeln!(csv, "{start},{system},{name},{counter},{value}");
        }
    }
    csv
}

/// Medians with minimum and maximum.
pub fn spreads(results: &Results) -> String {
    let mut csv = String::from("number,system,unit,median,min,max\n");
    for number in results.numbers() {
        for (index, system) in results.systems.iter().enumerate() {
            if let Some(spread) = results.spread(index, number) {
                let unit = number.unit;
                let [median, min, max] =
                    [spread.median, spread.min, spread.max].map(|value| value / unit.divisor);
                let (name, system, unit) = (number.name, &system.name, unit.name);
                let _ = writeln!(csv, "{name},{system},{unit},{median},{min},{max}");
            }
        }
    }
    csv
}
