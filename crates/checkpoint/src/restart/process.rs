//! What belongs to a process as a whole.

use super::opened::Opened;
use super::plan::Plan;
use super::{
    Made, anonymous, files, input, ipc, limits, locks, notifications, pidfds, task, terminals,
    timers,
};
use crate::error::Error;
use crate::state::{Process, State};

const KERNEL_SIGSET_BYTES: u64 = 8;
/// `PR_SET_MDWE`.
const DENY_WRITE_EXECUTE: u64 = 65;

/// Everything but what would begin to act at once.
pub(super) fn complete(
    made: &Made,
    process: &Process,
    state: &State,
    opened: Opened,
) -> Result<(), Error> {
    let mut plan = Plan::new(process.pid, &made.seat, &made.area);
    let directory = plan.string(&process.directory);
    let purpose = format!("enter its directory, {}", process.directory);
    plan.must(purpose, libc::SYS_chdir, [directory]);
    plan.must("set its umask", libc::SYS_umask, [process.umask.into()]);
    terminals::leave(&mut plan, state, process, opened);
    files::take(&mut plan, process, state, opened)?;
    plan.run()?;
    pidfds::open(made, process, state)?;
    let mut plan = Plan::new(process.pid, &made.seat, &made.area);
    notifications::watch(&mut plan, process, state)?;
    anonymous::watch(&mut plan, process, &state.descriptions)?;
    locks::take_own(&mut plan, process, &state.locks)?;
    ipc::undo(&mut plan, process)?;
    input::ask(&mut plan, process, state)?;
    plan.flush_if_full()?;
    for signal in (1..=64_u32).filter(|signal| ![9, 19].contains(signal)) {
        let action = process.actions.iter().find(|action| action.signal == signal);
        let words = action
            .map_or([0; 4], |action| [action.handler, action.flags, action.restorer, action.mask]);
        let words = plan.words(&words);
        let arguments = [signal.into(), words, 0, KERNEL_SIGSET_BYTES];
        plan.must("set the action of a signal", libc::SYS_rt_sigaction, arguments);
    }
    let prctl = |option: i32| u64::from(option.cast_unsigned());
    if process.switches.subreaper {
        plan.must(
            "adopt orphans",
            libc::SYS_prctl,
            [prctl(libc::PR_SET_CHILD_SUBREAPER), 1, 0, 0, 0],
        );
    }
    if process.switches.no_huge_pages {
        plan.must(
            "do without huge pages",
            libc::SYS_prctl,
            [prctl(libc::PR_SET_THP_DISABLE), 1, 0, 0, 0],
        );
    }
    plan.run()?;
    for (seat, thread) in seats(made).zip(&process.threads) {
        task::complete(made, seat, thread)?;
    }
    Ok(())
}

fn seats(made: &Made) -> impl Iterator<Item = &inject::Seat> {
    std::iter::once(&made.seat).chain(&made.threads)
}

/// Limits, timers, signals that wait; then the area goes, and each thread has the registers and mask of the image.
pub(super) fn finish(made: &mut Made, process: &Process) -> Result<(), Error> {
    timers::make(made, process)?;
    let mut plan = Plan::new(process.pid, &made.seat, &made.area);
    drain(&mut plan);
    for signal in &process.pending {
        let number = signal.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
        let info = plan.data(signal);
        let arguments = [process.pid.into(), number.into(), info];
        plan.must("keep a signal that waits", libc::SYS_rt_sigqueueinfo, arguments);
        plan.flush_if_full()?;
    }
    for (which, [interval, rest]) in process.intervals.iter().enumerate() {
        let parts =
            [interval / 1_000_000, interval % 1_000_000, rest / 1_000_000, rest % 1_000_000];
        if parts != [0; 4] {
            let parts = plan.words(&parts);
            plan.must("set a timer", libc::SYS_setitimer, [which as u64, parts, 0]);
        }
    }
    plan.run()?;
    // Last, for they may forbid the rest.
    limits::set(made, process)?;
    limits::set_kill_score(made, process)?;
    let mut plan = Plan::new(process.pid, &made.seat, &made.area);
    if process.switches.deny_write_execute != 0 {
        let arguments = [DENY_WRITE_EXECUTE, process.switches.deny_write_execute, 0, 0, 0];
        plan.must("execute nothing that was written", libc::SYS_prctl, arguments);
    }
    if process.switches.dumpable == 0 {
        let option = u64::from(libc::PR_SET_DUMPABLE.cast_unsigned());
        plan.must("be private", libc::SYS_prctl, [option, 0, 0, 0, 0]);
    }
    plan.run()?;
    for (seat, thread) in seats(made).zip(&process.threads) {
        task::keep_pending(made, seat, thread)?;
    }
    let gate = inject::find_gate(made.seat.task())?;
    made.seat.unmap(gate, &made.area)?;
    let all = std::iter::once(&mut made.seat).chain(&mut made.threads);
    for (seat, thread) in all.zip(&process.threads) {
        task::finish(seat, thread)?;
    }
    match process.stopped {
        Some(_) => task::stop(&made.seat),
        None => Ok(()),
    }
}

/// Forget the signals that the making has caused: of children that have ended.
fn drain(plan: &mut Plan<'_>) {
    let all = plan.words(&[u64::MAX, 0]);
    let none = plan.words(&[0, 0]);
    plan.may(libc::SYS_rt_sigtimedwait, [all, 0, none, KERNEL_SIGSET_BYTES]);
}
