//! A process that stands still is lent an area for as long as it is asked something.

use inject::{Area, Seat, find_gate};

use crate::error::Error;
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
    let seat = Seat::take(pid, unavailable(pid, pid)?)?;
    let area = match seat.map(gate, 0) {
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
