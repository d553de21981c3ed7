//! A task that carries calls out.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use host::processes::trace::{self, Registers};
use host::processes::wait::{Stop, wait};

use crate::area::{Area, Call, Script};
use crate::code::{Code, Trap};
use crate::error::Error;
use crate::layout::{AREA_BYTES, CODE_BYTES};

/// How long a script may take. Some calls wait for file systems.
const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes of an executable mapping that are searched for a `syscall`.
const SEARCHED_BYTES: u64 = 4 << 20;
/// The instruction `syscall`.
const SYSCALL: [u8; 2] = [0x0f, 0x05];
/// A number that says: in no system call.
const NO_CALL: u64 = u64::MAX;

/// What came of a script.
#[derive(Debug, Default)]
pub struct Outcome {
    /// The result of each call: what the kernel returned, errors negative.
    pub results: Vec<i64>,
    /// The tasks that it made, in order, by the tracer's numbers. They are traced, and stopped or about to be.
    pub children: Vec<u32>,
}

/// A stopped task, with what it gets back.
#[derive(Debug)]
pub struct Seat {
    task: u32,
    registers: Registers,
    mask: u64,
    trap: Trap,
}

/// The address of a `syscall` instruction of a task.
///
/// # Errors
///
/// [`Error::NoGate`] if there is none in what it may execute.
pub fn find_gate(task: u32) -> Result<u64, Error> {
    let maps = fs::read_to_string(format!("/proc/{task}/maps")).map_err(Error::trace(task))?;
    let memory = File::open(format!("/proc/{task}/mem")).map_err(Error::trace(task))?;
    let mut ranges: Vec<(bool, u64, u64)> = maps.lines().filter_map(executable).collect();
    // The vDSO first: it is small, and always has one.
    ranges.sort_by_key(|(is_vdso, ..)| !is_vdso);
    for (_, start, end) in ranges {
        let mut bytes = vec![0; (end - start).min(SEARCHED_BYTES) as usize];
        let read = memory.read_at(&mut bytes, start).unwrap_or(0);
        let found = bytes[..read].windows(2).position(|window| window == SYSCALL);
        if let Some(found) = found {
            return Ok(start + found as u64);
        }
    }
    Err(Error::NoGate(task))
}

/// Of a line of /proc/PID/maps that is executable: whether it is the vDSO, start, end.
fn executable(line: &str) -> Option<(bool, u64, u64)> {
    let (range, rest) = line.split_once(' ')?;
    let (start, end) = range.split_once('-')?;
    let parse = |text| u64::from_str_radix(text, 16).ok();
    let (start, end) = (parse(start)?, parse(end)?);
    // The vsyscall page is no mapping: it is emulated, and must not be entered.
    let is_fine = rest.get(2..3) == Some("x") && end > start && !line.ends_with("[vsyscall]");
    is_fine.then_some((line.ends_with("[vdso]"), start, end))
}

impl Seat {
    /// Take a stopped task. `unavailable`: see [`Trap::choose`].
    ///
    /// # Errors
    ///
    /// Where it is not stopped, or has no signal to spare.
    pub fn take(task: u32, unavailable: u64) -> Result<Self, Error> {
        let trap = Trap::choose(unavailable).ok_or(Error::NoTrap(task))?;
        let registers = trace::registers(task).map_err(Error::trace(task))?;
        let mask = trace::signal_mask(task).map_err(Error::trace(task))?;
        trace::set_signal_mask(task, !trap.bit()).map_err(Error::trace(task))?;
        Ok(Self { task, registers, mask, trap })
    }

    /// The task.
    #[must_use]
    pub fn task(&self) -> u32 {
        self.task
    }

    /// The registers that it gets back.
    #[must_use]
    pub fn registers(&self) -> &Registers {
        &self.registers
    }

    /// The signals that it will block again.
    #[must_use]
    pub fn mask(&self) -> u64 {
        self.mask
    }

    /// Change what it gets back.
    pub fn set(&mut self, registers: Registers, mask: u64) {
        (self.registers, self.mask) = (registers, mask);
    }

    /// Make one call at a `syscall` instruction that the task has.
    ///
    /// # Errors
    ///
    /// Where the task does not come back. The call's own error is a negative result.
    pub fn call_at(&self, gate: u64, call: Call) -> Result<i64, Error> {
        let [rdi, rsi, rdx, r10, r8, r9] = call.arguments;
        let before = Registers {
            rip: gate,
            rax: call.number,
            orig_rax: NO_CALL,
            rdi,
            rsi,
            rdx,
            r10,
            r8,
            r9,
            ..self.registers
        };
        trace::set_registers(self.task, &before).map_err(Error::trace(self.task))?;
        let mut signal = 0;
        for _ in 0..2 {
            trace::resume_to_call(self.task, signal).map_err(Error::trace(self.task))?;
            loop {
                match self.next()? {
                    Stop::Call => break,
                    Stop::Signal(other) if other == libc::SIGSTOP.cast_unsigned() => signal = other,
                    Stop::Told(_) => signal = 0,
                    other => return Err(self.strayed(other)),
                }
                trace::resume_to_call(self.task, signal).map_err(Error::trace(self.task))?;
            }
            signal = 0;
        }
        let result = trace::registers(self.task).map_err(Error::trace(self.task))?.rax;
        Ok(result.cast_signed())
    }

