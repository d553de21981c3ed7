//! Signals about input: a process that has the description asks for them.

use super::plan::Plan;
use crate::error::Error;
use crate::state::{Process, State};

/// `F_SETSIG` and `F_SETOWN_EX`.
const SET_SIGNAL: u64 = 10;
const SET_OWNER: u64 = 15;

/// Ask for those that this process asks for.
pub(super) fn ask(plan: &mut Plan<'_>, process: &Process, state: &State) -> Result<(), Error> {
    for asked in state.input_signals.iter().filter(|asked| asked.holder == process.pid) {
        let held = process.descriptors.iter().find(|one| one.description == asked.description);
        let Some(descriptor) = held else { continue };
        let number = descriptor.number.into();
        plan.must("choose a signal", libc::SYS_fcntl, [number, SET_SIGNAL, asked.signal.into()]);
        // `struct f_owner_ex`: kind and number, of 32 bits each.
        let owner = plan.words(&[u64::from(asked.kind) | u64::from(asked.owner) << 32]);
        plan.must("say whom a signal is for", libc::SYS_fcntl, [number, SET_OWNER, owner]);
        plan.flush_if_full()?;
        if !asked.is_told {
            continue;
        }
        let flags = state.descriptions.get(asked.description).map_or(0, |one| one.flags);
        let set = libc::F_SETFL.cast_unsigned().into();
        let flags = u64::from(flags | libc::O_ASYNC.cast_unsigned());
        plan.must("ask for signals about input", libc::SYS_fcntl, [number, set, flags]);
        plan.flush_if_full()?;
    }
    Ok(())
}
