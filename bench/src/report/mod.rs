//! Tables, CSV and charts of what was measured.

use std::fs;
use std::io;
use std::path::Path;

use crate::options::Options;
use crate::results::Results;

mod chart;
mod csv;
mod ladder;
mod table;

/// Every single measurement, as `samples.csv`.
pub fn write_samples(results: &Results, directory: &Path) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    fs::write(directory.join("samples.csv"), csv::samples(results))
}

/// Print the tables; write them to `bench.md`, the medians to `bench.csv`, the charts beside them.
pub fn write(results: &Results, options: &Options) -> io::Result<()> {
    let mut text = table::promises(results);
    let ladder = ladder::table(results);
    if let Some(ladder) = &ladder {
        text.push_str("\nEach variant against biv as users get it:\n\n");
        text.push_str(ladder);
    }
    if !results.remarks.is_empty() {
        text.push_str("\nRemarks:\n\n");
        for remark in &results.remarks {
            text.push_str(&format!("- {remark}\n"));
        }
    }
    println!("{text}");
    let out = &options.out;
    fs::create_dir_all(out)?;
    fs::write(out.join("bench.md"), text)?;
    fs::write(out.join("bench.csv"), csv::spreads(results))?;
    fs::write(out.join("bench.svg"), chart::against_host(results))?;
    if ladder.is_some() {
        fs::write(out.join("ladder.svg"), chart::variants(results))?;
    }
    eprintln!("written to {}", out.display());
    Ok(())
}
