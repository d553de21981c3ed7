//! The seed opens every file, at a high number; each process takes what is its own.

use std::fs;
use std::os::fd::OwnedFd;

use host::processes::identity;
use inject::{Area, Seat};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::pipe::fcntl_setpipe_size;

use super::plan::Plan;
use crate::error::Error;
use crate::limits::MAX_PIPE_BYTES;
use crate::proc;
use crate::state::{Description, Descriptor, OpenFile, Pipe, State};

/// Flags of an open file that F_GETFL says and that openat(2) would take for something else.
const NOT_OPENED_WITH: i32 = libc::O_CREAT | libc::O_EXCL | libc::O_TRUNC | libc::O_CLOEXEC;
/// Descriptions that are opened at once.
const AT_ONCE: usize = 64;

/// Where the descriptions are: the first at `base`, the others behind it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Opened {
    pub base: u64,
    count: u64,
}

/// Open everything, in the seed.
pub(super) fn open(seat: &Seat, area: &Area, state: &State) -> Result<Opened, Error> {
    let own = proc::numbers(seat.task(), "fd")?.last().map_or(0, |number| number + 1);
    let all = state.processes.iter().flat_map(|process| &process.descriptors);
    let highest = all.map(|descriptor| descriptor.number + 1).max().unwrap_or(0);
    let opened = Opened { base: own.max(highest).into(), count: state.descriptions.len() as u64 };
    let pipes = pipes(seat, area, &state.pipes)?;
    let indexed: Vec<_> = state.descriptions.iter().enumerate().collect();
    for some in indexed.chunks(AT_ONCE) {
        describe(seat, area, opened, some, &pipes)?;
    }
    let mut plan = Plan::new(0, seat, area);
    for end in pipes.iter().flatten() {
        plan.may(libc::SYS_close, [(*end).into()]);
        plan.flush_if_full()?;
    }
    plan.run()?;
    Ok(opened)
}

/// Close everything, in the seed.
pub(super) fn close(seat: &Seat, area: &Area, opened: Opened) -> Result<(), Error> {
    let mut plan = Plan::new(0, seat, area);
    if opened.count > 0 {
        let last = opened.base + opened.count - 1;
        plan.may(libc::SYS_close_range, [opened.base, last, 0]);
    }
    plan.run().map(drop)
}

/// Make the pipes and what is in them; the seed's descriptors of their ends.
fn pipes(seat: &Seat, area: &Area, pipes: &[Pipe]) -> Result<Vec<[u32; 2]>, Error> {
    let process = identity::open_process(seat.task()).map_err(Error::io("open the seed"))?;
    let mut made = Vec::new();
    for pipe in pipes {
        let mut plan = Plan::new(0, seat, area);
        let room = plan.words(&[0]);
        plan.must("make a pipe", libc::SYS_pipe2, [room, 0]);
        plan.run()?;
        let mut bytes = [0; 8];
        std::os::unix::fs::FileExt::read_exact_at(area.memory(), &mut bytes, room)
            .map_err(Error::io("read an answer"))?;
        let ends = [0, 4].map(|at| u32::from_le_bytes(std::array::from_fn(|n| bytes[at + n])));
        let write = identity::descriptor_of(&process, ends[1]);
        fill(write.map_err(Error::io("take a pipe"))?, pipe)?;
        made.push(ends);
    }
    Ok(made)
}

fn fill(write: OwnedFd, pipe: &Pipe) -> Result<(), Error> {
    let io = |error: rustix::io::Errno| Error::Io {
        what: "make a pipe as it was".to_owned(),
        source: error.into(),
    };
    let capacity = usize::try_from(pipe.capacity).unwrap_or(usize::MAX).min(MAX_PIPE_BYTES);
    if rustix::pipe::fcntl_getpipe_size(&write).map_err(io)? != capacity {
        fcntl_setpipe_size(&write, capacity).map_err(io)?;
    }
    fcntl_setfl(&write, OFlags::NONBLOCK).map_err(io)?;
    let mut rest = &*pipe.content;
    while !rest.is_empty() {
        let written = rustix::io::write(&write, rest).map_err(io)?;
        rest = rest.get(written..).unwrap_or_default();
    }
    fcntl_setfl(&write, OFlags::empty()).map_err(io)
}

