//! What is undone of System V semaphores when a process ends (`SEM_UNDO`). Nobody tells of it.
//!
//! So the process has it undone, by unshare(2), which is its end as far as the kernel's list is concerned, and what
//! changes of the semaphores is what was in the list; then it does the opposite in a way that is undone again. Nobody
//! runs meanwhile, and the semaphores have the values again that they had.
//!
//! Threads have one list in common, whether there is something in it or not, and unshare(2) of one undoes nothing. So
//! nothing is known of a process that has several.

use super::answer::expect;
use super::ipc::Asked;
use crate::borrow::borrow;
use crate::error::Error;
use crate::freeze::Frozen;
use crate::ipc_calls::{UNDONE, operation};
use crate::state::{Ipc, Undo};

/// Operations that are done at once; the kernel takes 500.
const AT_ONCE: usize = 100;

/// What the end of a process changes.
pub(super) fn dump(frozen: &Frozen, pid: u32, ipc: Option<&Ipc>) -> Result<Vec<Undo>, Error> {
    let has_threads = frozen.processes.get(&pid).is_some_and(|threads| threads.len() > 1);
    match ipc.filter(|ipc| !ipc.semaphores.is_empty() && !has_threads) {
        Some(ipc) => borrow(pid, |seat, area| undo(&Asked { pid, seat, area }, ipc)),
        None => Ok(Vec::new()),
    }
}

fn undo(asked: &Asked<'_>, ipc: &Ipc) -> Result<Vec<Undo>, Error> {
    let mut script = asked.area.script();
    script.call(libc::SYS_unshare, [libc::CLONE_SYSVSEM.cast_unsigned().into()]);
    expect(asked.pid, "tell what is undone when it ends", asked.run(&script)?[0])?;
    let mut found = Vec::new();
    for set in &ipc.semaphores {
        let values = asked.values(set.name.id, set.values.len())?;
        for (place, (after, before)) in values.iter().zip(&set.values).enumerate() {
            let place = u16::try_from(place).unwrap_or(u16::MAX);
            let change = i32::from(*after) - i32::from(*before);
            if change != 0 {
                let change = i16::try_from(change).unwrap_or_default();
                found.push(Undo { id: set.name.id, place, change });
            }
        }
    }
    for some in found.chunks(AT_ONCE) {
        let mut script = asked.area.script();
        for Undo { id, place, change } in some {
            let operation = script.data(&operation(*place, -change, UNDONE));
            script.call(libc::SYS_semop, [(*id).into(), operation, 1]);
        }
        for result in asked.run(&script)? {
            expect(asked.pid, "take again what was undone", result)?;
        }
    }
    Ok(found)
}
