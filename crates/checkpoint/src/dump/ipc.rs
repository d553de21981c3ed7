//! System V IPC: all of the namespace that the processes have to themselves. The first of them looks.
//!
//! A namespace that is ours too is not the processes'. Nothing of it is written down then, and its memory is refused
//! where it is mapped.

use std::collections::BTreeSet;
use std::os::unix::fs::FileExt;

use inject::{Area, Seat};

use super::answer::expect;
use super::pages::{Pages, put_written};
use crate::borrow::borrow;
use crate::error::Error;
use crate::freeze::Frozen;
use crate::ipc_calls::{
    GROUP, KEY, Kind, MODE, QUEUE_COUNT, QUEUE_LIMIT, REMOVED, RIGHTS, SEGMENT_BYTES,
    SEMAPHORE_COUNT, STRUCTURE_BYTES, USER,
};
use crate::limits::{
    MAX_IPC, MAX_MESSAGE_BYTES, MAX_MESSAGES, MAX_SEMAPHORES, PAGE_BYTES, PIECE_BYTES,
};
use crate::proc;
use crate::state::{Bytes, Ipc, IpcName, Message, MessageQueue, Owner, Segment, Semaphores};

/// `MSG_COPY`: the message at a place, which stays there.
const COPY: i32 = 0o40000;
/// `GETALL`.
const GET_ALL: i32 = 13;

/// Who is asked.
pub(super) struct Asked<'a> {
    pub pid: u32,
    pub seat: &'a Seat,
    pub area: &'a Area,
}

/// What the namespace has; none if it is ours too.
pub(super) fn dump(frozen: &Frozen, pages: &mut impl Pages) -> Result<Option<Ipc>, Error> {
    let Some(&pid) = frozen.roots.first() else { return Ok(None) };
    if proc::link(pid, "ns/ipc")? == proc::link(std::process::id(), "ns/ipc")? {
        return Ok(None);
    }
    borrow(pid, |seat, area| Asked { pid, seat, area }.all(pages)).map(Some)
}