/// Open some descriptions and put each at its number.
fn describe(
    seat: &Seat,
    area: &Area,
    opened: Opened,
    some: &[(usize, &Description)],
    pipes: &[[u32; 2]],
) -> Result<(), Error> {
    let here = i64::from(libc::AT_FDCWD).cast_unsigned();
    let mut plan = Plan::new(0, seat, area);
    let mut indexes = Vec::new();
    for (index, description) in some {
        let flags = description.flags & !NOT_OPENED_WITH.cast_unsigned();
        let (path, purpose) = match &description.file {
            OpenFile::Path { path, .. } => (path.clone(), path.clone()),
            OpenFile::Pipe { index, writes } => {
                let end = pipes[*index][usize::from(*writes)];
                (format!("/proc/self/fd/{end}"), "a pipe".to_owned())
            }
            OpenFile::Counter { semaphore, .. } => {
                let flags =
                    u64::from(flags & libc::O_NONBLOCK.cast_unsigned()) | u64::from(*semaphore);
                plan.must("make a counter", libc::SYS_eventfd2, [0, flags]);
                indexes.push(*index);
                continue;
            }
            OpenFile::Object { .. } | OpenFile::Slot { .. } => continue,
        };
        let name = plan.string(&path);
        plan.must(format!("open {purpose}"), libc::SYS_openat, [here, name, flags.into(), 0]);
        indexes.push(*index);
        if plan.is_full() {
            place(seat, area, opened, plan.run()?.results, &std::mem::take(&mut indexes))?;
            plan = Plan::new(0, seat, area);
        }
    }
    place(seat, area, opened, plan.run()?.results, &indexes)?;
    positions(seat, area, opened, some)
}

fn place(
    seat: &Seat,
    area: &Area,
    opened: Opened,
    results: Vec<i64>,
    indexes: &[usize],
) -> Result<(), Error> {
    let mut plan = Plan::new(0, seat, area);
    for (result, index) in results.into_iter().zip(indexes) {
        let (low, number) = (result.cast_unsigned(), opened.base + *index as u64);
        // It may be there already, where the lowest free number is that very one.
        if low != number {
            plan.must("place a file", libc::SYS_dup2, [low, number]);
            plan.must("place a file", libc::SYS_close, [low]);
        }
    }
    plan.run().map(drop)
}

fn positions(
    seat: &Seat,
    area: &Area,
    opened: Opened,
    some: &[(usize, &Description)],
) -> Result<(), Error> {
    let process = identity::open_process(seat.task()).map_err(Error::io("open the seed"))?;
    let mut plan = Plan::new(0, seat, area);
    for (index, description) in some {
        let number = opened.base + *index as u64;
        match &description.file {
            OpenFile::Path { path, position } if *position > 0 => {
                let set = libc::SEEK_SET.cast_unsigned().into();
                plan.must(
                    format!("find the place in {path}"),
                    libc::SYS_lseek,
                    [number, *position, set],
                );
            }
            OpenFile::Counter { value, .. } if *value > 0 => {
                let counter = identity::descriptor_of(&process, u32::try_from(number).unwrap_or(0));
                let counter = counter.map_err(Error::io("take a counter"))?;
                let written = rustix::io::write(&counter, &value.to_ne_bytes());
                written.map_err(|error| Error::io("set a counter")(error.into()))?;
            }
            _ => {}
        }
    }
    plan.run().map(drop)
}

/// Take the descriptors of a process, and close all others.
pub(super) fn take(
    plan: &mut Plan<'_>,
    descriptors: &[Descriptor],
    opened: Opened,
) -> Result<(), Error> {
    for descriptor in descriptors {
        let flags = if descriptor.close_on_exec { libc::O_CLOEXEC } else { 0 };
        let from = opened.base + descriptor.description as u64;
        let arguments = [from, descriptor.number.into(), flags.cast_unsigned().into()];
        plan.must("take a descriptor", libc::SYS_dup3, arguments);
        plan.flush_if_full()?;
    }
    plan.may(libc::SYS_close_range, [opened.base, u32::MAX.into(), 0]);
    Ok(())
}

/// Whether the seed sees itself in /proc, which pipes need.
pub(super) fn check_proc(task: u32, state: &State) -> Result<(), Error> {
    let is_there = fs::exists(format!("/proc/{task}/root/proc/filesystems")).unwrap_or(false);
    match is_there || state.pipes.is_empty() {
        true => Ok(()),
        false => Err(Error::Host("/proc is not mounted where it is to go on".to_owned())),
    }
}
