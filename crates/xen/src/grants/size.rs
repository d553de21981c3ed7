//! How long the table is, which version it has, and where its frames are.

use xen_abi::grant::{
    EntryV1, EntryV2, GetStatusFrames, GetVersion, QuerySize, SetVersion, SetupTable, entry,
    reserved, status,
};
use xen_abi::{Mfn, Wire, domain, errno};
use xen_io::{MachineAddress, Memory as _};

use super::table::GrantTable;
use crate::caller::{Caller, Outcome, Reply};
use crate::errno::Errno;
use crate::geometry::{GRANT_FRAMES, Geometry};
use crate::grant_layout::Version;
use crate::memory::{Owned, WORDS};
use crate::services::DOMAIN_ID;

fn is_own(named: u16) -> bool {
    [domain::THIS, DOMAIN_ID].contains(&named)
}

/// Carry out an operation on one structure, and put the answer in its place.
fn answer<T: Wire>(
    caller: &mut Caller<'_>,
    at: u64,
    act: impl FnOnce(&mut Caller<'_>, &mut T) -> Result<(), Errno>,
) -> Reply {
    let mut one: T = caller.read(at)?;
    act(caller, &mut one)?;
    caller.write(at, &one)?;
    Ok(Outcome::DONE)
}

/// Tell the first frames of a list, if there are so many; the status.
fn tell(
    caller: &mut Caller<'_>,
    (to, count): (u64, u64),
    there: u64,
    frame: impl Fn(&Geometry, u64) -> Mfn,
) -> Result<i16, Errno> {
    if count > there {
        return Ok(status::GENERAL_ERROR);
    }
    for index in 0..count {
        let frame = frame(&caller.domain.geometry, index);
        caller.write(to.wrapping_add(index * 8), &frame)?;
    }
    Ok(status::OKAY)
}

/// `GNTTABOP_setup_table`: make the table as long as this, and tell its frames.
pub(super) fn set_up(caller: &mut Caller<'_>, at: u64) -> Reply {
    answer(caller, at, |caller, one: &mut SetupTable| {
        let list = (one.frames, u64::from(one.count));
        one.status = status::BAD_DOMAIN;
        if is_own(one.domain) {
            if list.1 <= GRANT_FRAMES {
                caller.domain.grants().grow(&caller.domain.owned, list.1);
            }
            one.status = tell(caller, list, GRANT_FRAMES, Geometry::grant_frame)?;
        }
        Ok(())
    })
}

/// `GNTTABOP_query_size`.
pub(super) fn query(caller: &mut Caller<'_>, at: u64) -> Reply {
    answer(caller, at, |caller, one: &mut QuerySize| {
        one.status = status::BAD_DOMAIN;
        if is_own(one.domain) {
            one.count = caller.domain.grants().frames as u32;
            one.limit = GRANT_FRAMES as u32;
            one.status = status::OKAY;
        }
        Ok(())
    })
}

/// `GNTTABOP_get_status_frames`.
pub(super) fn status_frames(caller: &mut Caller<'_>, at: u64) -> Reply {
    answer(caller, at, |caller, one: &mut GetStatusFrames| {
        let list = (one.frames, u64::from(one.count));
        let version = caller.domain.owned.grant_version();
        let there = version.status_frames(caller.domain.grants().frames);
        one.status = match is_own(one.domain) {
            true => tell(caller, list, there, Geometry::status_frame)?,
            false => status::BAD_DOMAIN,
        };
        Ok(())
    })
}

/// `GNTTABOP_get_version`.
pub(super) fn get_version(caller: &mut Caller<'_>, at: u64) -> Reply {
    answer(caller, at, |caller, one: &mut GetVersion| {
        if !is_own(one.domain) {
            return Err(Errno::new(errno::ESRCH));
        }
        one.version = caller.domain.owned.grant_version().number();
        Ok(())
    })
}

/// `GNTTABOP_set_version`. Whatever comes of it, the domain is told the version.
pub(super) fn set_version(caller: &mut Caller<'_>, at: u64) -> Reply {
    let one: SetVersion = caller.read(at)?;
    let domain = caller.domain;
    let changed = Version::of_number(one.version).ok_or(Errno::new(errno::EINVAL)).and_then(|to| {
        let store = domain.store().clone();
        let is_served = store.is_some_and(|store| store.has_grants_from(reserved::COUNT));
        let table = domain.grants();
        table.change_version(&domain.owned, to, is_served)
    });
    let now = SetVersion { version: domain.owned.grant_version().number() };
    caller.write(at, &now)?;
    changed.map(|()| Outcome::DONE)
}

impl GrantTable {
    fn grow(&mut self, owned: &Owned, count: u64) {
        let version = owned.grant_version();
        let before = version.status_frames(self.frames);
        self.frames = self.frames.max(count);
        (before..version.status_frames(self.frames)).for_each(|index| give(owned, index));
    }

    /// Change the layout. Nothing may be in use but the first entries, which the services have.
    fn change_version(&self, owned: &Owned, to: Version, is_served: bool) -> Result<(), Errno> {
        let from = owned.grant_version();
        if from == to {
            return Ok(());
        }
        if is_served || self.is_in_use_from(reserved::COUNT) {
            return Err(Errno::new(errno::EBUSY));
        }
        let kept = (0..reserved::COUNT).map(|reference| kept(owned, from, reference));
        let kept = kept.collect::<Result<Vec<_>, _>>()?;
        match to {
            Version::One => take_all(owned, from.status_frames(self.frames))?,
            Version::Two => (0..to.status_frames(self.frames)).for_each(|index| give(owned, index)),
        }
        for index in 0..self.frames {
            clear(owned, owned.geometry.grant_frame(index));
        }
        owned.set_grant_version(to);
        for (reference, entry) in kept.iter().enumerate() {
            keep(owned, to, reference as u32, entry);
        }
        Ok(())
    }
}

/// An entry of those that outlive the layout, as in version 1.
fn kept(owned: &Owned, version: Version, reference: u32) -> Result<EntryV1, Errno> {
    let none = EntryV1::decode(&[0; EntryV1::BYTES]);
    let Some(place) = version.place(&owned.geometry, reference) else { return Ok(none) };
    let word = |at| owned.load_word(at).unwrap_or(0);
    let first = EntryV1::decode(&word(place.entry).to_le_bytes());
    let Some(marks) = place.marks else { return Ok(first) };
    let marks = (word(MachineAddress(marks.0 & !7)) >> ((marks.0 & 6) * 8)) as u16;
    let frame = u32::try_from(word(place.entry.plus(8)));
    match (first.flags & entry::TYPE_MASK, frame) {
        (entry::INVALID | entry::ACCEPT_TRANSFER, _) => Ok(none),
        (entry::PERMIT_ACCESS, Ok(frame)) => {
            Ok(EntryV1 { flags: first.flags | marks, domain: first.domain, frame })
        }
        // Version 1 has nothing to say it with.
        _ => Err(Errno::new(errno::ERANGE)),
    }
}

/// Write such an entry.
fn keep(owned: &Owned, version: Version, reference: u32, kept: &EntryV1) {
    const MARKS: u16 = entry::READING | entry::WRITING;
    let Some(place) = version.place(&owned.geometry, reference) else { return };
    let EntryV1 { flags, domain, frame } = *kept;
    let mut bytes = [0; EntryV2::BYTES];
    let bytes = &mut bytes[..version.entry_bytes()];
    match place.marks {
        None => kept.encode(bytes),
        Some(marks) => {
            let flags = flags & !MARKS;
            EntryV2 { flags, domain, padding: 0, frame: frame.into() }.encode(bytes);
            // The table's frames are memory.
            let _ = owned.write(marks, &(kept.flags & MARKS).to_le_bytes());
        }
    }
    let _ = owned.write(place.entry, bytes);
}

fn clear(owned: &Owned, frame: Mfn) {
    (0..WORDS).for_each(|index| owned.memory.store(frame, index, 0));
}

/// Share a status frame with the domain.
fn give(owned: &Owned, index: u64) {
    let frame = owned.geometry.status_frame(index);
    clear(owned, frame);
    // It is nobody's.
    let _ = owned.frames().assign_special(frame, true);
}

/// Take the first status frames back, if the domain uses none of them.
fn take_all(owned: &Owned, count: u64) -> Result<(), Errno> {
    let frames = || (0..count).map(|index| owned.geometry.status_frame(index));
    let is_used = |frame| owned.frames().references(frame) > 1;
    if frames().any(is_used) {
        return Err(Errno::new(errno::EBUSY));
    }
    for frame in frames() {
        owned.frames().release_special(frame)?;
    }
    Ok(())
}
