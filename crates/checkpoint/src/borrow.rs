//! A process that stands still is lent an area for as long as it is asked something.
//!
//! The area touches no mapping of the process's: the kernel would make one mapping of both for that long, and that
//! would count as new, and all of it as written, where soft-dirty bits tell ([`track`](crate::track)).

use inject::{Area, Seat, find_gate};

use crate::error::Error;
use crate::holes;
use crate::proc::maps;
use crate::proc::status::Status;

/// Signals that no trap can use for a thread.
pub(crate) fn unavailable(pid: u32, tid: u32) -> Result<u64, Error> {
    let status = Status::read(pid, &format!("task/{tid}/status"))?;
    Ok(status.mask("SigIgn")? | status.mask("SigPnd")? | status.mask("ShdPnd")?)
}

/// Lend a process an area for as long as it is asked something; it is as it was afterwards.
pub(crate) fn borrow<T>(
    pid: u32,
    ask: impl FnOnce(&Seat, &Area) -> Result<T, Error>,
) -> Result<T, Error> {
    let gate = find_gate(pid)?;
    // Anywhere, if there is no such place.
    let hole = holes::find(maps::taken(pid)?).unwrap_or(0);
    let seat = Seat::take(pid, unavailable(pid, pid)?)?;
    let area = match seat.map(gate, hole) {
        Ok(area) => area,
        Err(error) => {
            seat.leave()?;
            return Err(error.into());
        }
    };
    let result = ask(&seat, &area);
    seat.unmap(gate, &area)?;
    seat.leave()?;
    result
}
