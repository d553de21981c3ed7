//! `memory_op` (public/memory.h): what memory the domain has, and how it gives back and takes frames.

mod exchange;
mod extents;

use machine::xen::MACHINE_TO_PHYSICAL;
use xen_abi::memory::{E820Entry, MachphysMapping, MemoryMap, command};
use xen_abi::{Mfn, PAGE_SHIFT, errno};

use crate::caller::{Caller, Outcome, Reply};
use crate::errno::Errno;

const INVALID: Errno = Errno::new(errno::EINVAL);

/// The command is in the low bits of a call's first argument, and how far the call got above.
const COMMAND: u64 = 0x3f;
const PROGRESS_SHIFT: u32 = 6;

/// The largest extent that a domain may ask for, 2 MiB (Xen: `CONFIG_DOMU_MAX_ORDER`).
const MAX_ORDER: u32 = 9;

/// An operation on the domain's memory.
pub(crate) fn memory_op(caller: &mut Caller<'_>, [command, at, ..]: [u64; 6]) -> Reply {
    let (done, domain) = (command >> PROGRESS_SHIFT, caller.domain);
    match (command & COMMAND) as u32 {
        command::MEMORY_MAP => memory_map(caller, at),
        command::CURRENT_RESERVATION => Ok(Outcome::Value(domain.reservation().pages)),
        command::MAXIMUM_RESERVATION => Ok(Outcome::Value(domain.geometry.maximum)),
        command::MAXIMUM_GPFN => Ok(Outcome::Value(domain.geometry.maximum - 1)),
        command::MAXIMUM_RAM_PAGE => Ok(Outcome::Value(domain.geometry.end().0)),
        command::MACHPHYS_MAPPING => {
            let bytes = domain.geometry.machine_to_physical_frames() << PAGE_SHIFT;
            let mapping = MachphysMapping {
                start: MACHINE_TO_PHYSICAL,
                end: MACHINE_TO_PHYSICAL + bytes,
                last: Mfn(domain.geometry.end().0 - 1),
            };
            caller.write(at, &mapping)?;
            Ok(Outcome::DONE)
        }
        command::DECREASE_RESERVATION => extents::decrease(caller, at, done),
        command::POPULATE_PHYSMAP => extents::populate(caller, at, done),
        command::INCREASE_RESERVATION => extents::increase(caller, at, done),
        command::EXCHANGE => exchange::exchange(caller, at),
        _ => Err(Errno::new(errno::ENOSYS)),
    }
}

/// One range of RAM, up to the most that the domain may have.
fn memory_map(caller: &mut Caller<'_>, at: u64) -> Reply {
    let mut map: MemoryMap = caller.read(at)?;
    if map.count == 0 {
        return Err(INVALID);
    }
    let bytes = caller.domain.geometry.maximum << PAGE_SHIFT;
    caller.write(map.buffer, &E820Entry { start: 0, size: bytes, kind: E820Entry::MEMORY })?;
    map.count = 1;
    caller.write(at, &map)?;
    Ok(Outcome::DONE)
}
