//! Terminals.

use std::collections::{BTreeMap, BTreeSet};

use host::processes::terminal::SETTINGS_BYTES;

use super::words::{is_name, is_path, require};
use crate::error::Error;
use crate::limits::{MAX_TASKS, MAX_TERMINAL_BYTES, MAX_TERMINALS};
use crate::state::{OpenFile, Queues, State, Terminal, TerminalEnd};

pub(super) fn check(state: &State) -> Result<(), Error> {
    for pair in state.terminals.windows(2) {
        require(pair[0].index < pair[1].index, "terminals are out of order")?;
    }
    // How often each is open: by its multiplexer, otherwise.
    let mut open: BTreeMap<u32, [usize; 2]> = BTreeMap::new();
    for description in &state.descriptions {
        if let OpenFile::Terminal { index, end } = description.file {
            open.entry(index).or_default()[usize::from(end != TerminalEnd::Master)] += 1;
        }
    }
    let pids: BTreeSet<u32> = state.processes.iter().map(|process| process.pid).collect();
    for terminal in &state.terminals {
        let open = open.remove(&terminal.index).unwrap_or_default();
        check_one(terminal, open, &pids)?;
    }
    require(open.is_empty(), "a terminal is missing")
}

fn check_one(terminal: &Terminal, open: [usize; 2], pids: &BTreeSet<u32>) -> Result<(), Error> {
    let is_slot = terminal.slot.as_ref().is_some_and(|name| name.is_empty() || !is_name(name));
    let is_fine = terminal.index < MAX_TERMINALS
        && terminal.settings.len() == SETTINGS_BYTES
        && !is_slot
        && is_path(&terminal.multiplexer)
        && terminal.without.len() <= MAX_TASKS;
    require(is_fine, "a terminal is wrong")?;
    check_queues(&terminal.queues)?;
    // Whoever opens the multiplexer again has another terminal.
    let masters = usize::from(terminal.slot.is_none());
    require(open[0] == masters, "a terminal has not one master")?;
    let is_used = open[1] > 0 || terminal.session != 0;
    require(terminal.opened || !is_used, "a terminal that nobody has opened is open")?;
    let leads = |number: u32| number == 0 || pids.contains(&number);
    let has_leaders = leads(terminal.session) && leads(terminal.foreground);
    require(has_leaders, "the session of a terminal has no leader")
}

fn check_queues(queues: &Queues) -> Result<(), Error> {
    let lines = queues.lines.iter().map(|line| line.bytes.len()).sum::<usize>();
    let is_fine = queues.lines.len() <= MAX_TERMINAL_BYTES
        && lines.saturating_add(queues.rest.len()) <= MAX_TERMINAL_BYTES
        && queues.output.len() <= MAX_TERMINAL_BYTES;
    require(is_fine, "more waits in a terminal than it holds")
}
