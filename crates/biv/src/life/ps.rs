//! `biv ps`.

use serde::Serialize;

use super::cli::Ps;
use super::{Error, ask};
use crate::cli::Format;
use crate::domain::api::State;
use crate::domain::record::{Record, now};
use crate::domain::{Entry, Registry};
use crate::print;

/// One domain as it is listed.
#[derive(Debug, Serialize)]
struct Row {
    name: String,
    state: String,
    status: Option<u8>,
    pid: Option<u32>,
    created: u64,
    processors: u8,
    memory: u64,
    detached: bool,
    command: Vec<String>,
}

/// `biv ps`.
pub fn ps(arguments: &Ps) -> Result<(), Error> {
    let registry = Registry::open()?;
    // What nobody wants goes now; if it cannot, somebody else makes or removes a domain just now.
    let _ = registry.sweep();
    let entries = registry.list()?;
    let listed = entries.iter().filter(|entry| entry.alive || arguments.all);
    let rows: Vec<Row> = listed.filter_map(row).collect();
    match arguments.format {
        Format::Json => Ok(print::json(&rows)?),
        Format::Text => Ok(print::text(&table(&rows, now()))?),
    }
}

fn row(entry: &Entry) -> Option<Row> {
    let Record { name, pid, created, processors, memory, detached, command, ending, .. } =
        entry.record.clone()?;
    let state = if entry.alive { state_of(entry) } else { state_of_ended(entry) };
    Some(Row {
        name: name.to_string(),
        state,
        status: ending.filter(|_| !entry.alive).map(|ending| ending.status),
        pid: entry.alive.then_some(pid),
        created,
        processors,
        memory,
        detached,
        command,
    })
}

fn state_of(entry: &Entry) -> String {
    let state = match ask(entry).map(|inspection| inspection.state) {
        Some(State::Starting) => "starting",
        Some(State::Running) => "running",
        Some(State::Paused) => "paused",
        None => "not answering",
    };
    state.to_owned()
}

/// What is to be said of one that does not live.
pub fn state_of_ended(entry: &Entry) -> String {
    let ending = entry.record.as_ref().and_then(|record| record.ending.as_ref());
    match ending {
        Some(ending) if ending.error.is_some() => "failed".to_owned(),
        Some(ending) => format!("ended ({})", ending.status),
        None => "killed".to_owned(),
    }
}

/// For people.
fn table(rows: &[Row], now: u64) -> String {
    let heads = ["NAME", "STATE", "PID", "AGE", "CPUS", "MEMORY", "COMMAND"].map(str::to_owned);
    let mut lines = vec![heads];
    lines.extend(rows.iter().map(|row| {
        [
            row.name.clone(),
            row.state.clone(),
            row.pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string()),
            age(now.saturating_sub(row.created) / 1000),
            row.processors.to_string(),
            format!("{}M", row.memory >> 20),
            shortened(&row.command.join(" ")),
        ]
    }));
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max();
    let widths: Vec<usize> = (0..6).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for line in &lines {
        for (cell, width) in line.iter().zip(&widths) {
            text.push_str(&format!("{cell:<width$}  "));
        }
        text.push_str(&line[6]);
        text.push('\n');
    }
    text
}

/// As much of a command as fits beside the rest, and no characters that a terminal obeys.
fn shortened(command: &str) -> String {
    const MOST: usize = 60;
    let shown: String = print::line(command).chars().take(MOST + 1).collect();
    if shown.chars().count() > MOST {
        let kept: String = shown.chars().take(MOST - 3).collect();
        format!("{kept}...")
    } else {
        shown
    }
}

/// Seconds as people say them.
fn age(seconds: u64) -> String {
    match seconds {
        0..=119 => format!("{seconds}s"),
        120..=7199 => format!("{}m", seconds / 60),
        7200..=172_799 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_short() {
        let check = |seconds, expected: &str| assert_eq!(age(seconds), expected);
        check(0, "0s");
        check(119, "119s");
        check(120, "2m");
        check(7200, "2h");
        check(172_800, "2d");
    }

    #[test]
    fn commands_cannot_talk_to_the_terminal() {
        assert_eq!(shortened("a\x1b[2Jb\nc"), "a\\u{1b}[2Jb\\nc");
        assert_eq!(shortened(&"x".repeat(60)).len(), 60);
        assert!(shortened(&"x".repeat(61)).ends_with("xxx..."));
    }
}
