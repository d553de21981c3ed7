//! Calls that are about neither page tables nor traps: events, grants, time, vCPUs, memory, and what Xen is.

use xen_abi::errno;

use super::{Caller, Reply};
use crate::errno::Errno;

/// The call of this number.
pub(super) fn call(_: &mut Caller<'_>, _: u32, _: [u64; 6]) -> Reply {
    Err(Errno::new(errno::ENOSYS))
}
