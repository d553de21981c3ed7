//! Tables, CSV and charts of what was measured.

use std::fs;
use std::io;
use std::path::Path;

use crate::options::Options;
use crate::results::Results;

mod chart;
mod csv;
mod ladder;
mod ladder_chart;
mod programs;
mod table;
mod variants;

/// Every single measurement, as `samples.csv`; what machines have counted, as `counters.csv`.
pub fn write_samples(results: &Results, directory: &Path) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    if results.samples.iter().any(|sample| !sample.details.counters.is_empty()) {
        fs::write(directory.join("counters.csv"), csv::counters(results))?;
    }
    fs::write(directory.join("samples.csv"), csv::samples(results))
}

/// Print the tables; write them to `bench.md`, the medians to `bench.csv`, the charts beside them.
pub fn write(results: &Results, options: &Options) -> io::Result<()> {
    let mut text = table::promises(results);
    if let Some(programs) = programs::table(results) {
        text.push_str("\nPrograms, each sample in a fresh machine:\n\n");
        text.push_str(&programs);
    }
    if let Some(counters) = programs::counters(results) {
        text.push_str("\nWhat was counted in a machine's whole life:\n\n");
        text.push_str(&counters);
    }
    let modes = variants::table(results);
    if let Some(modes) = &modes {
        text.push_str("\nEach mode against biv as users get it:\n\n");
        text.push_str(modes);
    }
    if let Some(ladder) = ladder::table(results) {
        text.push_str(
            "\nThe ladder: how many times as long it takes without a technique; in \
                       brackets, what may be \
             chance.\n\n",
        );
        text.push_str(&ladder);
    }
    let remarks = [results.remarks.clone(), results.absences()].concat();
    if !remarks.is_empty() {
        text.push_str("\nRemarks:\n\n");
        for remark in &remarks {
            text.push_str(&format!("- {remark}\n"));
        }
    }
    println!("{text}");
    let out = &options.out;
    fs::create_dir_all(out)?;
    fs::write(out.join("bench.md"), text)?;
    fs::write(out.join("bench.csv"), csv::spreads(results))?;
    fs::write(out.join("bench.svg"), chart::against_host(results))?;
    if modes.is_some() {
        fs::write(out.join("modes.svg"), chart::variants(results))?;
    }
    if let Some(rungs) = ladder::rungs(results) {
        fs::write(out.join("ladder.svg"), ladder_chart::draw(&ladder::numbers(results), &rungs))?;
    }
    eprintln!("written to {}", out.display());
    Ok(())
}
