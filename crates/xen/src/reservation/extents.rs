//! Lists of extents that a domain gives back or takes. A call returns how many it has done, also when it stops early:
//! the domain sees by that number that the next one was refused.

use machine::xen::FlushOf;
use xen_abi::memory::{Reservation, command};
use xen_abi::{Mfn, PAGE_BYTES, domain, errno};

use super::{MAX_ORDER, PROGRESS_SHIFT};
use crate::caller::{Caller, Outcome, Reply};
use crate::errno::Errno;
use crate::holding::Released;

/// Frames that are given back in one step, under the reservation's lock.
const BATCH_FRAMES: u64 = 512;

/// A list of extents as a call has it.
struct List {
    command: u32,
    /// Where the reservation is.
    at: u64,
    done: u64,
    reservation: Reservation,
}

impl List {
    /// The list at an address; how many extents are said to have been done if there is nothing to do.
    ///
    /// # Errors
    ///
    /// `EFAULT`, `ESRCH`.
    fn read(
        caller: &mut Caller<'_>,
        command: u32,
        at: u64,
        done: u64,
    ) -> Result<Result<Self, Outcome>, Errno> {
        let reservation: Reservation = caller.read(at)?;
        if reservation.domain != domain::THIS {
            return Err(Errno::new(errno::ESRCH));
        }
        // More could not be said in the argument of a call that goes on.
        let is_sane = reservation.count <= u64::MAX >> PROGRESS_SHIFT && done <= reservation.count;
        if reservation.order > MAX_ORDER || !is_sane {
            return Ok(Err(Outcome::Value(done)));
        }
        Ok(Ok(Self { command, at, done, reservation }))
    }

    /// Where the number of an extent is.
    fn place(&self, index: u64) -> u64 {
        self.reservation.extents.wrapping_add(index.wrapping_mul(8))
    }

    /// The call goes on later, after so many extents.
    fn later(&self, done: u64) -> Outcome {
        let command = u64::from(self.command) | done << PROGRESS_SHIFT;
        Outcome::Again([command, self.at, 0, 0, 0])
    }
}

/// Give frames back, to which nothing refers.
pub(super) fn decrease(caller: &mut Caller<'_>, at: u64, done: u64) -> Reply {
    let list = match List::read(caller, command::DECREASE_RESERVATION, at, done)? {
        Ok(list) => list,
        Err(outcome) => return Ok(outcome),
    };
    let (count, order) = (list.reservation.count, list.reservation.order);
    let mut index = list.done;
    while index < count {
        let end = count.min(index + (BATCH_FRAMES >> order).max(1));
        let mut extents = Vec::new();
        while index + (extents.len() as u64) < end {
            let place = list.place(index + extents.len() as u64);
            let Ok(first) = caller.read::<u64>(place) else { break };
            extents.push(first);
        }
        // What waits for its demotion refers to frames.
        let settled = caller.with_tables(|tables| tables.settle());
        let given = if settled.is_ok() { give_back(caller, &extents, order) } else { 0 };
        index += given;
        if settled.is_err() || (index == end && index < count && caller.cpu.is_kicked()) {
            return Ok(list.later(index));
        }
        if index < end {
            return Ok(Outcome::Value(index));
        }
    }
    Ok(Outcome::Value(count))
}

/// Give back extents; how many. Nobody is given one of their frames before it is a hole.
fn give_back(caller: &mut Caller<'_>, extents: &[u64], order: u32) -> u64 {
    let (domain, mut released) = (caller.domain, Released::default());
    let mut reservation = domain.reservation();
    let mut give = |first: u64| {
        (first..first.saturating_add(1 << order)).map(Mfn).all(|frame| {
            let is_given = reservation.release(&domain.owned, frame).is_ok();
            if is_given {
                domain.set_physical(frame, u64::MAX);
                released.add(frame);
            }
            is_given
        })
    };
    let given = extents.iter().take_while(|first| give(**first)).count();
    if !released.is_empty() {
        flush_released(caller);
        released.discard(&domain.owned);
    }
    given as u64
}

/// Have no vCPU reach frames that were released by what it has cached. The caller has the reservation: before this, a
/// frame that was released is nobody's, since nobody would revoke what is cached of it.
pub(super) fn flush_released(caller: &mut Caller<'_>) {
    caller.cpu.flush(FlushOf::All);
    if caller.domain.processors > 1 {
        caller.cpu.flush_others(!(1 << caller.vcpu), FlushOf::All);
    }
}

/// What is done for an extent: with its first frame, and where its number is in the guest's list.
type Take = fn(&mut Caller<'_>, Mfn, u32, u64) -> Result<(), Errno>;

/// Take extents of a list.
fn take(caller: &mut Caller<'_>, (command, at): (u32, u64), done: u64, tell: Take) -> Reply {
    let list = match List::read(caller, command, at, done)? {
        Ok(list) => list,
        Err(outcome) => return Ok(outcome),
    };
    let (count, order) = (list.reservation.count, list.reservation.order);
    for index in list.done..count {
        if index > list.done && caller.cpu.is_kicked() {
            return Ok(list.later(index));
        }
        let taken = caller.domain.reservation().take(&caller.domain.owned, order);
        if taken.and_then(|first| tell(caller, first, order, list.place(index))).is_err() {
            return Ok(Outcome::Value(index));
        }
    }
    Ok(Outcome::Value(count))
}

/// Take frames for the pages from the one whose number is in the list on, and put the first frame's number there.
pub(super) fn populate(caller: &mut Caller<'_>, at: u64, done: u64) -> Reply {
    take(caller, (command::POPULATE_PHYSMAP, at), done, |caller, first, order, place| {
        let page: u64 = caller.read(place)?;
        for offset in 0..1 << order {
            caller.domain.set_physical(Mfn(first.0 + offset), page.wrapping_add(offset));
        }
        caller.write(place, &first)
    })
}

/// Take frames, and put the first one's number into the list, if there is one.
pub(super) fn increase(caller: &mut Caller<'_>, at: u64, done: u64) -> Reply {
    take(caller, (command::INCREASE_RESERVATION, at), done, |caller, first, _, place| {
        if place < PAGE_BYTES as u64 {
            return Ok(());
        }
        caller.write(place, &first)
    })
}
