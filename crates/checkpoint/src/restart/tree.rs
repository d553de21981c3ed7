//! The order in which processes come into being.
//!
//! A process gets its memory before it bears children, and they are born in the session that they are to be in: those
//! that stay in the older one before their parent makes its own, the others after. Groups are joined when all
//! are there, leaders first; then those that have ended end; then each of the others takes the rest.

use std::collections::{BTreeMap, BTreeSet};

use inject::{Area, Seat, Trap};

use super::birth::clone;
use super::opened::Opened;
use super::plan::Plan;
use super::{
    Made, Restarted, Seed, files, ipc, memory, notifications, posix_queues, process, task,
    terminals, vdso,
};
use crate::error::Error;
use crate::image::Image;
use crate::slots::Given;
use crate::state::{Process, State};

/// What threads of a process share.
const THREAD_FLAGS: i32 = libc::CLONE_VM
    | libc::CLONE_FS
    | libc::CLONE_FILES
    | libc::CLONE_SIGHAND
    | libc::CLONE_THREAD
    | libc::CLONE_SYSVSEM;

pub(super) fn make(
    seed: &Seed,
    image: &Image,
    given: &Given<'_>,
    restarted: &mut Restarted,
) -> Result<(), Error> {
    let (seat, area, state) = (&seed.seat, &seed.area, image.state());
    files::check_proc(seat.task(), state)?;
    let made = ipc::make(seat, area, image)?;
    let result = posix_queues::make(seat, area, state).and_then(|()| {
        let result = make_all(seed, image, given, restarted);
        posix_queues::forget(seat, area, state, result.is_err());
        result
    });
    // System V IPC would stay where nobody is; and some of it stays only as long as somebody is there.
    let removed = if result.is_ok() { ipc::removed(image) } else { made };
    ipc::remove(seat, area, &removed);
    result
}

fn make_all(
    seed: &Seed,
    image: &Image,
    given: &Given<'_>,
    restarted: &mut Restarted,
) -> Result<(), Error> {
    let state = image.state();
    let before = crate::proc::numbers(seed.seat.task(), "fd")?;
    let other = vdso::find(seed.seat.task(), image)?;
    let opened = files::open(&seed.seat, &seed.area, image, (given, restarted));
    let made = opened.and_then(|opened| {
        processes(seed, image, (opened, other.as_ref()), restarted)?;
        Ok(opened)
    });
    // Whatever has come of it, the seed keeps nothing.
    let closed = files::close(&seed.seat, &seed.area, &before);
    let opened = made?;
    closed?;
    groups(state, restarted)?;
    foreground(state, opened, restarted)?;
    ended(state, restarted)?;
    for process in living(state) {
        threads(process, restarted)?;
    }
    for process in living(state) {
        let made = found(restarted, process.pid)?;
        process::complete(made, process, state, opened)?;
    }
    for process in living(state) {
        notifications::forget(found(restarted, process.pid)?, process, state)?;
    }
    // Children first: a parent forgets last what it has heard of its children meanwhile.
    for process in state.processes.iter().rev().filter(|process| process.ended.is_none()) {
        let made = found_mut(restarted, process.pid)?;
        process::finish(made, process)?;
    }
    Ok(())
}

fn living(state: &State) -> impl Iterator<Item = &Process> {
    state.processes.iter().filter(|process| process.ended.is_none())
}

fn found(restarted: &Restarted, pid: u32) -> Result<&Made, Error> {
    restarted.made.get(&pid).ok_or(Error::Gone(pid))
}

fn found_mut(restarted: &mut Restarted, pid: u32) -> Result<&mut Made, Error> {
    restarted.made.get_mut(&pid).ok_or(Error::Gone(pid))
}

/// Bear all processes, with their memory and in their sessions.
fn processes(
    seed: &Seed,
    image: &Image,
    (opened, other): (Opened, Option<&vdso::Other>),
    restarted: &mut Restarted,
) -> Result<(), Error> {
    let state = image.state();
    for process in state.processes.iter().filter(|process| process.parent == 0) {
        bear(&seed.seat, &seed.area, process, restarted)?;
    }
    let mut memories = BTreeMap::new();
    for process in living(state) {
        let made = found(restarted, process.pid)?;
        if process.parent == 0 {
            let mut plan = Plan::new(process.pid, &made.seat, &made.area);
            if let Some(last) = opened.base.checked_sub(1) {
                plan.must("close the seed's files", libc::SYS_close_range, [0, last, 0]);
            }
            plan.run()?;
        }
        let parent = memories.get(&process.parent).map(|memory| (process.parent, *memory));
        memory::make(made, &process.memory, parent, image, (opened, other))?;
        memories.insert(process.pid, &process.memory);
        children(process, state, opened, restarted)?;
    }
    Ok(())
}

