//! What is given in place of slots: the seed gets it over a pair of sockets.

use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt;

use host::processes::identity;
use inject::{Area, Seat};

use super::plan::Plan;
use crate::error::Error;
use crate::slots::Given;
use crate::state::{OpenFile, State};

/// The seed's descriptors of what was given, by the slots' names.
pub(super) fn give<'a>(
    seat: &Seat,
    area: &Area,
    state: &'a State,
    given: &Given<'_>,
) -> Result<BTreeMap<&'a str, u64>, Error> {
    let mut received = BTreeMap::new();
    for name in names(state) {
        if received.contains_key(name) {
            continue;
        }
        let file = given.get(name);
        let file =
            file.ok_or_else(|| Error::Host(format!("nothing is given for its slot {name}")))?;
        received.insert(name, pass(seat, area, *file)?);
    }
    Ok(received)
}

/// How many slots an image has, at the most.
pub(super) fn count(state: &State) -> usize {
    names(state).count()
}

fn names(state: &State) -> impl Iterator<Item = &str> {
    let files = state.descriptions.iter().filter_map(|description| match &description.file {
        OpenFile::Slot { name } => Some(name.as_str()),
        _ => None,
    });
    files.chain(state.terminals.iter().filter_map(|terminal| terminal.slot.as_deref()))
}

fn pass(seat: &Seat, area: &Area, file: BorrowedFd<'_>) -> Result<u64, Error> {
    let mut plan = Plan::new(0, seat, area);
    let room = plan.words(&[0]);
    let [family, kind] =
        [libc::AF_UNIX, libc::SOCK_DGRAM].map(|number| number.cast_unsigned().into());
    plan.must("make a pair of sockets", libc::SYS_socketpair, [family, kind, 0, room]);
    plan.run()?;
    let [ours, theirs] = halves(area, room)?;
    let process = identity::open_process(seat.task()).map_err(Error::io("open the seed"))?;
    let socket = identity::descriptor_of(&process, ours).map_err(Error::io("take a socket"))?;
    host::rights::send(&socket, &[0], &[file]).map_err(Error::io("hand a file over"))?;
    let mut plan = Plan::new(0, seat, area);
    let byte = plan.words(&[0]);
    let vector = plan.words(&[byte, 1]);
    // A header of 16 bytes, a descriptor, and four bytes of nothing.
    let control = plan.words(&[0; 3]);
    let message = plan.words(&[0, 0, vector, 1, control, 24, 0]);
    plan.must("receive a file", libc::SYS_recvmsg, [theirs.into(), message, 0]);
    plan.must("close a socket", libc::SYS_close, [ours.into()]);
    plan.must("close a socket", libc::SYS_close, [theirs.into()]);
    plan.run()?;
    let [received, _] = halves(area, control + 16)?;
    match halves(area, control)? {
        [20, 0] => Ok(received.into()),
        _ => Err(Error::Host("a file that is given in place of a slot does not arrive".to_owned())),
    }
}

pub(super) fn halves(area: &Area, address: u64) -> Result<[u32; 2], Error> {
    let mut bytes = [0; 8];
    let read = area.memory().read_exact_at(&mut bytes, address);
    read.map_err(Error::io("read an answer"))?;
    Ok([0, 4].map(|at| u32::from_le_bytes(std::array::from_fn(|n| bytes[at + n]))))
}