/// A word of 32 bits in a structure.
fn half(structure: &[u8], at: usize) -> u32 {
    let bytes = structure.get(at..).and_then(|rest| rest.first_chunk());
    bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

fn word(structure: &[u8], at: usize) -> u64 {
    u64::from(half(structure, at)) | u64::from(half(structure, at + 4)) << 32
}

impl Asked<'_> {
    fn all(&self, pages: &mut impl Pages) -> Result<Ipc, Error> {
        let mut ipc = Ipc::default();
        for (id, structure) in self.list(Kind::Segment)? {
            let segment = Segment {
                name: name(id, &structure),
                bytes: word(&structure, SEGMENT_BYTES),
                removed: half(&structure, MODE) & REMOVED != 0,
            };
            let place = u32::try_from(ipc.segments.len()).unwrap_or(u32::MAX);
            self.content(&segment, Owner::Segment(place), pages)?;
            ipc.segments.push(segment);
        }
        for (id, structure) in self.list(Kind::Semaphores)? {
            let count = word(&structure, SEMAPHORE_COUNT) as usize;
            let values = self.values(id, count)?;
            ipc.semaphores.push(Semaphores { name: name(id, &structure), values });
        }
        for (id, structure) in self.list(Kind::Queue)? {
            let messages = self.messages(id, word(&structure, QUEUE_COUNT))?;
            let limit = word(&structure, QUEUE_LIMIT);
            ipc.queues.push(MessageQueue { name: name(id, &structure), limit, messages });
        }
        Ok(ipc)
    }

    /// All of a kind: numbers and structures, by the numbers.
    fn list(&self, kind: Kind) -> Result<Vec<(u32, Vec<u8>)>, Error> {
        let mut script = self.area.script();
        let room = script.room(STRUCTURE_BYTES);
        let (number, arguments) = kind.control(0, kind.highest(), room);
        script.call(number, arguments);
        let highest = self.run(&script)?[0];
        let highest = expect(self.pid, "look at its System V IPC", highest)?;
        let mut found = Vec::new();
        for first in (0..=highest.min(MAX_IPC as u64)).step_by(64) {
            let mut script = self.area.script();
            let mut rooms = Vec::new();
            for place in first..=highest.min(first + 63) {
                let room = script.room(STRUCTURE_BYTES);
                let (number, arguments) = kind.control(place, kind.look(), room);
                script.call(number, arguments);
                rooms.push(room);
            }
            for (result, room) in self.run(&script)?.into_iter().zip(rooms) {
                // A place may be free.
                let Ok(id) = u32::try_from(result) else { continue };
                found.push((id, self.read(room, STRUCTURE_BYTES)?));
            }
        }
        found.sort_unstable();
        match found.len() <= MAX_IPC {
            true => Ok(found),
            false => Err(Error::Host(format!("its namespace has more than {MAX_IPC} of a kind"))),
        }
    }

    pub fn run(&self, script: &inject::Script) -> Result<Vec<i64>, Error> {
        Ok(self.seat.run(self.area, script)?.results)
    }

    fn read(&self, at: u64, bytes: usize) -> Result<Vec<u8>, Error> {
        let mut read = vec![0; bytes];
        let result = self.area.memory().read_exact_at(&mut read, at);
        result.map_err(Error::io("read an answer"))?;
        Ok(read)
    }

    /// What is in a segment: it is attached for a moment.
    fn content(
        &self,
        segment: &Segment,
        owner: Owner,
        pages: &mut impl Pages,
    ) -> Result<(), Error> {
        let id = segment.name.id;
        let mut script = self.area.script();
        let read_only = libc::SHM_RDONLY.cast_unsigned().into();
        script.call(libc::SYS_shmat, [id.into(), 0, read_only]);
        let start = self.run(&script)?[0];
        let start = expect(self.pid, &format!("attach the System V memory {id}"), start)?;
        let mut at = 0;
        let mut result = Ok(());
        while at < segment.bytes && result.is_ok() {
            let rest = (segment.bytes - at).next_multiple_of(PAGE_BYTES);
            let bytes = usize::try_from(rest).unwrap_or(PIECE_BYTES).min(PIECE_BYTES);
            result = self
                .read(start + at, bytes)
                .and_then(|bytes| put_written(&bytes, owner, at, pages));
            at += bytes as u64;
        }
        let mut script = self.area.script();
        script.call(libc::SYS_shmdt, [start]);
        self.run(&script)?;
        result
    }

    /// The values of a set of semaphores.
    pub fn values(&self, id: u32, count: usize) -> Result<Vec<u16>, Error> {
        if count > MAX_SEMAPHORES {
            return Err(Error::unsupported(self.pid, format!("has {count} semaphores in one set")));
        }
        let mut script = self.area.script();
        let room = script.room(2 * count);
        let (number, arguments) = Kind::Semaphores.control(id.into(), GET_ALL, room);
        script.call(number, arguments);
        let result = self.run(&script)?[0];
        expect(self.pid, &format!("read the semaphores {id}"), result)?;
        let bytes = self.read(room, 2 * count)?;
        Ok(bytes.as_chunks::<2>().0.iter().map(|bytes| u16::from_le_bytes(*bytes)).collect())
    }

    fn messages(&self, id: u32, count: u64) -> Result<Vec<Message>, Error> {
        if count > MAX_MESSAGES as u64 {
            return Err(Error::unsupported(self.pid, format!("has {count} messages in one queue")));
        }
        let mut messages = Vec::new();
        for place in 0..count {
            let mut script = self.area.script();
            let room = script.room(8 + MAX_MESSAGE_BYTES);
            let flags = (COPY | libc::IPC_NOWAIT).cast_unsigned().into();
            let most = MAX_MESSAGE_BYTES as u64;
            script.call(libc::SYS_msgrcv, [id.into(), room, most, place, flags]);
            let result = self.run(&script)?[0];
            let bytes = expect(self.pid, &format!("read the message queue {id}"), result)?;
            let bytes = self.read(room, 8 + bytes as usize)?;
            let kind = word(&bytes, 0).cast_signed();
            messages.push(Message { kind, bytes: Bytes(bytes[8..].to_vec()) });
        }
        Ok(messages)
    }
}

fn name(id: u32, structure: &[u8]) -> IpcName {
    IpcName {
        id,
        key: half(structure, KEY),
        user: half(structure, USER),
        group: half(structure, GROUP),
        mode: half(structure, MODE) & RIGHTS,
    }
}

/// The numbers of the segments.
pub(super) fn numbers(ipc: Option<&Ipc>) -> BTreeSet<u32> {
    ipc.into_iter().flat_map(|ipc| &ipc.segments).map(|segment| segment.name.id).collect()
}
