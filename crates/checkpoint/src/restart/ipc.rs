//! System V IPC: the seed makes it, in the IPC namespace that it has in common with the processes.

use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;

use inject::{Area, Seat};

use super::plan::Plan;
use crate::error::Error;
use crate::image::Image;
use crate::ipc_calls::{GROUP, Kind, MODE, QUEUE_LIMIT, STRUCTURE_BYTES, UNDONE, USER, operation};
use crate::limits::PAGE_BYTES;
use crate::proc;
use crate::state::{Ipc, IpcName, Mapping, MessageQueue, Owner, Process, Segment, Source, Undo};

/// How something is made: only if it is new, for its owner.
const NEW: u64 = 0o3600;
/// `SETALL`.
const SET_ALL: i32 = 17;

/// What was made.
pub(super) type Made = Vec<(Kind, u32)>;

/// Make all, with what is in it. Where that fails, nothing of it is left.
pub(super) fn make(seat: &Seat, area: &Area, image: &Image) -> Result<Made, Error> {
    let mut made = Made::new();
    let result = match &image.state().ipc {
        Some(ipc) if !is_empty(ipc) => make_all(seat, area, image, ipc, &mut made),
        _ => Ok(()),
    };
    if result.is_err() {
        remove(seat, area, &made);
    }
    result.map(|()| made)
}

fn make_all(
    seat: &Seat,
    area: &Area,
    image: &Image,
    ipc: &Ipc,
    made: &mut Made,
) -> Result<(), Error> {
    if proc::link(seat.task(), "ns/ipc")? == proc::link(std::process::id(), "ns/ipc")? {
        let what = "its System V IPC needs an IPC namespace of its own";
        return Err(Error::Host(what.to_owned()));
    }
    let seed = Seed { seat, area };
    for (place, segment) in ipc.segments.iter().enumerate() {
        let (key, bytes) = (segment.name.key.into(), segment.bytes);
        seed.create(Kind::Segment, &segment.name, libc::SYS_shmget, [key, bytes, NEW])?;
        made.push((Kind::Segment, segment.name.id));
        seed.fill(segment, Owner::Segment(u32::try_from(place).unwrap_or(u32::MAX)), image)?;
        seed.own(Kind::Segment, &segment.name, 0)?;
    }
    for set in &ipc.semaphores {
        let arguments = [set.name.key.into(), set.values.len() as u64, NEW];
        seed.create(Kind::Semaphores, &set.name, libc::SYS_semget, arguments)?;
        made.push((Kind::Semaphores, set.name.id));
        let values: Vec<u8> = set.values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let mut plan = Plan::new(0, seat, area);
        let values = plan.data(&values);
        let (number, arguments) = Kind::Semaphores.control(set.name.id.into(), SET_ALL, values);
        plan.must("set semaphores", number, arguments);
        plan.run()?;
        seed.own(Kind::Semaphores, &set.name, 0)?;
    }
    for queue in &ipc.queues {
        seed.create(Kind::Queue, &queue.name, libc::SYS_msgget, [queue.name.key.into(), NEW])?;
        made.push((Kind::Queue, queue.name.id));
        seed.own(Kind::Queue, &IpcName { mode: 0o600, ..queue.name.clone() }, queue.limit)?;
        seed.send(queue)?;
        seed.own(Kind::Queue, &queue.name, queue.limit)?;
    }
    Ok(())
}

fn is_empty(ipc: &Ipc) -> bool {
    ipc.segments.is_empty() && ipc.semaphores.is_empty() && ipc.queues.is_empty()
}

/// What is there only as long as somebody is attached to it.
pub(super) fn removed(image: &Image) -> Made {
    let segments = image.state().ipc.iter().flat_map(|ipc| &ipc.segments);
    let removed = segments.filter(|segment| segment.removed);
    removed.map(|segment| (Kind::Segment, segment.name.id)).collect()
}

/// Remove what was made.
pub(super) fn remove(seat: &Seat, area: &Area, made: &Made) {
    let mut plan = Plan::new(0, seat, area);
    for (kind, id) in made {
        let (number, arguments) = kind.control((*id).into(), libc::IPC_RMID, 0);
        plan.may(number, arguments);
        if plan.flush_if_full().is_err() {
            return;
        }
    }
    let _ = plan.run();
}

struct Seed<'a> {
    seat: &'a Seat,
    area: &'a Area,
}

