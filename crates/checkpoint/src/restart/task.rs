//! What belongs to a thread.

use std::time::Instant;

use host::processes::extended::{COMPONENTS_OFFSET, HEADER_END, component};
use host::processes::trace;
use host::processes::wait::{Stop, wait};
use inject::Seat;

use super::plan::Plan;
use super::processor::can_do_without;
use super::{Made, modes};
use crate::error::Error;
use crate::limits::FREEZE_PATIENCE;
use crate::proc::status::Status;
use crate::registers;
use crate::state::{Bytes, Credentials, Extended, Thread};

const PRCTL: i64 = libc::SYS_prctl;

fn option(option: i32) -> u64 {
    option.cast_unsigned().into()
}

/// Its name, and the addresses that the kernel knows of it.
pub(super) fn complete(made: &Made, seat: &Seat, thread: &Thread) -> Result<(), Error> {
    let mut plan = Plan::new(thread.tid, seat, &made.area);
    let name = plan.data(&[&thread.name, [0].as_slice()].concat());
    plan.must("have its name", PRCTL, [option(libc::PR_SET_NAME), name, 0, 0, 0]);
    let stack = plan.words(&thread.signal_stack);
    plan.must("have its signal stack", libc::SYS_sigaltstack, [stack, 0]);
    plan.must("have its tid address", libc::SYS_set_tid_address, [thread.clear_address]);
    if thread.robust.0 != 0 {
        let (head, bytes) = thread.robust;
        plan.must("have its robust futexes", libc::SYS_set_robust_list, [head, bytes]);
    }
    if thread.sequences.0 != 0 {
        let (address, bytes, signature) = thread.sequences;
        let arguments = [address, bytes.into(), 0, signature.into()];
        plan.must("have its restartable sequences", libc::SYS_rseq, arguments);
    }
    if thread.nice != 0 {
        let nice = i64::from(thread.nice).cast_unsigned();
        plan.must("have its nice value", libc::SYS_setpriority, [0, 0, nice]);
    }
    if thread.death_signal != 0 {
        let signal = thread.death_signal.into();
        plan.must(
            "have its death signal",
            PRCTL,
            [option(libc::PR_SET_PDEATHSIG), signal, 0, 0, 0],
        );
    }
    let slack = thread.timer_slack;
    plan.must("have its timer slack", PRCTL, [option(libc::PR_SET_TIMERSLACK), slack, 0, 0, 0]);
    modes::set(&mut plan, thread);
    credentials(&mut plan, seat.task(), &thread.credentials)?;
    plan.run().map(drop)
}

