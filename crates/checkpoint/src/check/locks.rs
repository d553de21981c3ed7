//! Locks on files.

use std::collections::BTreeSet;

use super::words::require;
use crate::error::Error;
use crate::limits::MAX_LOCKS;
use crate::state::{LockOwner, LockedBytes, State};

/// Whoever has a lock must have the description that it was taken by.
pub(super) fn check(state: &State) -> Result<(), Error> {
    require(state.locks.len() <= MAX_LOCKS, "it has too many locks")?;
    if state.locks.is_empty() {
        return Ok(());
    }
    let all = state.processes.iter().flat_map(|process| {
        process.descriptors.iter().map(|descriptor| (process.pid, descriptor.description))
    });
    let held: BTreeSet<(u32, usize)> = all.collect();
    for lock in &state.locks {
        let is_fine = match lock.owner {
            LockOwner::Whole => true,
            LockOwner::Description { bytes } => are_fine(bytes),
            LockOwner::Process { pid, bytes } => {
                are_fine(bytes) && held.contains(&(pid, lock.description))
            }
        };
        let is_fine = is_fine && lock.description < state.descriptions.len();
        require(is_fine, "a lock is wrong")?;
    }
    Ok(())
}

fn are_fine(bytes: LockedBytes) -> bool {
    let most = i64::MAX as u64;
    bytes.start <= most && bytes.last.is_none_or(|last| (bytes.start..most).contains(&last))
}
