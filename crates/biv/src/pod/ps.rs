//! `biv pod ps`.

use api::pod::{Record, State};
use api::record::now;
use api::{Entry, Registry};
use serde::Serialize;

use super::ask;
use crate::cli::Format;
use crate::cli::pod::Ps;
use crate::life::Error;
use crate::life::ps::{age, aligned, reason, state_and_reason, state_of_ended, width};
use crate::print;

/// One pod as it is listed.
#[derive(Debug, Serialize)]
struct Row {
    name: String,
    state: String,
    status: Option<u8>,
    /// Why it ended, if not by itself.
    reason: Option<String>,
    /// Of its keeper.
    pid: Option<u32>,
    created: u64,
    root: String,
    detached: bool,
    command: Vec<String>,
}

/// See above.
pub fn ps(arguments: &Ps) -> Result<(), Error> {
    let registry = Registry::of_pods()?;
    // What nobody wants goes now; if it cannot, somebody else makes or removes a pod just now.
    let _ = registry.sweep();
    let entries = registry.list()?;
    let listed = entries.iter().filter(|entry| entry.alive || arguments.all);
    let rows: Vec<Row> = listed.filter_map(row).collect();
    match arguments.format {
        Format::Json => Ok(print::json(&rows)?),
        Format::Text => Ok(print::text(&table(&rows, now(), width(arguments.no_trunc)))?),
    }
}

fn row(entry: &Entry<Record>) -> Option<Row> {
    let Record { name, pid, created, root, detached, command, ending, .. } =
        entry.record.clone()?;
    Some(Row {
        name: name.to_string(),
        state: if entry.alive { state_of(entry) } else { state_of_ended(entry) },
        status: ending.filter(|_| !entry.alive).map(|ending| ending.status),
        reason: reason(entry),
        pid: entry.alive.then_some(pid),
        created,
        root,
        detached,
        command,
    })
}

/// What is to be said of one that lives.
fn state_of(entry: &Entry<Record>) -> String {
    let state = match ask(entry).map(|inspection| inspection.state) {
        Some(State::Starting) => "starting",
        Some(State::Running) => "running",
        None => "not answering",
    };
    state.to_owned()
}

fn table(rows: &[Row], now: u64, width: Option<usize>) -> String {
    let cells = |row: &Row| {
        [
            row.name.clone(),
            state_and_reason(&row.state, row.reason.as_deref()),
            row.pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string()),
            age(now.saturating_sub(row.created) / 1000),
            row.command.join(" "),
        ]
    };
    aligned(["NAME", "STATE", "PID", "AGE", "COMMAND"], rows.iter().map(cells), width)
}
