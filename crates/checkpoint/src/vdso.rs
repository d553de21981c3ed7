//! Tasks that were stopped in the vDSO: they are led out of it, for where they go on there may be another one.

use std::ops::Range;
use std::time::Instant;

use host::processes::trace;
use host::processes::wait::{Stop, wait};

use crate::error::Error;
use crate::limits::{FREEZE_PATIENCE, MAX_VDSO_STEPS};
use crate::proc;
use crate::proc::status::Status;

/// The signal of steps, as a bit of masks.
const TRAP: u64 = 1 << (libc::SIGTRAP - 1);

/// Where the vDSO of a process is.
fn place(pid: u32) -> Result<Option<Range<u64>>, Error> {
    let maps = proc::read(pid, "maps")?;
    Ok(maps.lines().find(|line| line.ends_with("[vdso]")).and_then(|line| {
        let (start, end) = line.split_whitespace().next()?.split_once('-')?;
        let parse = |text| u64::from_str_radix(text, 16).ok();
        Some(parse(start)?..parse(end)?)
    }))
}

/// Lead the tasks of a process out of its vDSO. Those that take too long, or end, stay as they are, and so do those
/// that block or ignore SIGTRAP, because a step would take that from them (the kernel forces the signal): they can be
/// restarted where the vDSO is the same.
pub(crate) fn leave(pid: u32, tasks: &[u32]) -> Result<(), Error> {
    let mut vdso = None;
    for &task in tasks {
        let Ok(registers) = trace::registers(task) else { continue };
        let vdso = match &vdso {
            Some(vdso) => vdso,
            None => match place(pid)? {
                Some(found) => vdso.insert(found),
                None => return Ok(()),
            },
        };
        if vdso.contains(&registers.rip) && is_open_to_traps(pid, task)? {
            match step(task, vdso) {
                // It has been killed.
                Err(error) if is_gone(&error) => {}
                result => result.map_err(Error::io("lead a task out of its vDSO"))?,
            }
        }
    }
    Ok(())
}

fn is_open_to_traps(pid: u32, task: u32) -> Result<bool, Error> {
    let status = Status::read(pid, &format!("task/{task}/status"))?;
    Ok((status.mask("SigBlk")? | status.mask("SigIgn")?) & TRAP == 0)
}

fn is_gone(error: &std::io::Error) -> bool {
    [libc::ESRCH, libc::ECHILD].map(Some).contains(&error.raw_os_error())
}

fn step(task: u32, vdso: &Range<u64>) -> std::io::Result<()> {
    let mask = trace::signal_mask(task)?;
    // Any other signal that comes meanwhile waits.
    trace::set_signal_mask(task, !TRAP)?;
    let deadline = Instant::now() + FREEZE_PATIENCE;
    for _ in 0..MAX_VDSO_STEPS {
        trace::step(task)?;
        match wait(task, deadline)? {
            Some(Stop::Signal(signal)) if signal == libc::SIGTRAP.cast_unsigned() => {}
            Some(Stop::Ended(_)) => return Ok(()),
            _ => break,
        }
        if !vdso.contains(&trace::registers(task)?.rip) {
            break;
        }
    }
    trace::set_signal_mask(task, mask)
}
