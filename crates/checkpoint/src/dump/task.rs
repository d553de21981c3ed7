//! A thread: registers, signals, and the addresses that the kernel knows of it.

use std::fs::File;
use std::os::unix::fs::FileExt;

use host::processes::extended::{COMPONENTS_OFFSET, HEADER_END, LEGACY_BYTES, component};
use host::processes::identity;
use host::processes::trace::{self, Queue, Registers};
use inject::{Area, Seat};

use super::answer::{self, expect};
use super::modes;
use crate::credentials;
use crate::error::Error;
use crate::freeze::RESTART_UNLESS_HANDLED;
use crate::limits::MAX_PENDING;
use crate::proc;
use crate::proc::stat::Stat;
use crate::proc::status::Status;
use crate::registers;
use crate::state::modes::Modes;
use crate::state::{Bytes, Extended, Thread};

/// x87 and SSE, which the legacy region has in any case.
const LEGACY_COMPONENTS: u64 = 3;
/// `ERESTART_RESTARTBLOCK`, as a result.
const RESTART_BLOCK: i64 = -516;

/// What a thread answers itself.
pub(super) struct Answers {
    signal_stack: [u64; 3],
    clear_address: u64,
    secure_bits: i64,
    death_signal: u32,
    timer_slack: u64,
    modes: Modes,
}

/// Ask a thread what only it can say.
pub(super) fn ask(pid: u32, seat: &Seat, area: &Area) -> Result<Answers, Error> {
    let mut script = area.script();
    let stack = script.room(24);
    let clear = script.room(8);
    let death = script.room(8);
    let prctl = |option: i32| option.cast_unsigned().into();
    script.call(libc::SYS_sigaltstack, [0, stack]);
    script.call(libc::SYS_prctl, [prctl(libc::PR_GET_TID_ADDRESS), clear, 0, 0, 0]);
    script.call(libc::SYS_prctl, [prctl(libc::PR_GET_PDEATHSIG), death, 0, 0, 0]);
    script.call(libc::SYS_prctl, [prctl(libc::PR_GET_SECUREBITS), 0, 0, 0, 0]);
    script.call(libc::SYS_prctl, [prctl(libc::PR_GET_TIMERSLACK), 0, 0, 0, 0]);
    let asked = modes::ask(&mut script);
    let results = seat.run(area, &script)?.results;
    for (index, what) in ["tell its signal stack", "tell its tid address", "tell its death signal"]
        .into_iter()
        .enumerate()
    {
        expect(pid, what, results[index])?;
    }
    let word = |address| answer::word(area, address);
    Ok(Answers {
        // The flags are an int with four bytes of nothing behind it.
        signal_stack: [word(stack)?, word(stack + 8)? & 0xffff_ffff, word(stack + 16)?],
        clear_address: word(clear)?,
        death_signal: (word(death)? & 0xff) as u32,
        secure_bits: results[3],
        timer_slack: results[4].max(0).cast_unsigned(),
        modes: modes::answered(pid, area, &asked, &results)?,
    })
}

/// All that is known of a thread. It is stopped, and has its own registers and mask.
pub(super) fn dump(pid: u32, tid: u32, answers: &Answers, usual: &Bytes) -> Result<Thread, Error> {
    let io = |what: &str| Error::io(format!("read the {what} of task {tid}"));
    let status = Status::read(pid, &format!("task/{tid}/status"))?;
    let stat = Stat::read(pid, &format!("task/{tid}/stat"))?;
    let registers = trace::registers(tid).map_err(io("registers"))?;
    let sequences = trace::sequences(tid).map_err(io("restartable sequences"))?;
    let name = proc::read(pid, &format!("task/{tid}/comm"))?;
    let processors = modes::processors(&status);
    let processors = if processors == *usual { Bytes::default() } else { processors };
    let mut signal_stack = answers.signal_stack;
    // `SS_ONSTACK` says where the stack pointer is; only the other flags can be set.
    signal_stack[1] &= !u64::from(libc::SS_ONSTACK.cast_unsigned());
    Ok(Thread {
        tid: status.own_number("NSpid")?,
        name: name.trim_end_matches('\n').as_bytes().into(),
        registers: registers::to_image(&restartable(pid, registers)),
        extended: extended(tid)?,
        mask: trace::signal_mask(tid).map_err(io("signal mask"))?,
        pending: pending(tid, Queue::Thread)?,
        signal_stack,
        clear_address: answers.clear_address,
        robust: identity::robust_list(tid).map_err(io("robust futexes"))?,
        sequences: (sequences.address, sequences.bytes, sequences.signature),
        credentials: credentials::read(
            pid,
            &status,
            u32::try_from(answers.secure_bits).unwrap_or(0),
        )?,
        nice: i32::try_from(stat.signed(19)?).unwrap_or(0),
        death_signal: answers.death_signal,
        timer_slack: answers.timer_slack,
        modes: Modes { processors, ..answers.modes.clone() },
    })
}

