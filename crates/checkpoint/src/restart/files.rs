//! The seed opens every file, at a high number; each process takes what is its own.

use std::collections::BTreeMap;
use std::fs;

use host::processes::identity;
use inject::{Area, Seat};

use super::opened::{Opened, fill, move_to, opened_with};
use super::plan::Plan;
use super::sockets::{self, Sockets};
use super::{
    Restarted, anonymous, locks, named_pipes, objects, pidfds, posix_queues, slots, terminals,
};
use crate::error::Error;
use crate::image::Image;
use crate::proc;
use crate::slots::Given;
use crate::state::{Description, OpenFile, Pipe, Process, State};

/// Descriptions that are opened at once.
const AT_ONCE: usize = 64;

/// What the seed has opened on the way.
struct Low<'a> {
    state: &'a State,
    /// The ends of pipes.
    pipes: Vec<[u32; 2]>,
    /// Named pipes, open to read and to write.
    named_pipes: Vec<u64>,
    terminals: Vec<terminals::Made<'a>>,
    /// What was given, by the names of slots.
    slots: BTreeMap<&'a str, u64>,
    sockets: Sockets,
}

/// Open everything, in the seed.
pub(super) fn open(
    seat: &Seat,
    area: &Area,
    image: &Image,
    (given, restarted): (&Given<'_>, &mut Restarted),
) -> Result<Opened, Error> {
    let state = image.state();
    let own = proc::numbers(seat.task(), "fd")?.last().map_or(0, |number| number + 1);
    let all = state.processes.iter().flat_map(|process| &process.descriptors);
    let highest = all.map(|descriptor| descriptor.number + 1).max().unwrap_or(0);
    // What is opened on the way has the lowest free numbers; they must not reach that far.
    let slots = slots::count(state) + 2 + sockets::count(state);
    let on_the_way = 2 * state.pipes.len() + state.objects.len() + slots + AT_ONCE;
    let on_the_way = on_the_way + state.named_pipes.len() + terminals::count(state);
    let base = u64::from(own.max(highest)) + on_the_way as u64;
    let (count, objects) = (state.descriptions.len() as u64, state.objects.len() as u64);
    let opened = Opened { base, count, objects };
    for (index, low) in objects::make(seat, area, image)?.into_iter().enumerate() {
        let mut plan = Plan::new(0, seat, area);
        move_to(&mut plan, low, opened.object(index));
        plan.run()?;
    }
    let slots = slots::give(seat, area, state, given)?;
    let given = |name: &str| slots.get(name).copied();
    let low = Low {
        state,
        terminals: terminals::make(seat, area, opened, state, given)?,
        pipes: pipes(seat, area, &state.pipes)?,
        named_pipes: named_pipes::make(seat, area, &state.named_pipes)?,
        slots,
        sockets: sockets::make(seat, area, state, restarted)?,
    };
    let indexed: Vec<_> = state.descriptions.iter().enumerate().collect();
    for some in indexed.chunks(AT_ONCE) {
        describe(seat, area, opened, some, &low)?;
    }
    low.sockets.complete(seat, area, state, (opened, restarted))?;
    let mut plan = Plan::new(0, seat, area);
    let ends = low.pipes.iter().flatten().map(|end| u64::from(*end));
    for number in ends.chain(low.sockets.lows()).chain(low.named_pipes) {
        plan.may(libc::SYS_close, [number]);
        plan.flush_if_full()?;
    }
    plan.run()?;
    terminals::finish(seat, area, opened, state, low.terminals)?;
    named_pipes::wait(seat, area, opened, state)?;
    locks::take(seat, area, opened, &state.locks)?;
    Ok(opened)
}

/// Close all of the seed's descriptors but those that it had `before`.
pub(super) fn close(seat: &Seat, area: &Area, before: &[u32]) -> Result<(), Error> {
    let mut plan = Plan::new(0, seat, area);
    for number in proc::numbers(seat.task(), "fd")? {
        if before.binary_search(&number).is_err() {
            plan.may(libc::SYS_close, [number.into()]);
            plan.flush_if_full()?;
        }
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
        let ends = slots::halves(area, room)?;
        let write = identity::descriptor_of(&process, ends[1]);
        fill(write.map_err(Error::io("take a pipe"))?, pipe.capacity, &pipe.content)?;
        made.push(ends);
    }
    Ok(made)
}

/// Open some descriptions and put each at its number.
fn describe(
    seat: &Seat,
    area: &Area,
    opened: Opened,
    some: &[(usize, &Description)],
    low: &Low<'_>,
) -> Result<(), Error> {
    let here = i64::from(libc::AT_FDCWD).cast_unsigned();
    let mut plan = Plan::new(0, seat, area);
    let mut indexes = Vec::new();
    for (index, description) in some {
        let flags = opened_with(description.flags);
        let (path, purpose) = match &description.file {
            OpenFile::Path { path, .. } => (path.clone(), path.clone()),
            OpenFile::Pipe { index, writes } => {
                let end = low.pipes[*index][usize::from(*writes)];
                (format!("/proc/self/fd/{end}"), "a pipe".to_owned())
            }
            OpenFile::Terminal { .. } | OpenFile::HungUp => {
                if terminals::open(&mut plan, &low.terminals, description) {
                    indexes.push(*index);
                }
                continue;
            }
            OpenFile::Queue { .. } => {
                posix_queues::open(&mut plan, low.state, description);
                indexes.push(*index);
                continue;
            }
            OpenFile::NamedPipe { waits: true, .. } | OpenFile::Process { .. } => continue,
            OpenFile::NamedPipe { index, .. } => {
                let number = low.named_pipes[*index];
                (format!("/proc/self/fd/{number}"), "a named pipe".to_owned())
            }
            OpenFile::Counter { .. }
            | OpenFile::Timer { .. }
            | OpenFile::Signals { .. }
            | OpenFile::Notifications { .. }
            | OpenFile::Watches { .. } => {
                anonymous::make(&mut plan, description);
                indexes.push(*index);
                continue;
            }
            OpenFile::Object { index, .. } => {
                let number = opened.object(*index);
                (format!("/proc/self/fd/{number}"), "a file without a name".to_owned())
            }
            OpenFile::Socket { index: place } => {
                plan.must("take a socket", libc::SYS_dup, [low.sockets.low(*place)]);
                indexes.push(*index);
                continue;
            }
            OpenFile::Slot { name } => {
                let file = low.slots.get(name.as_str()).copied().unwrap_or(u64::MAX);
                plan.must("take what is given", libc::SYS_dup, [file]);
                indexes.push(*index);
                continue;
            }
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
        let (low, number) = (result.cast_unsigned(), opened.description(*index));
        move_to(&mut plan, low, number);
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
        let number = opened.description(*index);
        match &description.file {
            OpenFile::Path { position, .. } | OpenFile::Object { position, .. }
                if *position > 0 =>
            {
                let set = libc::SEEK_SET.cast_unsigned().into();
                let arguments = [number, *position, set];
                plan.must("find the place in a file", libc::SYS_lseek, arguments);
            }
            OpenFile::Socket { .. } => {
                let set = libc::F_SETFL.cast_unsigned().into();
                let arguments = [number, set, description.flags.into()];
                plan.must("set the flags of a socket", libc::SYS_fcntl, arguments);
            }
            file => anonymous::set(&mut plan, &process, number, file)?,
        }
    }
    plan.run().map(drop)
}

/// Take the descriptors of a process, and close all others.
pub(super) fn take(
    plan: &mut Plan<'_>,
    process: &Process,
    state: &State,
    opened: Opened,
) -> Result<(), Error> {
    // It opens other processes itself, when all are there.
    for descriptor in process.descriptors.iter().filter(|one| !pidfds::is_one(one, state)) {
        let flags = if descriptor.close_on_exec { libc::O_CLOEXEC } else { 0 };
        let from = opened.description(descriptor.description);
        let arguments = [from, descriptor.number.into(), flags.cast_unsigned().into()];
        plan.must("take a descriptor", libc::SYS_dup3, arguments);
        plan.flush_if_full()?;
    }
    plan.may(libc::SYS_close_range, [opened.base, u32::MAX.into(), 0]);
    Ok(())
}

/// Whether the seed sees itself in /proc, which pipes and objects need.
pub(super) fn check_proc(task: u32, state: &State) -> Result<(), Error> {
    let is_there = fs::exists(format!("/proc/{task}/root/proc/filesystems")).unwrap_or(false);
    let needs_none = state.pipes.is_empty()
        && state.objects.is_empty()
        && state.named_pipes.is_empty()
        && state.ipc.is_none();
    match is_there || needs_none {
        true => Ok(()),
        false => Err(Error::Host("/proc is not mounted where it is to go on".to_owned())),
    }
}
