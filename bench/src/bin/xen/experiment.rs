//! What an experiment is, and what it leaves: a table, and perhaps a picture.

use std::fs;
use std::path::{Path, PathBuf};

use bench::bars::{Group, draw};
use bench::markdown::markdown;

/// The command line.
#[derive(Debug)]
pub struct Options {
    /// Fewer rounds.
    pub quick: bool,
    /// How long domains of one measurement run.
    pub seconds: u64,
    /// The most domains at once.
    pub domains: u64,
    /// Systems that machines are compared with.
    pub against: String,
    /// Where reports go.
    pub out: PathBuf,
}

/// One of them.
#[derive(Debug)]
pub struct Experiment {
    /// For the command line and for files.
    pub name: &'static str,
    /// What it repeats.
    pub title: &'static str,
    /// Make it.
    pub run: fn(&Options) -> Result<Report, String>,
}

/// What came out.
#[derive(Debug, Default)]
pub struct Report {
    /// The head, and the rows.
    pub rows: Vec<Vec<String>>,
    /// Bars, relative to the first system's: their series.
    pub series: Vec<String>,
    /// Their groups.
    pub groups: Vec<Group>,
    /// Under the table.
    pub remarks: Vec<String>,
}

impl Report {
    /// One with a head.
    pub fn new(head: &[&str]) -> Report {
        Report {
            rows: vec![head.iter().map(|&cell| cell.to_owned()).collect()],
            ..Report::default()
        }
    }

    /// Print it, and leave it in files called by the experiment.
    ///
    /// # Errors
    ///
    /// When they cannot be written.
    pub fn write(&self, one: &Experiment, out: &Path) -> Result<(), String> {
        let mut text = format!("## {}\n\n{}", one.title, markdown(&self.rows));
        for remark in &self.remarks {
            text.push_str(&format!("\n{remark}\n"));
        }
        println!("{text}");
        let csv: String =
            self.rows.iter().map(|row| row.join(",").replace('\n', " ") + "\n").collect();
        let write = |ending: &str, contents: &str| {
            let path = out.join(format!("{}.{ending}", one.name));
            fs::write(&path, contents).map_err(|error| format!("{}: {error}", path.display()))
        };
        write("md", &text)?;
        write("csv", &csv)?;
        if self.groups.is_empty() {
            return Ok(());
        }
        let series: Vec<&str> = self.series.iter().map(String::as_str).collect();
        write("svg", &draw(one.title, &series, &self.groups))
    }
}