/// The registers as a task has them that has no restart block: a sleep is begun anew, unless a handler ends it.
fn restartable(pid: u32, mut registers: Registers) -> Registers {
    let call = registers.orig_rax.cast_signed();
    if call < 0 {
        // What an interrupt leaves there is the kernel's own affair.
        registers.orig_rax = u64::MAX;
    } else if registers.rax.cast_signed() == RESTART_BLOCK {
        let is_repeated = call == libc::SYS_restart_syscall;
        match if is_repeated { repeated(pid, &registers) } else { Some(call) } {
            Some(call) => {
                registers.orig_rax = call.cast_unsigned();
                registers.rax = RESTART_UNLESS_HANDLED.cast_unsigned();
            }
            None => registers.rax = (-i64::from(libc::EINTR)).cast_unsigned(),
        }
    }
    registers
}

/// The calls that have a restart block.
const WITH_RESTART_BLOCK: [i64; 4] =
    [libc::SYS_nanosleep, libc::SYS_clock_nanosleep, libc::SYS_poll, libc::SYS_futex];
/// Clocks have smaller numbers than any address.
const MAX_CLOCK: u64 = 16;
/// Operations of futex(2) that wait and are private. The other calls have an address, nothing or a few files there.
const PRIVATE_WAITS: [u64; 2] = [0x80, 0x89];

/// Which call a task goes on with that goes on with a call (restart_syscall(2)): it was stopped in it before, and the
/// kernel has put the number of *that* in its place. The arguments are still those of the first. Programs have
/// the number before the instruction, as a rule: `mov eax, NUMBER; syscall`.
fn repeated(pid: u32, registers: &Registers) -> Option<i64> {
    let memory = File::open(format!("/proc/{pid}/mem")).ok()?;
    let mut code = [0; 7];
    let read = memory.read_exact_at(&mut code, registers.rip.wrapping_sub(7));
    if read.is_ok() && code[0] == 0xb8 && code[5..] == [0x0f, 0x05] {
        let number = i32::from_le_bytes([code[1], code[2], code[3], code[4]]);
        return Some(i64::from(number)).filter(|number| WITH_RESTART_BLOCK.contains(number));
    }
    match () {
        () if registers.rdi < MAX_CLOCK => Some(libc::SYS_clock_nanosleep),
        () if PRIVATE_WAITS.contains(&registers.rsi) => Some(libc::SYS_futex),
        () => None,
    }
}

/// Signals that wait.
pub(super) fn pending(tid: u32, queue: Queue) -> Result<Vec<Bytes>, Error> {
    let found = trace::pending(tid, queue, MAX_PENDING);
    let found = found.map_err(Error::io(format!("read the signals that wait for task {tid}")))?;
    Ok(found.iter().map(|signal| signal.as_slice().into()).collect())
}

fn extended(tid: u32) -> Result<Extended, Error> {
    let state = trace::extended(tid);
    let state = state.map_err(Error::io(format!("read the extended state of task {tid}")))?;
    let header = state.get(COMPONENTS_OFFSET..COMPONENTS_OFFSET + 8);
    let (Some(legacy), Some(header)) = (state.get(..LEGACY_BYTES), header) else {
        return Err(Error::Host("this processor has no XSAVE".to_owned()));
    };
    let in_use = u64::from_le_bytes(header.try_into().unwrap_or_default());
    let mut legacy = legacy.to_vec();
    // Bytes that software may use: the kernel says there what this processor has.
    legacy[464..].fill(0);
    let (mut components, mut kept) = (Vec::new(), LEGACY_COMPONENTS);
    for number in (2..63).filter(|number| in_use >> number & 1 != 0) {
        let place = component(number).filter(|(offset, _)| *offset >= HEADER_END);
        let bytes = place.and_then(|(offset, bytes)| state.get(offset..offset + bytes));
        let bytes = bytes.ok_or_else(|| {
            Error::Host(format!("component {number} of the extended state has no place"))
        })?;
        // Whether zeros are their initial configuration is up to when the processor has looked.
        if bytes.iter().any(|byte| *byte != 0) {
            components.push((number, bytes.into()));
            kept |= 1 << number;
        }
    }
    Ok(Extended { in_use: kept, legacy: Bytes(legacy), components })
}
