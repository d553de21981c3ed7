//! POSIX timers, with their numbers.
//!
//! Since Linux 6.15 a process may choose them (`PR_TIMER_CREATE_RESTORE_IDS`). Before, the kernel counts: each process
//! begins with zero, and a number is not used again. So there timers are made and deleted until the next has the right
//! one.

use super::Made;
use super::plan::Plan;
use super::slots::halves;
use crate::error::Error;
use crate::state::{Process, Timer};

/// `PR_TIMER_CREATE_RESTORE_IDS`.
const RESTORE_TIMER_IDS: u64 = 77;
/// `SIGEV_THREAD_ID`.
const TO_THREAD: u32 = 4;
/// How far is counted.
const MAX_COUNTED: u32 = 1 << 20;
/// Timers that are made and deleted by one script.
const AT_ONCE: u32 = 64;

/// Make the timers of a process.
pub(super) fn make(made: &Made, process: &Process) -> Result<(), Error> {
    if process.timers.is_empty() {
        return Ok(());
    }
    let plan = || Plan::new(made.pid, &made.seat, &made.area);
    let mut asked = plan();
    asked.may(libc::SYS_prctl, [RESTORE_TIMER_IDS, 1, 0, 0, 0]);
    if asked.run()?.results != [0] {
        return count(made, process);
    }
    let mut plan = plan();
    for timer in &process.timers {
        let id = plan.words(&[timer.id.into()]);
        create(&mut plan, timer, id);
        set(&mut plan, timer);
        plan.flush_if_full()?;
    }
    plan.must("number its timers", libc::SYS_prctl, [RESTORE_TIMER_IDS, 0, 0, 0, 0]);
    plan.run().map(drop)
}

/// The same where the kernel counts.
fn count(made: &Made, process: &Process) -> Result<(), Error> {
    let refused = |id: u32| Error::Host(format!("its timer cannot have the number {id} here"));
    let mut timers: Vec<&Timer> = process.timers.iter().collect();
    timers.sort_by_key(|timer| timer.id);
    let mut next = 0;
    for timer in timers {
        if timer.id > MAX_COUNTED {
            return Err(refused(timer.id));
        }
        while next < timer.id {
            let mut plan = Plan::new(made.pid, &made.seat, &made.area);
            let id = plan.words(&[0]);
            let end = timer.id.min(next + AT_ONCE);
            for passed in next..end {
                let clock = libc::CLOCK_MONOTONIC.cast_unsigned().into();
                plan.must("count its timers", libc::SYS_timer_create, [clock, 0, id]);
                plan.must("count its timers", libc::SYS_timer_delete, [passed.into()]);
            }
            plan.run()?;
            next = end;
        }
        let mut plan = Plan::new(made.pid, &made.seat, &made.area);
        let id = plan.words(&[0]);
        create(&mut plan, timer, id);
        plan.run()?;
        if halves(&made.area, id)?[0] != timer.id {
            return Err(refused(timer.id));
        }
        next = timer.id + 1;
        let mut plan = Plan::new(made.pid, &made.seat, &made.area);
        set(&mut plan, timer);
        plan.run()?;
    }
    Ok(())
}

/// `id` is the address of its number.
fn create(plan: &mut Plan<'_>, timer: &Timer, id: u64) {
    let thread = if timer.notify & TO_THREAD == 0 { 0 } else { timer.thread };
    let how = u64::from(timer.signal) | u64::from(timer.notify) << 32;
    let event = plan.words(&[timer.value, how, thread.into(), 0, 0, 0, 0, 0]);
    let clock = i64::from(timer.clock).cast_unsigned();
    plan.must("make a timer", libc::SYS_timer_create, [clock, event, id]);
}

fn set(plan: &mut Plan<'_>, timer: &Timer) {
    let parts = timer.nanoseconds.map(|time| [time / 1_000_000_000, time % 1_000_000_000]);
    let parts = plan.words(parts.as_flattened());
    plan.must("set a timer", libc::SYS_timer_settime, [timer.id.into(), 0, parts, 0]);
}
