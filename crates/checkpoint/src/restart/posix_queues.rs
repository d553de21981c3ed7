//! POSIX message queues: the seed makes them, in the IPC namespace that it has in common with the processes, and opens
//! them for who has them open. Those that have no name any more have one until they are open.

use host::processes::identity::{descriptor_of, open_process};
use host::processes::message_queues::send;
use inject::{Area, Seat};

use super::opened::opened_with;
use super::plan::Plan;
use crate::error::Error;
use crate::proc;
use crate::state::{Description, OpenFile, PosixQueue, State};

/// Make all, with what is in them. Where that fails, nothing of it is left.
pub(super) fn make(seat: &Seat, area: &Area, state: &State) -> Result<(), Error> {
    if state.posix_queues.is_empty() {
        return Ok(());
    }
    if proc::link(seat.task(), "ns/ipc")? == proc::link(std::process::id(), "ns/ipc")? {
        let what = "its POSIX message queues need an IPC namespace of its own";
        return Err(Error::Host(what.to_owned()));
    }
    for (index, queue) in state.posix_queues.iter().enumerate() {
        if let Err(error) = make_one(seat, area, &name(state, index), queue) {
            remove(seat, area, (0..index).map(|index| name(state, index)));
            return Err(error);
        }
    }
    Ok(())
}

/// Remove all, or only those that have no name.
pub(super) fn forget(seat: &Seat, area: &Area, state: &State, all: bool) {
    let queues = state.posix_queues.iter().enumerate();
    let forgotten = queues.filter(|(_, queue)| all || queue.name.is_none());
    remove(seat, area, forgotten.map(|(index, _)| name(state, index)));
}

fn remove(seat: &Seat, area: &Area, names: impl Iterator<Item = String>) {
    let mut plan = Plan::new(0, seat, area);
    for name in names {
        let name = plan.string(&name);
        plan.may(libc::SYS_mq_unlink, [name]);
        if plan.flush_if_full().is_err() {
            return;
        }
    }
    let _ = plan.run();
}

/// The name of a queue: its own, or one that no other has.
fn name(state: &State, index: usize) -> String {
    let is_taken =
        |name: &String| state.posix_queues.iter().any(|queue| queue.name.as_ref() == Some(name));
    let own = state.posix_queues.get(index).and_then(|queue| queue.name.clone());
    own.unwrap_or_else(|| {
        let mut name = format!("removed-{index}");
        while is_taken(&name) {
            name.push('-');
        }
        name
    })
}

fn make_one(seat: &Seat, area: &Area, name: &str, queue: &PosixQueue) -> Result<(), Error> {
    let process = open_process(seat.task()).map_err(Error::io("open the seed"))?;
    let mut plan = Plan::new(0, seat, area);
    let text = plan.string(name);
    let attributes = plan.words(&[0, queue.max_messages, queue.message_bytes, 0, 0, 0, 0, 0]);
    let flags = libc::O_CREAT | libc::O_EXCL | libc::O_RDWR | libc::O_NONBLOCK;
    let arguments = [text, flags.cast_unsigned().into(), 0o600, attributes];
    plan.must(format!("make the message queue /{name}"), libc::SYS_mq_open, arguments);
    let number = plan.run()?.results.first().copied().unwrap_or(-1).cast_unsigned();
    let filled = descriptor_of(&process, u32::try_from(number).unwrap_or(u32::MAX))
        .and_then(|ours| {
            let mut messages = queue.messages.iter();
            messages.try_for_each(|(priority, message)| send(&ours, message, *priority))
        })
        .map_err(Error::io(format!("fill the message queue /{name}")));
    let mut plan = Plan::new(0, seat, area);
    let (user, group) = (queue.user.into(), queue.group.into());
    plan.must("give away a message queue", libc::SYS_fchown, [number, user, group]);
    plan.must("say who may use a message queue", libc::SYS_fchmod, [number, queue.mode.into()]);
    plan.may(libc::SYS_close, [number]);
    let given = plan.run().map(drop);
    let done = filled.and(given);
    if done.is_err() {
        remove(seat, area, std::iter::once(name.to_owned()));
    }
    done
}

/// Open one for a description.
pub(super) fn open(plan: &mut Plan<'_>, state: &State, description: &Description) {
    let OpenFile::Queue { index } = description.file else { return };
    let name = name(state, index);
    let text = plan.string(&name);
    let flags = opened_with(description.flags).into();
    plan.must(format!("open the message queue /{name}"), libc::SYS_mq_open, [text, flags, 0, 0]);
}
