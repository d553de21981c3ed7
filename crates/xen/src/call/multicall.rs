//! Several calls in one (public/xen.h, `struct multicall_entry`).

use xen_abi::hypercall::{MulticallEntry, number};
use xen_abi::{Wire, errno};

use super::dispatch;
use crate::caller::{Caller, Outcome, Reply};
use crate::errno::Errno;

/// Where an entry's result is.
const RESULT: u64 = 8;

/// Where an entry's arguments begin.
const ARGUMENTS: u64 = 16;

/// Make the calls of a list, one after the other. An entry that goes on later is the first of the list when the call
/// is made again.
pub(super) fn multicall(caller: &mut Caller<'_>, arguments: [u64; 6]) -> Reply {
    let [list, count, ..] = arguments;
    let count = u64::from(count as u32);
    let mut then = Outcome::DONE;
    for index in 0..count {
        let at = list.wrapping_add(index * MulticallEntry::BYTES as u64);
        let rest = [at, count - index, 0, 0, 0];
        if index > 0 && caller.cpu.is_kicked() {
            return Ok(Outcome::Again(rest));
        }
        let entry: MulticallEntry = caller.read(at)?;
        let value = match one(caller, &entry) {
            Ok(Outcome::Value(value)) => value,
            Ok(Outcome::Loaded) => return Ok(Outcome::Loaded),
            Ok(Outcome::Again(changed)) => {
                for (place, argument) in (0..).zip(&changed) {
                    caller.write(at.wrapping_add(ARGUMENTS + 8 * place), argument)?;
                }
                return Ok(Outcome::Again(rest));
            }
            Ok(outcome @ (Outcome::Block | Outcome::Yield)) => {
                then = outcome;
                0
            }
            Err(errno) => errno.returned(),
        };
        caller.write(at.wrapping_add(RESULT), &value)?;
    }
    Ok(then)
}

fn one(caller: &mut Caller<'_>, entry: &MulticallEntry) -> Reply {
    if entry.number == u64::from(number::MULTICALL) {
        return Err(Errno::new(errno::EINVAL));
    }
    if entry.number == u64::from(number::IRET) {
        caller.cpu.return_from_call();
        return Ok(Outcome::Loaded);
    }
    dispatch(caller, entry.number, entry.arguments)
}
