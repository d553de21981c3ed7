//! How a task makes another.

use std::time::Instant;

use host::processes::wait::{Stop, wait};
use inject::{Area, Seat};

use super::Restarted;
use super::plan::Plan;
use crate::error::Error;
use crate::limits::FREEZE_PATIENCE;

/// Bytes of `struct clone_args`.
const CLONE_ARGUMENTS_BYTES: u64 = 88;

/// Have a task make another, by `(flags, exit signal)`; its number for the host.
pub(super) fn clone(
    seat: &Seat,
    area: &Area,
    wanted: u32,
    (flags, exit_signal): (i32, u32),
    restarted: &mut Restarted,
) -> Result<u32, Error> {
    let mut plan = Plan::new(wanted, seat, area);
    let numbers = plan.words(&[wanted.into()]);
    let (flags, signal) = (flags.cast_unsigned().into(), exit_signal.into());
    let arguments = plan.words(&[flags, 0, 0, 0, signal, 0, 0, 0, numbers, 1, 0]);
    let purpose = format!("be made with its number, {wanted}");
    plan.must(purpose, libc::SYS_clone3, [arguments, CLONE_ARGUMENTS_BYTES]);
    let children = plan.run()?.children;
    restarted.tasks.extend(&children);
    let &[task] = children.as_slice() else { return Err(Error::Gone(wanted)) };
    let stop = wait(task, Instant::now() + FREEZE_PATIENCE);
    match stop.map_err(Error::io("wait for a new task"))? {
        Some(Stop::Told(_)) => Ok(task),
        Some(_) => Err(Error::Gone(wanted)),
        None => Err(Error::Stuck { task, why: "it has just been made".to_owned() }),
    }
}
