//! `grant_table_op` (public/grant_table.h): the domain's grant table, of version 1.
//!
//! The table is [`GRANT_FRAMES`] frames that the domain maps and writes. Back-ends read it when a request names a grant
//! (crate `xen-io`). The domain itself can map nothing: no other domain grants it anything.

use xen_abi::grant::{QuerySize, SetupTable, command, status};
use xen_abi::{Wire, domain, errno};

use crate::caller::{Caller, Outcome, Reply};
use crate::errno::Errno;
use crate::geometry::GRANT_FRAMES;
use crate::limits::MAX_GRANT_OPERATIONS;

/// An operation on a list of structures.
pub(crate) fn grant_table_op(caller: &mut Caller<'_>, [command, at, count, ..]: [u64; 6]) -> Reply {
    let count = u64::from(count as u32);
    if count > MAX_GRANT_OPERATIONS {
        return Err(Errno::new(errno::EINVAL));
    }
    match command as u32 {
        command::SETUP_TABLE if count == 1 => set_up(caller, at),
        command::QUERY_SIZE if count == 1 => {
            let mut size: QuerySize = caller.read(at)?;
            let is_own = size.domain == domain::THIS;
            size.status = if is_own { status::OKAY } else { status::BAD_DOMAIN };
            (size.count, size.limit) = (GRANT_FRAMES as u32, GRANT_FRAMES as u32);
            caller.write(at, &size)?;
            Ok(Outcome::DONE)
        }
        command::SETUP_TABLE | command::QUERY_SIZE => Err(Errno::new(errno::EINVAL)),
        command::MAP_GRANT_REF => each(caller, at, count, MAP, status::BAD_DOMAIN),
        command::UNMAP_GRANT_REF => each(caller, at, count, UNMAP, status::BAD_HANDLE),
        command::COPY => each(caller, at, count, COPY, status::BAD_DOMAIN),
        command::TRANSFER => each(caller, at, count, TRANSFER, status::BAD_PAGE),
        _ => Err(Errno::new(errno::ENOSYS)),
    }
}

/// Of a list's structures: their bytes, and where the status is.
type Layout = (u64, u64);

const MAP: Layout = (32, 18);
const UNMAP: Layout = (24, 20);
const COPY: Layout = (40, 36);
const TRANSFER: Layout = (24, 16);

/// Refuse each of a list with a status.
fn each(
    caller: &mut Caller<'_>,
    at: u64,
    count: u64,
    (bytes, offset): Layout,
    refusal: i16,
) -> Reply {
    for index in 0..count {
        caller.write(at.wrapping_add(index * bytes + offset), &refusal)?;
    }
    Ok(Outcome::DONE)
}

/// Tell the domain the frames of its table.
fn set_up(caller: &mut Caller<'_>, at: u64) -> Reply {
    let mut table: SetupTable = caller.read(at)?;
    table.status = match (table.domain, u64::from(table.count)) {
        (domain::THIS, 0..=GRANT_FRAMES) => status::OKAY,
        (domain::THIS, _) => status::GENERAL_ERROR,
        _ => status::BAD_DOMAIN,
    };
    if table.status == status::OKAY {
        for index in 0..u64::from(table.count) {
            let frame = caller.domain.geometry.grant_frame(index);
            caller.write(table.frames.wrapping_add(index * 8), &frame)?;
        }
    }
    caller.write(at, &table)?;
    Ok(Outcome::DONE)
}

const _: () = assert!(SetupTable::BYTES == 24 && QuerySize::BYTES == 16);
