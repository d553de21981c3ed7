//! `biv ps`.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal};

use serde::Serialize;
use spec::shown::line;

use super::{Error, Named, ask};
use crate::cli::Format;
use crate::cli::domains::{Filter, Ps};
use crate::print;
use api::record::{Record, now};
use api::{End, Entry};
use session::terminal;

/// What there is room for of the reason of an end.
const REASON_MAX_LETTERS: usize = 40;

/// What is shown of a command, however narrow the terminal.
const COMMAND_MIN_LETTERS: usize = 20;

/// One domain as it is listed.
#[derive(Debug, Serialize)]
struct Row {
    name: String,
    state: String,
    status: Option<u8>,
    /// Why it ended, if not by itself.
    reason: Option<String>,
    pid: Option<u32>,
    created: u64,
    processors: u8,
    memory: u64,
    detached: bool,
    labels: BTreeMap<String, String>,
    command: Vec<String>,
}

/// `biv ps`.
pub fn ps(arguments: &Ps) -> Result<(), Error> {
    list(arguments, row, table)
}

/// Lists what a registry has, each as `row` has it, and for people as `table` has them: at this time, in lines as wide
/// as this, if they are to fit somewhere.
pub fn list<R: Named, T: Serialize>(
    arguments: &Ps,
    row: impl Fn(&Entry<R>) -> Option<T>,
    table: impl Fn(&[T], u64, Option<usize>) -> String,
) -> Result<(), Error> {
    let registry = R::registry()?;
    // What nobody wants goes now; if it cannot, somebody else makes or removes one just now.
    let _ = registry.sweep();
    let entries = registry.list()?;
    // Whoever asks for a state may mean that of those that have ended.
    let wants_all =
        arguments.all || arguments.filter.iter().any(|one| matches!(one, Filter::State(_)));
    let is_there = |entry: &&Entry<R>| wants_all || entry.is_running();
    let listed = entries.iter().filter(is_there);
    let listed = listed.filter(|entry| arguments.filter.iter().all(|one| holds(one, entry)));
    if arguments.quiet {
        let names: String = listed.map(|entry| format!("{}\n", entry.name)).collect();
        return Ok(print::text(&names)?);
    }
    let rows: Vec<T> = listed.filter_map(row).collect();
    match arguments.format {
        Format::Json => Ok(print::json(&rows)?),
        Format::Text => Ok(print::text(&table(&rows, now(), width(arguments.no_trunc)))?),
    }
}

/// Whether a filter holds of one.
fn holds<R: Named>(filter: &Filter, entry: &Entry<R>) -> bool {
    match filter {
        Filter::Name(text) => entry.name.as_str().contains(text),
        Filter::State(state) => state_of(entry).starts_with(state),
        Filter::Label(name, value) => {
            let labels = entry.record.as_ref().and_then(R::labels);
            let found = labels.and_then(|labels| labels.get(name));
            found.is_some_and(|found| value.as_ref().is_none_or(|value| found == value))
        }
    }
}

fn row(entry: &Entry) -> Option<Row> {
    let Record { name, pid, created, processors, memory, detached, command, ending, spec, .. } =
        entry.record.clone()?;
    Some(Row {
        name: name.to_string(),
        state: state_of(entry),
        reason: reason(entry),
        status: ending.filter(|_| !entry.alive).map(|ending| ending.status),
        pid: entry.alive.then_some(pid),
        created,
        processors,
        memory,
        detached,
        labels: spec.life.labels,
        command,
    })
}

/// What is to be said of one.
pub fn state_of<R: Named>(entry: &Entry<R>) -> String {
    match entry.alive {
        true => ask(entry).map_or("not answering", |inspection| R::state(&inspection)).to_owned(),
        false if entry.is_supervised() => "restarting".to_owned(),
        false => state_of_ended(entry),
    }
}

/// What is to be said of one that does not live.
pub fn state_of_ended<R: Named>(entry: &Entry<R>) -> String {
    match entry.end() {
        End::Failed => "failed".to_owned(),
        End::Ended(status) => format!("ended ({status})"),
        End::Killed => "killed".to_owned(),
    }
}

