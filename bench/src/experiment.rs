//! What an experiment is, and what it leaves: a table, and perhaps a picture.

use std::fs;
use std::path::Path;

use crate::bars::{Group, draw};
use crate::markdown::markdown;

/// One of those that a program makes, with options that are the program's.
#[derive(Debug)]
pub struct Experiment<O> {
    /// For the command line and for files.
    pub name: &'static str,
    /// What it repeats.
    pub title: &'static str,
    /// Make it.
    pub run: fn(&O) -> Result<Report, String>,
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
    pub fn write<O>(&self, one: &Experiment<O>, out: &Path) -> Result<(), String> {
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

/// The experiments of a comma-separated list.
///
/// # Errors
///
/// When one is not there.
pub fn named<'a, O>(
    all: &'a [Experiment<O>],
    list: &str,
) -> Result<Vec<&'a Experiment<O>>, String> {
    let find = |name: &str| {
        let found = all.iter().find(|one| one.name == name);
        found.ok_or(format!("there is no experiment {name:?}"))
    };
    list.split(',').map(find).collect()
}

/// Makes each in its turn, with its report in a directory; one that fails does not keep the others from being made.
///
/// # Errors
///
/// When the directory cannot be made, or an experiment failed: which.
pub fn make<O>(options: &O, chosen: &[&Experiment<O>], out: &Path) -> Result<(), String> {
    fs::create_dir_all(out).map_err(|error| error.to_string())?;
    let mut failed = Vec::new();
    for one in chosen {
        eprintln!("{}: {}", one.name, one.title);
        if let Err(error) = (one.run)(options).and_then(|report| report.write(one, out)) {
            eprintln!("{}: {error}", one.name);
            failed.push(one.name);
        }
    }
    match failed.is_empty() {
        true => Ok(()),
        false => Err(format!("failed: {}", failed.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn of_seven(
        name: &'static str,
        run: fn(&u8) -> Result<Report, String>,
    ) -> Experiment<u8> {
        Experiment { name, title: "a title", run }
    }

    #[test]
    fn one_that_fails_does_not_end_the_others() {
        let all = [
            of_seven("wrong", |seven| Err(format!("not with {seven}"))),
            of_seven("right", |_| Ok(Report::new(&["head"]))),
        ];
        let out = std::env::temp_dir().join(format!("bench-experiment-{}", std::process::id()));
        let both = named(&all, "wrong,right").unwrap();
        assert_eq!(make(&7, &both, &out).unwrap_err(), "failed: wrong");
        assert_eq!(fs::read_to_string(out.join("right.csv")).unwrap(), "head\n");
        assert!(!out.join("wrong.csv").exists() && named(&all, "right,nothing").is_err());
        fs::remove_dir_all(&out).unwrap();
    }
}
