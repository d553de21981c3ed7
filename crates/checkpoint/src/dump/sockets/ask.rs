//! What a process tells of its sockets itself, and the socket that tells of all of its network namespace.

use std::os::fd::OwnedFd;

use host::processes::identity;
use inject::{Area, Seat};

use crate::borrow::borrow;
use crate::dump::answer::{expect, word};
use crate::error::Error;
use crate::state::sockets::Who;

/// `NETLINK_SOCK_DIAG`.
const SOCK_DIAG: i32 = 4;
/// What stands for nobody in `struct ucred`.
const NOBODY: u32 = u32::MAX;
/// Sockets that are asked about at once.
const AT_ONCE: usize = 256;

/// What a process answers.
pub(super) struct Answer {
    /// Who it is itself.
    pub itself: Who,
    /// Who is at the other end of each socket, if somebody ever was.
    pub peers: Vec<Option<Who>>,
    /// A socket of its network namespace that tells of the others.
    pub diagnosis: Option<OwnedFd>,
}

/// Ask a process about its sockets with those numbers.
pub(super) fn ask(pid: u32, numbers: &[u32], wants_diagnosis: bool) -> Result<Answer, Error> {
    borrow(pid, |seat, area| answer(pid, seat, area, numbers, wants_diagnosis))
}

/// The number that the sender of the next message has for a process; 0 if it has none. The socket asks for it.
pub(super) fn sender(pid: u32, number: u32) -> Result<u32, Error> {
    borrow(pid, |seat, area| {
        let mut script = area.script();
        let byte = script.room(16);
        let mut words = |words: &[u64]| {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            script.data(&bytes)
        };
        let (piece, control) = (words(&[byte, 1]), words(&[0; 4]));
        // There is no room for descriptors, which are not made then.
        let header = words(&[0, 0, piece, 1, control, 32, 0]);
        let flags = (libc::MSG_PEEK | libc::MSG_DONTWAIT).cast_unsigned().into();
        script.call(libc::SYS_recvmsg, [number.into(), header, flags]);
        seat.run(area, &script)?;
        let kind = u64::from(libc::SCM_CREDENTIALS.cast_unsigned()) << 32;
        let is_there =
            word(area, control + 8)? == kind | u64::from(libc::SOL_SOCKET.cast_unsigned());
        Ok(if is_there { half(word(area, control + 16)?) } else { 0 })
    })
}

fn answer(
    pid: u32,
    seat: &Seat,
    area: &Area,
    numbers: &[u32],
    wants_diagnosis: bool,
) -> Result<Answer, Error> {
    let mut script = area.script();
    script.call(libc::SYS_getpid, []);
    script.call(libc::SYS_geteuid, []);
    script.call(libc::SYS_getegid, []);
    let results = seat.run(area, &script)?.results;
    let [number, user, group] = [0, 1, 2].map(|index| half(results[index].cast_unsigned()));
    let mut peers = Vec::new();
    for some in numbers.chunks(AT_ONCE) {
        peers.extend(ask_for_peers(seat, area, some)?);
    }
    let diagnosis = match wants_diagnosis {
        true => Some(make_diagnosis(pid, seat, area)?),
        false => None,
    };
    Ok(Answer { itself: Who { pid: number, user, group }, peers, diagnosis })
}

/// The lower half of a word.
fn half(word: u64) -> u32 {
    (word & 0xffff_ffff) as u32
}

fn ask_for_peers(seat: &Seat, area: &Area, numbers: &[u32]) -> Result<Vec<Option<Who>>, Error> {
    let [level, name] = [libc::SOL_SOCKET, libc::SO_PEERCRED].map(i32::cast_unsigned);
    let mut script = area.script();
    let mut rooms = Vec::new();
    for number in numbers {
        let (room, bytes) = (script.room(16), script.data(&12_u64.to_le_bytes()));
        let arguments = [(*number).into(), level.into(), name.into(), room, bytes];
        script.call(libc::SYS_getsockopt, arguments);
        rooms.push(room);
    }
    let results = seat.run(area, &script)?.results;
    let mut peers = Vec::new();
    for (room, result) in rooms.into_iter().zip(results) {
        let (first, rest) = (word(area, room)?, word(area, room + 8)?);
        let who = Who { pid: half(first), user: half(first >> 32), group: half(rest) };
        let is_somebody = result == 0 && (who.pid != 0 || who.user != NOBODY);
        peers.push(is_somebody.then_some(who));
    }
    Ok(peers)
}

fn make_diagnosis(pid: u32, seat: &Seat, area: &Area) -> Result<OwnedFd, Error> {
    let [family, kind, protocol] =
        [libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_CLOEXEC, SOCK_DIAG].map(i32::cast_unsigned);
    let mut script = area.script();
    script.call(libc::SYS_socket, [family.into(), kind.into(), protocol.into()]);
    let results = seat.run(area, &script)?.results;
    let number = expect(pid, "open a socket that tells of its sockets", results[0])?;
    let process = identity::open_process(pid).map_err(Error::io("open a process"));
    let taken = process.and_then(|process| {
        let taken = identity::descriptor_of(&process, half(number));
        taken.map_err(Error::io("take a socket that tells of others"))
    });
    let mut script = area.script();
    script.call(libc::SYS_close, [number]);
    seat.run(area, &script)?;
    taken
}
