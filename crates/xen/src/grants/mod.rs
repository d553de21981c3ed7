//! `grant_table_op` (public/grant_table.h): the domain's grant table, of version 1 or 2.
//!
//! An entry of the table allows a domain to use a frame. The table is memory that the domain writes; back-ends read it
//! when a request names a grant (crate `xen-io`), and the domain itself may map, and copy by, what it grants to itself:
//! no other domain grants it anything. What it may do that way it may do without: its grants to itself are there for
//! programs that use the interface for both sides (a loop-back of vchan, tests).
//!
//! 1. *The entry is an allegation.* It is read in one step, checked, and marked as in use (`GTF_reading`,
//!    `GTF_writing`): in the entry itself in version 1, in a word of its status frame in version 2.
//! 2. *An entry in use is what it was.* [`table::Active`] remembers the frame; what the domain writes into the entry
//!    meanwhile changes nothing for those who use it.
//! 3. *A mapping for the processor is an entry of an L1*, which has the references that each such entry has
//!    (crate `frames`). The handle of the mapping has none of its own, so a domain that replaces that entry by other
//!    means has ended the mapping, and keeps the handle. A mapping for devices (there is none here) has references that
//!    an audit counts by its handle.
//! 4. *One lock*, `Domain::grants`, which is taken before `Domain::tables`.

mod copying;
mod handles;
mod mapping;
mod saved;
mod size;
mod table;

use xen_abi::grant::{CopyPages, Map, Swap, Transfer, Unmap, UnmapAndReplace, command, status};
use xen_abi::{Wire, errno};

pub(crate) use saved::SavedGrants;
use table::Failed;
pub(crate) use table::GrantTable;

use crate::caller::{Caller, Outcome, Reply};
use crate::errno::Errno;
use crate::limits::MAX_GRANT_OPERATIONS;

/// What is beside the command in its argument.
const ARGUMENT: u32 = !0xfff;

/// The status of an operation.
fn status_of(result: Result<(), Failed>) -> i16 {
    result.map_or_else(|Failed(status)| status, |()| status::OKAY)
}

/// An operation on a list of structures, or on one.
pub(crate) fn grant_table_op(caller: &mut Caller<'_>, [command, at, count, ..]: [u64; 6]) -> Reply {
    let (command, count) = (command as u32, count as u32);
    if (count as i32) < 0 || command & ARGUMENT != 0 {
        return Err(Errno::new(errno::EINVAL));
    }
    let count = u64::from(count);
    if count > MAX_GRANT_OPERATIONS {
        return Err(Errno::new(errno::EINVAL));
    }
    let list = [at, count];
    match command {
        command::MAP_GRANT_REF => each(caller, list, command, |caller, one: &mut Map| {
            one.status = status_of(caller.map_grant(one));
        }),
        command::UNMAP_GRANT_REF => each(caller, list, command, |caller, one: &mut Unmap| {
            one.status = status_of(caller.unmap_grant(one));
        }),
        command::UNMAP_AND_REPLACE => {
            each(caller, list, command, |caller, one: &mut UnmapAndReplace| {
                one.status = status_of(caller.unmap_and_replace_grant(one));
            })
        }
        command::COPY => each(caller, list, command, |caller, one: &mut CopyPages| {
            one.status = status_of(caller.copy_grants(one));
        }),
        command::SWAP_GRANT_REF => each(caller, list, command, |caller, one: &mut Swap| {
            one.status = status_of(caller.swap_grants(one));
        }),
        command::TRANSFER => each(caller, list, command, |_, one: &mut Transfer| {
            one.status = status::BAD_PAGE;
        }),
        command::SET_VERSION => size::set_version(caller, at),
        command::GET_VERSION => size::get_version(caller, at),
        command::SETUP_TABLE if count == 1 => size::set_up(caller, at),
        command::QUERY_SIZE if count == 1 => size::query(caller, at),
        command::GET_STATUS_FRAMES if count == 1 => size::status_frames(caller, at),
        command::SETUP_TABLE | command::QUERY_SIZE | command::GET_STATUS_FRAMES => {
            Err(Errno::new(errno::EINVAL))
        }
        _ => Err(Errno::new(errno::ENOSYS)),
    }
}

/// Carry out each operation of a list, and put its answer in its place.
fn each<T: Wire>(
    caller: &mut Caller<'_>,
    [at, count]: [u64; 2],
    command: u32,
    act: impl Fn(&mut Caller<'_>, &mut T),
) -> Reply {
    for index in 0..count {
        let at = at.wrapping_add(index * T::BYTES as u64);
        // What has been begun with page tables is finished first: it can hold frames.
        if caller.with_tables(|tables| tables.settle()).is_err() {
            return Ok(Outcome::Again([command.into(), at, count - index, 0, 0]));
        }
        let mut one: T = caller.read(at)?;
        act(caller, &mut one);
        caller.write(at, &one)?;
    }
    Ok(Outcome::DONE)
}