fn children(
    parent: &Process,
    state: &State,
    opened: Opened,
    restarted: &mut Restarted,
) -> Result<(), Error> {
    let inside = in_session(parent, state);
    let all = || state.processes.iter().filter(|process| process.parent == parent.pid);
    let bear_some = |is_inside: bool, restarted: &mut Restarted| {
        for child in all().filter(|child| inside.contains(&child.pid) == is_inside) {
            // The parent is borrowed apart from those that come to it.
            let made = restarted.made.remove(&parent.pid).ok_or(Error::Gone(parent.pid))?;
            let result = bear(&made.seat, &made.area, child, restarted);
            restarted.made.insert(parent.pid, made);
            result?;
        }
        Ok::<(), Error>(())
    };
    bear_some(false, restarted)?;
    if parent.session == parent.pid {
        let made = found(restarted, parent.pid)?;
        let mut plan = Plan::new(parent.pid, &made.seat, &made.area);
        plan.must("make its session", libc::SYS_setsid, []);
        terminals::control(&mut plan, state, parent, opened);
        plan.run()?;
    }
    bear_some(true, restarted)
}

/// The descendants of a process that leads a session, in branches in which somebody belongs to it.
fn in_session(leader: &Process, state: &State) -> BTreeSet<u32> {
    let mut inside = BTreeSet::new();
    if leader.session != leader.pid {
        return inside;
    }
    for process in state.processes.iter().rev() {
        if process.session == leader.pid || inside.contains(&process.pid) {
            inside.insert(process.pid);
            inside.insert(process.parent);
        }
    }
    inside
}

/// One process bears another, which is stopped from its first moment.
fn bear(
    parent: &Seat,
    area: &Area,
    process: &Process,
    restarted: &mut Restarted,
) -> Result<(), Error> {
    let task = clone(parent, area, process.pid, (0, process.exit_signal), restarted)?;
    let seat = Seat::take(task, unavailable(process)?)?;
    let area = Area::attach(task, area.base(), false)?;
    let made = Made { pid: process.pid, seat, area, threads: Vec::new() };
    restarted.made.insert(process.pid, made);
    Ok(())
}

/// Signals that cannot end the scripts of a process: those that it will ignore, and those that will wait.
fn unavailable(process: &Process) -> Result<u64, Error> {
    let ignored = process.actions.iter().filter(|action| action.handler == libc::SIG_IGN as u64);
    let ignored = ignored.map(|action| action.signal);
    let threads = process.threads.iter().flat_map(|thread| &thread.pending);
    let waiting = process
        .pending
        .iter()
        .chain(threads)
        .filter_map(|signal| Some(u32::from_le_bytes(*signal.first_chunk()?)));
    let mask = ignored.chain(waiting).filter(|signal| (1..=64).contains(signal));
    let mask = mask.fold(0, |mask, signal| mask | 1 << (signal - 1));
    match Trap::choose(mask) {
        Some(_) => Ok(mask),
        None => Err(inject::Error::NoTrap(process.pid).into()),
    }
}

/// Bear the other threads of a process.
fn threads(process: &Process, restarted: &mut Restarted) -> Result<(), Error> {
    let mut made = restarted.made.remove(&process.pid).ok_or(Error::Gone(process.pid))?;
    let result = process.threads.iter().skip(1).try_for_each(|thread| {
        let task = clone(&made.seat, &made.area, thread.tid, (THREAD_FLAGS, 0), restarted)?;
        made.threads.push(Seat::take(task, unavailable(process)?)?);
        Ok(())
    });
    restarted.made.insert(process.pid, made);
    result
}

/// Join process groups, leaders first.
fn groups(state: &State, restarted: &Restarted) -> Result<(), Error> {
    let joins = |process: &&Process| process.group != 0 && process.session != process.pid;
    let leads = |process: &Process| process.group == process.pid;
    let all = || state.processes.iter().filter(joins);
    for process in all().filter(|one| leads(one)).chain(all().filter(|one| !leads(one))) {
        let made = found(restarted, process.pid)?;
        let mut plan = Plan::new(process.pid, &made.seat, &made.area);
        plan.must("join its process group", libc::SYS_setpgid, [0, process.group.into()]);
        plan.run()?;
    }
    Ok(())
}

/// Say which groups are in the foreground of their terminals.
fn foreground(state: &State, opened: Opened, restarted: &Restarted) -> Result<(), Error> {
    for process in living(state).filter(|process| process.session == process.pid) {
        let made = found(restarted, process.pid)?;
        let mut plan = Plan::new(process.pid, &made.seat, &made.area);
        terminals::foreground(&mut plan, state, process, opened);
        plan.run()?;
    }
    Ok(())
}

/// End those that have ended.
fn ended(state: &State, restarted: &mut Restarted) -> Result<(), Error> {
    // Children first, so that none becomes somebody else's.
    for process in state.processes.iter().rev() {
        let Some(status) = process.ended else { continue };
        let made = restarted.made.remove(&process.pid).ok_or(Error::Gone(process.pid))?;
        task::end(&made, status)?;
        restarted.tasks.retain(|task| *task != made.seat.task());
    }
    Ok(())
}
