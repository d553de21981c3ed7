//! Signals about input.

use super::words::require;
use crate::error::Error;
use crate::limits::MAX_DESCRIPTIONS;
use crate::state::State;

/// Whoever asks must have the description, and whoever is told must be there.
pub(super) fn check(state: &State) -> Result<(), Error> {
    require(state.input_signals.len() <= MAX_DESCRIPTIONS, "it asks for too many signals")?;
    for asked in &state.input_signals {
        let holder = state.processes.iter().find(|process| process.pid == asked.holder);
        let has_it = holder.is_some_and(|process| {
            process.descriptors.iter().any(|one| one.description == asked.description)
        });
        let is_there = asked.owner == 0 || has_task(state, asked.owner);
        // A thread, a process, a group (`F_OWNER_*`).
        let is_fine = has_it && is_there && asked.kind <= 2 && asked.signal <= 64;
        require(is_fine, "a signal about input is wrong")?;
    }
    Ok(())
}

/// Whether there is a process or a thread with that number.
pub(super) fn has_task(state: &State, number: u32) -> bool {
    state.processes.iter().any(|process| {
        process.pid == number || process.threads.iter().any(|thread| thread.tid == number)
    })
}