    /// Map an area, at `hint` exactly if that is not 0.
    ///
    /// # Errors
    ///
    /// [`Error::NoArea`] if the kernel refuses.
    pub fn map(&self, gate: u64, hint: u64) -> Result<Area, Error> {
        let mut flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        if hint != 0 {
            flags |= libc::MAP_FIXED_NOREPLACE;
        }
        let base = self.map_part(gate, [hint, AREA_BYTES], libc::PROT_EXEC, flags)?;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        let rest = [base + CODE_BYTES, AREA_BYTES - CODE_BYTES];
        self.map_part(gate, rest, libc::PROT_WRITE, flags)?;
        Area::attach(self.task, base, true)
    }

    fn map_part(&self, gate: u64, range: [u64; 2], right: i32, flags: i32) -> Result<u64, Error> {
        let protection = (libc::PROT_READ | right).cast_unsigned();
        let arguments =
            [range[0], range[1], protection.into(), flags.cast_unsigned().into(), u64::MAX, 0];
        let result = self.call_at(gate, Call::new(libc::SYS_mmap, arguments))?;
        let is_address = result > 0 && (range[0] == 0 || result.cast_unsigned() == range[0]);
        if is_address {
            return Ok(result.cast_unsigned());
        }
        let code = i32::try_from(-result).unwrap_or(libc::EEXIST);
        Err(Error::NoArea { task: self.task, source: io::Error::from_raw_os_error(code) })
    }

    /// Carry a script out.
    ///
    /// # Errors
    ///
    /// Where the task does not come to its end. The errors of calls are negative results.
    pub fn run(&self, area: &Area, script: &Script) -> Result<Outcome, Error> {
        let mut outcome = Outcome::default();
        if script.is_empty() {
            return Ok(outcome);
        }
        if !script.has_room(0, 0) {
            return Err(Error::TooLong);
        }
        area.write(script).map_err(Error::trace(self.task))?;
        let registers = Registers {
            rip: area.base() + Code::entry(self.trap),
            orig_rax: NO_CALL,
            r14: script.len() as u64,
            r15: area.steps(),
            ..self.registers
        };
        trace::set_registers(self.task, &registers).map_err(Error::trace(self.task))?;
        self.finish(area, &mut outcome)?;
        outcome.results = area.results(script.len()).map_err(Error::trace(self.task))?;
        Ok(outcome)
    }

    fn finish(&self, area: &Area, outcome: &mut Outcome) -> Result<(), Error> {
        let mut signal = 0;
        loop {
            trace::resume(self.task, signal).map_err(Error::trace(self.task))?;
            signal = 0;
            match self.next()? {
                Stop::Forked => {
                    let child = trace::event_message(self.task).map_err(Error::trace(self.task))?;
                    outcome.children.push(u32::try_from(child).unwrap_or(0));
                }
                Stop::Told(_) => {}
                Stop::Signal(stop) if stop == libc::SIGSTOP.cast_unsigned() => signal = stop,
                Stop::Signal(other) if other == self.trap.signal() => {
                    let now = trace::registers(self.task).map_err(Error::trace(self.task))?.rip;
                    let offset = now.wrapping_sub(area.base());
                    if !Code::get().has_ended(offset, self.trap) {
                        return Err(self.strayed(Stop::Signal(other)));
                    }
                    return Ok(());
                }
                other => return Err(self.strayed(other)),
            }
        }
    }

    /// Take the area away.
    ///
    /// # Errors
    ///
    /// Where the task does not come back.
    pub fn unmap(&self, gate: u64, area: &Area) -> Result<(), Error> {
        let call = Call::new(libc::SYS_munmap, [area.base(), AREA_BYTES]);
        self.call_at(gate, call).map(drop)
    }

    /// Give the registers and the signal mask back; the task is stopped where it would get signals.
    ///
    /// # Errors
    ///
    /// Where the task is gone.
    pub fn leave(&self) -> Result<(), Error> {
        trace::interrupt(self.task).map_err(Error::trace(self.task))?;
        let mut signal = 0;
        loop {
            trace::resume(self.task, signal).map_err(Error::trace(self.task))?;
            match self.next()? {
                Stop::Told(_) => break,
                Stop::Signal(stop) if stop == libc::SIGSTOP.cast_unsigned() => signal = stop,
                other => return Err(self.strayed(other)),
            }
        }
        trace::set_signal_mask(self.task, self.mask).map_err(Error::trace(self.task))?;
        trace::set_registers(self.task, &self.registers).map_err(Error::trace(self.task))
    }

    fn next(&self) -> Result<Stop, Error> {
        match wait(self.task, Instant::now() + PATIENCE) {
            Ok(Some(Stop::Ended(_))) => Err(Error::Gone(self.task)),
            Ok(Some(stop)) => Ok(stop),
            Ok(None) => Err(Error::Stuck(self.task)),
            Err(error) if error.raw_os_error() == Some(libc::ECHILD) => Err(Error::Gone(self.task)),
            Err(source) => Err(Error::Trace { task: self.task, source }),
        }
    }

    fn strayed(&self, stop: Stop) -> Error {
        let signal = match stop {
            Stop::Signal(signal) | Stop::Told(signal) | Stop::Event(signal) => signal,
            Stop::Call | Stop::Forked | Stop::Vforked | Stop::Ended(_) => 0,
        };
        Error::Strayed { task: self.task, signal }
    }
}
