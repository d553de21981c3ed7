//! `memory_op` (public/memory.h): what memory the domain has, and how it gives back and takes frames.

use machine::xen::MACHINE_TO_PHYSICAL;
use vm_memory::GuestAddress;
use xen_abi::memory::{E820Entry, MachphysMapping, MemoryMap, Reservation, command};
use xen_abi::{Mfn, PAGE_BYTES, PAGE_SHIFT, domain, errno};

use crate::caller::{Caller, Outcome, Reply};
use crate::domain::Domain;
use crate::errno::Errno;
use crate::geometry;

const INVALID: Errno = Errno::new(errno::EINVAL);

/// An operation on the domain's memory.
pub(crate) fn memory_op(caller: &mut Caller<'_>, [command, at, ..]: [u64; 6]) -> Reply {
    /// The command is in the low bits, and how far a call got above.
    const COMMAND: u64 = 0x3f;
    const PROGRESS_SHIFT: u32 = 6;
    let (done, domain) = (command >> PROGRESS_SHIFT, caller.domain);
    match (command & COMMAND) as u32 {
        command::MEMORY_MAP => memory_map(caller, at),
        command::CURRENT_RESERVATION => Ok(Outcome::Value(domain.pages())),
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
        command::DECREASE_RESERVATION => extents(caller, command, at, done, decrease),
        command::POPULATE_PHYSMAP => extents(caller, command, at, done, populate),
        command::INCREASE_RESERVATION => extents(caller, command, at, done, increase),
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

/// What is done with an extent, which is one frame: where its number is in the guest's list.
type Extent = fn(&mut Caller<'_>, u64) -> Result<(), Errno>;

/// Do it with each extent of a list; how many it was done with.
fn extents(caller: &mut Caller<'_>, command: u64, at: u64, done: u64, act: Extent) -> Reply {
    let list: Reservation = caller.read(at)?;
    let is_own = list.domain == domain::THIS;
    if !is_own {
        return Err(Errno::new(errno::ESRCH));
    }
    if list.order != 0 || done > list.count {
        return Ok(Outcome::Value(done));
    }
    for index in done..list.count {
        if index > done && caller.cpu.is_kicked() {
            let again = command & 0x3f | index << 6;
            return Ok(Outcome::Again([again, at, 0, 0, 0]));
        }
        if act(caller, list.extents.wrapping_add(index * 8)).is_err() {
            return Ok(Outcome::Value(index));
        }
    }
    Ok(Outcome::Value(list.count))
}

/// Give a frame back, to which nothing refers.
fn decrease(caller: &mut Caller<'_>, at: u64) -> Result<(), Errno> {
    let frame = Mfn(caller.read(at)?);
    let domain = caller.domain;
    if !domain.geometry.is_memory(frame) {
        return Err(INVALID);
    }
    // What waits for its demotion refers to frames.
    let settled = caller.with_tables(|tables| tables.settle());
    settled.map_err(|_| Errno::new(errno::EAGAIN))?;
    let mut first_free = domain.reservation();
    domain.frames().release(frame)?;
    domain.set_physical(frame, u64::MAX);
    *first_free = frame.0.min(*first_free);
    Ok(())
}

/// Take a frame for the page whose number is in the list, and put the frame's number there.
fn populate(caller: &mut Caller<'_>, at: u64) -> Result<(), Errno> {
    let page: u64 = caller.read(at)?;
    let frame = take(caller.domain)?;
    caller.domain.set_physical(frame, page);
    caller.write(at, &frame)
}

/// Take a frame, and put its number into the list, if there is one.
fn increase(caller: &mut Caller<'_>, at: u64) -> Result<(), Errno> {
    let frame = take(caller.domain)?;
    if at >= PAGE_BYTES as u64 {
        caller.write(at, &frame)?;
    }
    Ok(())
}

/// The lowest free frame, zeroed.
fn take(domain: &Domain) -> Result<Mfn, Errno> {
    let mut first_free = domain.reservation();
    let frames = domain.frames();
    let end = geometry::BASE.0 + domain.geometry.maximum;
    let free = (*first_free..end).map(Mfn).find(|frame| frames.assign(*frame).is_ok());
    let frame = free.ok_or(Errno::new(errno::ENOMEM))?;
    *first_free = frame.0 + 1;
    let zeroes = [0; PAGE_BYTES];
    let _ = domain.memory.bytes().write(GuestAddress(frame.address()), &zeroes);
    Ok(frame)
}

impl Domain {
    /// Pages that the domain has.
    fn pages(&self) -> u64 {
        let frames = self.frames();
        let all = geometry::BASE.0..geometry::BASE.0 + self.geometry.maximum;
        let is_owned = |frame: &u64| frames.shown(Mfn(*frame)).is_some_and(|shown| shown.is_owned);
        all.filter(is_owned).count() as u64
    }
}