/// Become who it was; nothing is done where it is that already.
///
/// It has all capabilities until the end, because each of the other steps needs some: what it may inherit has to be
/// said before the bounding set forbids it, and what is ambient before secure bits do.
fn credentials(plan: &mut Plan<'_>, task: u32, wanted: &Credentials) -> Result<(), Error> {
    let status = Status::read(task, "status")?;
    let now = crate::credentials::read(task, &status, 0)?;
    if now == *wanted {
        return Ok(());
    }
    if now.supplementary != wanted.supplementary {
        let bytes: Vec<u8> =
            wanted.supplementary.iter().flat_map(|group| group.to_le_bytes()).collect();
        let (list, count) = (plan.data(&bytes), wanted.supplementary.len() as u64);
        plan.must("have its groups", libc::SYS_setgroups, [count, list]);
    }
    // Permitted capabilities survive the change of users.
    plan.must("keep its capabilities", PRCTL, [option(libc::PR_SET_KEEPCAPS), 1, 0, 0, 0]);
    let [real, effective, saved, files] = wanted.groups.map(u64::from);
    if now.groups != wanted.groups {
        plan.must("have its group", libc::SYS_setresgid, [real, effective, saved]);
        plan.may(libc::SYS_setfsgid, [files]);
    }
    let [real, effective, saved, files] = wanted.users.map(u64::from);
    if now.users != wanted.users {
        plan.must("have its user", libc::SYS_setresuid, [real, effective, saved]);
        plan.may(libc::SYS_setfsuid, [files]);
    }
    let [inheritable, permitted, effective, bounding, ambient] = wanted.capabilities;
    let all = now.capabilities[1];
    capabilities(plan, [inheritable, all, all]);
    for capability in (0..64).filter(|bit| ambient >> bit & 1 == 1) {
        let raise = libc::PR_CAP_AMBIENT_RAISE.cast_unsigned().into();
        let arguments = [option(libc::PR_CAP_AMBIENT), raise, capability, 0, 0];
        plan.must("have an ambient capability", PRCTL, arguments);
    }
    for capability in
        (0..64).filter(|bit| now.capabilities[3] >> bit & 1 == 1 && bounding >> bit & 1 == 0)
    {
        plan.must("drop a capability", PRCTL, [option(libc::PR_CAPBSET_DROP), capability, 0, 0, 0]);
    }
    // One of the secure bits is whether capabilities are kept.
    let bits = wanted.secure_bits.into();
    let arguments = match wanted.secure_bits {
        0 => [option(libc::PR_SET_KEEPCAPS), 0, 0, 0, 0],
        _ => [option(libc::PR_SET_SECUREBITS), bits, 0, 0, 0],
    };
    plan.must("have its secure bits", PRCTL, arguments);
    capabilities(plan, [inheritable, permitted, effective]);
    if wanted.no_new_privileges {
        plan.must("gain no privileges", PRCTL, [option(libc::PR_SET_NO_NEW_PRIVS), 1, 0, 0, 0]);
    }
    Ok(())
}

/// Have these sets of capabilities: inheritable, permitted, effective.
fn capabilities(plan: &mut Plan<'_>, [inheritable, permitted, effective]: [u64; 3]) {
    let low = |mask: u64| mask & 0xffff_ffff;
    let words = [
        low(effective) | low(permitted) << 32,
        low(inheritable) | (effective >> 32) << 32,
        permitted >> 32 | (inheritable >> 32) << 32,
    ];
    let header = plan.words(&[0x2008_0522]);
    let sets = plan.words(&words);
    plan.must("have its capabilities", libc::SYS_capset, [header, sets]);
}

/// The signals that wait for it alone.
pub(super) fn keep_pending(made: &Made, seat: &Seat, thread: &Thread) -> Result<(), Error> {
    let mut plan = Plan::new(thread.tid, seat, &made.area);
    for signal in &thread.pending {
        let number = signal.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
        let info = plan.data(signal);
        let arguments = [made.pid.into(), thread.tid.into(), number.into(), info];
        plan.must("keep a signal that waits", libc::SYS_rt_tgsigqueueinfo, arguments);
        plan.flush_if_full()?;
    }
    plan.run().map(drop)
}

/// Its registers and mask, as the image has them.
pub(super) fn finish(seat: &mut Seat, thread: &Thread) -> Result<(), Error> {
    let task = seat.task();
    seat.set(registers::from_image(&thread.registers), thread.mask);
    seat.leave()?;
    let now = trace::extended(task).map_err(Error::io("read an extended state"))?;
    let state = extended(&thread.extended, now.len())?;
    trace::set_extended(task, &state).map_err(Error::io("set an extended state"))
}

/// The extended state in this processor's layout.
fn extended(wanted: &Extended, bytes: usize) -> Result<Vec<u8>, Error> {
    let lacks = || Error::Host("its processor has more than this one".to_owned());
    let mut state = vec![0; bytes];
    let legacy = wanted.legacy.len();
    state.get_mut(..legacy).ok_or_else(lacks)?.copy_from_slice(&wanted.legacy);
    let mut in_use = wanted.in_use;
    for (number, Bytes(component_bytes)) in &wanted.components {
        if can_do_without(*number, component_bytes) {
            in_use &= !(1 << *number);
            continue;
        }
        let (offset, length) = component(*number).ok_or_else(lacks)?;
        if length != component_bytes.len() || offset < HEADER_END {
            return Err(lacks());
        }
        let place = state.get_mut(offset..offset + length).ok_or_else(lacks)?;
        place.copy_from_slice(component_bytes);
    }
    let header = state.get_mut(COMPONENTS_OFFSET..COMPONENTS_OFFSET + 8).ok_or_else(lacks)?;
    header.copy_from_slice(&in_use.to_le_bytes());
    Ok(state)
}