/// What is to be said of one that does not live, and has not ended by itself.
pub fn reason<R: Named>(entry: &Entry<R>) -> Option<String> {
    const KILLED: &str = "its process was killed, and could not say why: by somebody's \
        SIGKILL, by the host \
                          for want of memory, or for a system call that its confinement forbids";
    let ending = entry.record.as_ref().and_then(R::ending);
    match ending {
        _ if entry.alive => None,
        Some(ending) => ending.explanation().map(str::to_owned),
        None => Some(KILLED.to_owned()),
    }
}

/// The state, and the first line of why it is so.
pub fn state_and_reason(state: &str, reason: Option<&str>) -> String {
    match reason.and_then(|reason| reason.lines().next()) {
        Some(reason) => format!("{state}: {}", shortened(reason, Some(REASON_MAX_LETTERS))),
        None => state.to_owned(),
    }
}

/// For people.
fn table(rows: &[Row], now: u64, width: Option<usize>) -> String {
    let heads = ["NAME", "STATE", "PID", "AGE", "CPUS", "MEMORY", "COMMAND"];
    let cells = |row: &Row| {
        [
            row.name.clone(),
            state_and_reason(&row.state, row.reason.as_deref()),
            row.pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string()),
            age(now.saturating_sub(row.created) / 1000),
            row.processors.to_string(),
            format!("{}M", row.memory >> 20),
            row.command.join(" "),
        ]
    };
    aligned(heads, rows.iter().map(cells), width)
}

/// A table of which the last column is cut where a line of so many letters ends.
pub fn aligned<const N: usize>(
    heads: [&str; N],
    rows: impl Iterator<Item = [String; N]>,
    width: Option<usize>,
) -> String {
    let mut lines = vec![heads.map(str::to_owned)];
    lines.extend(rows);
    let widest = |column: usize| lines.iter().map(|line| line[column].chars().count()).max();
    let widths: Vec<usize> = (0..N - 1).map(|column| widest(column).unwrap_or(0)).collect();
    let before: usize = widths.iter().map(|width| width + 2).sum();
    let left = width.map(|width| width.saturating_sub(before).max(COMMAND_MIN_LETTERS));
    let mut text = String::new();
    for line in &lines {
        for (cell, width) in line.iter().zip(&widths) {
            text.push_str(&format!("{cell:<width$}  "));
        }
        text.push_str(&shortened(&line[N - 1], left));
        text.push('\n');
    }
    text
}

/// The width that a table is to fit in, if it is to.
fn width(is_whole: bool) -> Option<usize> {
    let is_cut = io::stdout().is_terminal() && !is_whole;
    is_cut.then(|| usize::from(terminal::size().1))
}

/// As much of a text as there is room for, without characters that a terminal obeys.
fn shortened(text: &str, most: Option<usize>) -> String {
    let shown = line(text);
    match most {
        Some(most) if shown.chars().count() > most => {
            let kept: String = shown.chars().take(most.saturating_sub(3)).collect();
            format!("{kept}...")
        }
        _ => shown,
    }
}

/// Seconds as people say them.
pub fn age(seconds: u64) -> String {
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
        assert_eq!(shortened("a\x1b[2Jb\nc", None), "a\\u{1b}[2Jb\\nc");
        assert_eq!(shortened(&"x".repeat(60), Some(60)).len(), 60);
        assert_eq!(shortened(&"x".repeat(61), Some(60)), format!("{}...", "x".repeat(57)));
        assert_eq!(shortened(&"x".repeat(999), None).len(), 999);
    }

    #[test]
    fn a_command_is_cut_where_a_terminal_ends() {
        let row = || Row {
            name: "web".to_owned(),
            state: "ended (122)".to_owned(),
            status: Some(122),
            reason: Some("the guest panicked\nat length".to_owned()),
            pid: None,
            created: 0,
            processors: 1,
            memory: 1 << 30,
            detached: true,
            labels: BTreeMap::new(),
            command: vec!["sh".to_owned(), "-c".to_owned(), "x".repeat(200)],
        };
        let narrow = table(&[row()], 0, Some(100));
        assert!(narrow.lines().all(|line| line.chars().count() <= 100), "{narrow}");
        assert!(narrow.contains("ended (122): the guest panicked "), "{narrow}");
        assert!(narrow.contains("sh -c xxx") && narrow.ends_with("...\n"), "{narrow}");
        assert!(table(&[row()], 0, None).contains(&"x".repeat(200)));
        assert!(table(&[row()], 0, Some(1)).contains("sh -c x"), "there is always something");
    }
}
