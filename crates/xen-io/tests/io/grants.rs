//! Grants: what is allowed, what is marked, and what is held.

use std::sync::Arc;

use frames::FrameType;
use xen_abi::Mfn;
use xen_abi::grant::{EntryV1, entry};
use xen_fronts::machine::{BASE, Machine, address};
use xen_io::grant::{Access, GrantError, Grants};
use xen_io::{Domain, Memory};

const MARKS: u16 = entry::READING | entry::WRITING;

fn machine() -> (Arc<Machine>, Arc<Grants>) {
    let machine = Machine::new();
    let grants = Grants::new(Arc::clone(&machine) as Arc<dyn Domain>);
    (machine, grants)
}

/// A refused grant leaves nothing behind.
fn check(set: EntryV1, access: Access, expected: GrantError) {
    let (machine, grants) = machine();
    machine.set_entry(9, set);
    assert_eq!(grants.take(9, access).map(drop), Err(expected), "{set:?}");
    assert_eq!((machine.entry(9), grants.in_use(), machine.references()), (set, 0, 0), "{set:?}");
}

#[test]
fn what_the_entry_does_not_allow_is_refused() {
    let frame = BASE as u32 + 9;
    let entry = |flags, domain, frame| EntryV1 { flags, domain, frame };
    check(entry(0, 0, frame), Access::Read, GrantError::NotGranted(9));
    check(entry(entry::ACCEPT_TRANSFER, 0, frame), Access::Read, GrantError::NotGranted(9));
    check(entry(entry::TRANSITIVE, 0, frame), Access::Read, GrantError::NotGranted(9));
    let other = GrantError::Domain { reference: 9, domain: 3 };
    check(entry(1, 3, frame), Access::Read, other);
    check(entry(1 | entry::READONLY, 0, frame), Access::Write, GrantError::ReadOnly(9));
    check(entry(1, 0, 9), Access::Read, GrantError::Frame(9));
    check(entry(1, 0, u32::MAX), Access::Write, GrantError::Frame(9));
    let (_, grants) = machine();
    assert_eq!(grants.take(512, Access::Read).map(drop), Err(GrantError::NoEntry(512)));
    assert_eq!(grants.take(u32::MAX, Access::Read).map(drop), Err(GrantError::NoEntry(u32::MAX)));
}

#[test]
fn a_frame_that_cannot_be_written_is_not_marked() {
    let (machine, grants) = machine();
    // The grant table itself is a frame that nobody writes by a mapping of the domain's.
    machine.set_entry(9, EntryV1 { flags: 1, domain: 0, frame: BASE as u32 });
    assert_eq!(grants.take(9, Access::Write).map(drop), Err(GrantError::Type(9)));
    assert_eq!(machine.entry(9).flags & MARKS, 0);
}

#[test]
fn marks_and_references_last_as_long_as_the_last_use() {
    let (machine, grants) = machine();
    let marks = || machine.entry(9).flags & MARKS;
    let frame = Mfn(BASE + 9);
    let reader = grants.take(9, Access::Read).expect("it is granted");
    assert_eq!(marks(), entry::READING);
    let writer = grants.take(9, Access::Write).expect("it is granted");
    let again = grants.take(9, Access::Write).expect("it is granted");
    assert_eq!((marks(), machine.frames().frame_type(frame)), (MARKS, FrameType::Writable));
    drop(writer);
    assert_eq!((marks(), machine.frames().references(frame)), (MARKS, 2));
    drop(again);
    assert_eq!((marks(), machine.frames().references(frame)), (entry::READING, 1));
    assert!(machine.frames().release(frame).is_err(), "it is in use");
    drop(reader);
    assert_eq!((marks(), grants.in_use()), (0, 0));
    assert_eq!(machine.frames().release(frame), Ok(()));
    assert_eq!(grants.take(9, Access::Read).map(drop), Err(GrantError::Frame(9)));
}

#[test]
fn a_grant_in_use_names_the_same_frame_whatever_is_written() {
    let (machine, grants) = machine();
    let first = grants.take(9, Access::Write).expect("it is granted");
    machine.permit(9, 10, 0);
    let second = grants.take(9, Access::Write).expect("it is granted");
    assert_eq!(second.frame(), first.frame());
    drop((first, second));
    let third = grants.take(9, Access::Write).expect("it is granted");
    assert_eq!(third.frame(), Mfn(BASE + 10));
    assert_eq!(third.range(4095, 1).map(|range| range.at), Some(address(10).plus(4095)));
    assert_eq!(third.range(4095, 2), None);
    assert_eq!(third.range(usize::MAX, 2), None);
    drop(third);
    assert_eq!(machine.references(), 0);
    assert_eq!(machine.load_word(address(0).plus(4)), Err(xen_io::NoMemory));
}