/// Stop it as job control had.
pub(super) fn stop(seat: &Seat) -> Result<(), Error> {
    let task = seat.task();
    let pid = rustix::process::Pid::from_raw(task.cast_signed()).ok_or(Error::Gone(task))?;
    let stop = rustix::process::kill_process(pid, rustix::process::Signal::STOP);
    stop.map_err(Error::io("stop a process"))?;
    let (deadline, mut signal) = (Instant::now() + FREEZE_PATIENCE, 0);
    loop {
        trace::resume(task, signal).map_err(Error::io("stop a process"))?;
        match wait(task, deadline).map_err(Error::io("stop a process"))? {
            Some(Stop::Signal(found)) => signal = found,
            Some(Stop::Told(found)) if found == libc::SIGSTOP.cast_unsigned() => return Ok(()),
            Some(Stop::Told(_)) => signal = 0,
            Some(_) => return Err(Error::Gone(task)),
            None => return Err(Error::Stuck { task, why: "it is to be stopped".to_owned() }),
        }
    }
}

/// Wait until a task that was just made is stopped.
pub(super) fn wait_for_birth(task: u32) -> Result<(), Error> {
    let stop = wait(task, Instant::now() + FREEZE_PATIENCE);
    match stop.map_err(Error::io("wait for a new task"))? {
        Some(Stop::Told(_)) => Ok(()),
        Some(_) => Err(Error::Gone(task)),
        None => Err(Error::Stuck { task, why: "it has just been made".to_owned() }),
    }
}

/// Kill a task of ours, and wait until it has ended.
pub(super) fn kill(task: u32) {
    if let Some(pid) = rustix::process::Pid::from_raw(task.cast_signed()) {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
    let deadline = Instant::now() + FREEZE_PATIENCE;
    while let Ok(Some(stop)) = wait(task, deadline) {
        if matches!(stop, Stop::Ended(_)) {
            return;
        }
    }
}

/// End a process as it had ended, by exit or by a signal.
pub(super) fn end(made: &Made, status: i32) -> Result<(), Error> {
    let task = made.seat.task();
    let signal = status & 0x7f;
    let deadline = Instant::now() + FREEZE_PATIENCE;
    let mut script = made.area.script();
    if signal == 0 {
        script.call(libc::SYS_exit_group, [u64::from(status.cast_unsigned() >> 8 & 0xff)]);
    } else {
        // Nothing is written of it where it is ended by a signal that would.
        let limit = script.data(&[0; 16]);
        script.call(libc::SYS_prlimit64, [0, u64::from(libc::RLIMIT_CORE), limit, 0]);
        let (action, signal) = (script.data(&[0; 32]), signal.cast_unsigned().into());
        script.call(libc::SYS_rt_sigaction, [signal, action, 0, 8]);
        let mask = script.data(&[0; 8]);
        script
            .call(libc::SYS_rt_sigprocmask, [libc::SIG_SETMASK.cast_unsigned().into(), mask, 0, 8]);
        script.call(libc::SYS_kill, [made.pid.into(), signal]);
    }
    match made.seat.run(&made.area, &script) {
        Err(inject::Error::Gone(_)) => return Ok(()),
        Err(inject::Error::Strayed { .. }) => {}
        Err(error) => return Err(error.into()),
        Ok(_) => return Err(Error::Stuck { task, why: "it is to end".to_owned() }),
    }
    trace::resume(task, signal.cast_unsigned()).map_err(Error::io("end a process"))?;
    match wait(task, deadline).map_err(Error::io("end a process"))? {
        Some(Stop::Ended(_)) => Ok(()),
        _ => Err(Error::Stuck { task, why: "it is to end".to_owned() }),
    }
}
