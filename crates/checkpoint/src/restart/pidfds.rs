//! Descriptors of processes and threads: who has one opens it, when all are there.
//!
//! The first process that has a description makes it. The others take it from that one, so that they share it again.

use super::Made;
use super::opened::move_exactly;
use super::plan::Plan;
use crate::error::Error;
use crate::state::{Descriptor, OpenFile, Process, State};

/// Of the flags of a description those that it is opened with: `PIDFD_NONBLOCK` and `PIDFD_THREAD`.
const OPENED_WITH: u32 = (libc::O_NONBLOCK | libc::O_EXCL).cast_unsigned();

/// Whether a descriptor is of that kind.
pub(super) fn is_one(descriptor: &Descriptor, state: &State) -> bool {
    let description = state.descriptions.get(descriptor.description);
    description.is_some_and(|one| matches!(one.file, OpenFile::Process { .. }))
}

/// Open those of a process; all tasks are there.
pub(super) fn open(made: &Made, process: &Process, state: &State) -> Result<(), Error> {
    for descriptor in process.descriptors.iter().filter(|one| is_one(one, state)) {
        let Some(description) = state.descriptions.get(descriptor.description) else { continue };
        let OpenFile::Process { task } = description.file else { continue };
        let is_it = |one: &&Descriptor| one.description == descriptor.description;
        let mut holders = state.processes.iter();
        let first = holders.find_map(|one| Some((one.pid, one.descriptors.iter().find(is_it)?)));
        let Some((holder, first)) = first else { continue };
        let low = match (holder == process.pid, first.number == descriptor.number) {
            (true, true) => {
                let flags = (description.flags & OPENED_WITH).into();
                call(made, "open a process", libc::SYS_pidfd_open, [task.into(), flags, 0])?
            }
            (true, false) => {
                call(made, "take a descriptor", libc::SYS_dup, [first.number.into(), 0, 0])?
            }
            (false, _) => {
                let other = [holder.into(), 0, 0];
                let other = call(made, "open a process", libc::SYS_pidfd_open, other)?;
                let taken = [other, first.number.into(), 0];
                let low = call(made, "take a descriptor", libc::SYS_pidfd_getfd, taken)?;
                call(made, "close a process", libc::SYS_close, [other, 0, 0])?;
                low
            }
        };
        let mut plan = Plan::new(made.pid, &made.seat, &made.area);
        move_exactly(&mut plan, low, descriptor);
        plan.run()?;
    }
    Ok(())
}

fn call(made: &Made, purpose: &str, number: i64, arguments: [u64; 3]) -> Result<u64, Error> {
    let mut plan = Plan::new(made.pid, &made.seat, &made.area);
    plan.must(purpose, number, arguments);
    Ok(plan.run()?.results.first().copied().unwrap_or(-1).cast_unsigned())
}
