//! What few processes have of their processor, and what cannot be made again: it is refused by name.

use inject::{Area, Script};

use super::answer::word;
use crate::error::Error;

/// Bytes of an entry of the local descriptor table.
const SEGMENT_BYTES: usize = 8;
/// `ARCH_GET_XCOMP_PERM`, and the bit of what a process asks for that uses AMX (`XFEATURE_XTILE_DATA`).
const GET_PERMISSION: u64 = 0x1022;
const MATRICES: u32 = 18;
/// `ARCH_GET_UNTAG_MASK`.
const GET_UNTAG_MASK: u64 = 0x4001;

/// Where answers will be.
pub(super) struct Asked {
    first: usize,
    permission: u64,
    untagged: u64,
}

/// Add the calls that tell.
pub(super) fn ask(script: &mut Script) -> Asked {
    let (table, permission, untagged) =
        (script.room(SEGMENT_BYTES), script.room(8), script.room(8));
    let first = script.call(libc::SYS_modify_ldt, [0, table, SEGMENT_BYTES as u64]);
    script.call(libc::SYS_arch_prctl, [GET_PERMISSION, permission]);
    script.call(libc::SYS_arch_prctl, [GET_UNTAG_MASK, untagged]);
    Asked { first, permission, untagged }
}

/// Refuse a process that has one of these. A kernel or a processor that has not says so by an error.
pub(super) fn refuse(pid: u32, area: &Area, asked: &Asked, results: &[i64]) -> Result<(), Error> {
    let result = |place: usize| results.get(asked.first + place).copied().unwrap_or(-1);
    if result(0) > 0 {
        return Err(Error::unsupported(pid, "has a local descriptor table (modify_ldt(2))"));
    }
    if result(1) == 0 && word(area, asked.permission)? >> MATRICES & 1 == 1 {
        return Err(Error::unsupported(pid, "has asked for AMX (ARCH_REQ_XCOMP_PERM)"));
    }
    if result(2) == 0 && word(area, asked.untagged)? != u64::MAX {
        return Err(Error::unsupported(pid, "has tags in addresses (ARCH_ENABLE_TAGGED_ADDR)"));
    }
    Ok(())
}