impl Seed<'_> {
    fn call<const N: usize>(
        &self,
        purpose: String,
        number: i64,
        arguments: [u64; N],
    ) -> Result<u64, Error> {
        let mut plan = Plan::new(0, self.seat, self.area);
        plan.must(purpose, number, arguments);
        Ok(plan.run()?.results.first().copied().unwrap_or(-1).cast_unsigned())
    }

    /// Make one that has its number.
    fn create<const N: usize>(
        &self,
        kind: Kind,
        name: &IpcName,
        number: i64,
        arguments: [u64; N],
    ) -> Result<(), Error> {
        let mut plan = Plan::new(0, self.seat, self.area);
        let here = i64::from(libc::AT_FDCWD).cast_unsigned();
        let path = plan.string(kind.next_path());
        let flags = (libc::O_WRONLY | libc::O_CLOEXEC).cast_unsigned().into();
        let purpose = format!("open {}", kind.next_path());
        plan.must(purpose, libc::SYS_openat, [here, path, flags, 0]);
        let file = plan.run()?.results.first().copied().unwrap_or(-1).cast_unsigned();
        let mut plan = Plan::new(0, self.seat, self.area);
        let text = name.id.to_string();
        let bytes = plan.data(text.as_bytes());
        let purpose = format!("choose the number {text} of System V IPC");
        plan.must(purpose, libc::SYS_write, [file, bytes, text.len() as u64]);
        plan.may(libc::SYS_close, [file]);
        let what = format!("make System V IPC with the key {:#x}", name.key);
        plan.must(what, number, arguments);
        let made = plan.run()?.results.last().copied().unwrap_or(-1);
        match u32::try_from(made) == Ok(name.id) {
            true => Ok(()),
            false => {
                let (number, arguments) = kind.control(made.cast_unsigned(), libc::IPC_RMID, 0);
                self.call("remove System V IPC".to_owned(), number, arguments)?;
                Err(Error::Host(format!("the number {} of System V IPC is in use", name.id)))
            }
        }
    }

    /// Give it to whom it belongs.
    fn own(&self, kind: Kind, name: &IpcName, limit: u64) -> Result<(), Error> {
        let mut structure = [0; STRUCTURE_BYTES];
        for (at, value) in [(USER, name.user), (GROUP, name.group), (MODE, name.mode)] {
            structure[at..at + 4].copy_from_slice(&value.to_le_bytes());
        }
        if kind == Kind::Queue {
            structure[QUEUE_LIMIT..QUEUE_LIMIT + 8].copy_from_slice(&limit.to_le_bytes());
        }
        let mut plan = Plan::new(0, self.seat, self.area);
        let structure = plan.data(&structure);
        let (number, arguments) = kind.control(name.id.into(), libc::IPC_SET, structure);
        plan.must(format!("set the rights of System V IPC {}", name.id), number, arguments);
        plan.run().map(drop)
    }

    fn fill(&self, segment: &Segment, owner: Owner, image: &Image) -> Result<(), Error> {
        let id = segment.name.id;
        let what = format!("attach the System V memory {id}");
        let start = self.call(what, libc::SYS_shmat, [id.into(), 0, 0])?;
        let mut result = Ok(());
        for pages in image.pages_of(owner) {
            result = pages.and_then(|(run, bytes)| {
                let written = self.area.memory().write_all_at(&bytes, start + run.address);
                written.map_err(Error::io("fill System V memory"))
            });
            if result.is_err() {
                break;
            }
        }
        self.call("leave System V memory".to_owned(), libc::SYS_shmdt, [start])?;
        result
    }

    fn send(&self, queue: &MessageQueue) -> Result<(), Error> {
        for message in &queue.messages {
            let mut plan = Plan::new(0, self.seat, self.area);
            let bytes = [message.kind.to_le_bytes().as_slice(), &message.bytes].concat();
            let (bytes, length) = (plan.data(&bytes), message.bytes.len() as u64);
            let flags = libc::IPC_NOWAIT.cast_unsigned().into();
            let arguments = [queue.name.id.into(), bytes, length, flags];
            let purpose = format!("fill the message queue {}", queue.name.id);
            plan.must(purpose, libc::SYS_msgsnd, arguments);
            plan.run()?;
        }
        Ok(())
    }
}

/// Attach a process to its segments. Each is attached as a whole, and what is not mapped any more is taken away; before
/// anything else is mapped, so that there is room.
pub(super) fn attach<'a>(
    plan: &mut Plan<'_>,
    mappings: impl Iterator<Item = &'a Mapping>,
    ipc: Option<&Ipc>,
) -> Result<(), Error> {
    // By number, first address of all, and whether it may be written to: which parts are still there.
    let mut attached: BTreeMap<(u32, u64, bool), Vec<&Mapping>> = BTreeMap::new();
    for mapping in mappings {
        if let Source::Segment { id, offset, writable } = mapping.source {
            let base = mapping.start.wrapping_sub(offset);
            attached.entry((id, base, writable)).or_default().push(mapping);
        }
    }
    for ((id, base, writable), parts) in attached {
        let mut segments = ipc.into_iter().flat_map(|ipc| &ipc.segments);
        let Some(segment) = segments.find(|segment| segment.name.id == id) else { continue };
        let (flags, usual) = if writable { (0, 3) } else { (libc::SHM_RDONLY, 1) };
        let flags = flags.cast_unsigned().into();
        let purpose = format!("attach the System V memory {id} at {base:#x}");
        plan.must(purpose, libc::SYS_shmat, [id.into(), base, flags]);
        let end = base.saturating_add(segment.bytes.next_multiple_of(PAGE_BYTES));
        let mut at = base;
        for part in parts {
            let (start, bytes) = (part.start, part.end - part.start);
            if start > at {
                plan.must("leave System V memory", libc::SYS_munmap, [at, start - at]);
            }
            if part.protection != usual {
                let arguments = [start, bytes, part.protection.into()];
                plan.must("protect System V memory", libc::SYS_mprotect, arguments);
            }
            at = part.end;
            plan.flush_if_full()?;
        }
        if at < end {
            plan.must("leave System V memory", libc::SYS_munmap, [at, end - at]);
        }
        plan.flush_if_full()?;
    }
    Ok(())
}

/// Have what the end of a process changes of semaphores changed by its end. Their values stay what they are.
pub(super) fn undo(plan: &mut Plan<'_>, process: &Process) -> Result<(), Error> {
    for Undo { id, place, change } in &process.undo {
        // First what its end will do, for which there is room; then the opposite.
        for (change, flags) in [(*change, 0), (-*change, UNDONE)] {
            let operation = plan.data(&operation(*place, change, flags));
            plan.must("hold a semaphore", libc::SYS_semop, [(*id).into(), operation, 1]);
        }
        plan.flush_if_full()?;
    }
    Ok(())
}
