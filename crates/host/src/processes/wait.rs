//! Waiting for traced tasks.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use crate::watch::watch;

/// Why a traced task has stopped, or that it is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// It is about to get this signal.
    Signal(u32),
    /// It enters or leaves a system call ([`resume_to_call`](super::trace::resume_to_call)).
    Call,
    /// It is stopped because it was told to, because it was born traced, or by job control with this signal.
    Told(u32),
    /// It has made a child, whose number is the event's message.
    Forked,
    /// The same, and it is about to wait for that in the kernel, as vfork(2) does.
    Vforked,
    /// Another event of ptrace(2).
    Event(u32),
    /// It has ended with this status, as wait(2) has it.
    Ended(i32),
}

/// How long a wait polls before it sleeps.
const POLL: Duration = Duration::from_micros(200);
/// How long it sleeps between looks then.
const SLEEP: Duration = Duration::from_micros(200);

/// Wait for a task to stop, until `deadline`; none if it has not.
///
/// # Errors
///
/// `ECHILD` if we do not trace such a task.
pub fn wait(task: u32, deadline: Instant) -> io::Result<Option<Stop>> {
    let mut found = Ok(None);
    if watch(POLL, || {
        found = look(task);
        !matches!(found, Ok(None))
    }) {
        return found;
    }
    while Instant::now() < deadline {
        thread::sleep(SLEEP);
        let found = look(task)?;
        if found.is_some() {
            return Ok(found);
        }
    }
    look(task)
}

/// Whether a task has stopped.
///
/// # Errors
///
/// `ECHILD` if we do not trace such a task.
pub fn look(task: u32) -> io::Result<Option<Stop>> {
    let mut status = 0;
    let task = libc::pid_t::try_from(task).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: the kernel writes the status to a local.
    let found = unsafe { libc::waitpid(task, &raw mut status, libc::__WALL | libc::WNOHANG) };
    match found {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(None),
        _ => Ok(Some(meaning(status))),
    }
}

fn meaning(status: i32) -> Stop {
    if !libc::WIFSTOPPED(status) {
        return Stop::Ended(status);
    }
    let signal = libc::WSTOPSIG(status).cast_unsigned();
    match status >> 16 {
        0 if signal == libc::SIGTRAP.cast_unsigned() | 0x80 => Stop::Call,
        0 => Stop::Signal(signal),
        libc::PTRACE_EVENT_STOP => Stop::Told(signal),
        libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_CLONE => Stop::Forked,
        libc::PTRACE_EVENT_VFORK => Stop::Vforked,
        event => Stop::Event(event.cast_unsigned()),
    }
}
