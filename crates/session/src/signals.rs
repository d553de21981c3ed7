//! Signals as bytes to read from a descriptor, without handlers.
//!
//! A thread waits for them (sigwaitinfo(2)) and writes their numbers to a pipe. A signalfd would do without the thread,
//! but the kernel wakes whoever polls one at each signal that comes to the process, of whatever kind and to whichever
//! thread: the alarms of vCPUs woke the main thread hundreds of times a second, each time on a processor that another
//! thread had use for.

use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::signal::{SigSet, Signal};

/// What ends `biv`, is passed on, or tells of a new window size.
const SIGNALS: [Signal; 5] =
    [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM, Signal::SIGWINCH];

/// What asks for a report, of a session that gives one.
pub(super) const QUESTION: Signal = Signal::SIGUSR1;

/// The signals that a session handles, blocked for this thread and those that it starts later.
#[derive(Debug)]
pub struct Signals {
    numbers: PipeReader,
}

impl Signals {
    /// Blocks them. To be called before any other thread is started. What `biv` was started to
    /// ignore (by nohup(1), say) stays ignored; a blocked signal would be delivered nevertheless.
    pub fn block() -> io::Result<Signals> {
        Self::block_all(&SIGNALS)
    }

    /// The same, with the signal that asks for a report ([`super::Session::report`]).
    pub fn block_with_question() -> io::Result<Signals> {
        Self::block_all(&[&SIGNALS[..], &[QUESTION]].concat())
    }

    fn block_all(signals: &[Signal]) -> io::Result<Signals> {
        crate::terminal::know_group();
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let ignored = ignored(&status);
        let mut set = SigSet::empty();
        for &signal in signals {
            if ignored & (1 << (signal as u32 - 1)) == 0 {
                set.add(signal);
            }
        }
        set.thread_block()?;
        // A file that may not grow any more is an error of who writes it, not our end.
        SigSet::from(Signal::SIGXFSZ).thread_block()?;
        // Who comes to be in the background while it reads a terminal hears so, and is not stopped.
        SigSet::from(Signal::SIGTTIN).thread_block()?;
        let (numbers, to) = io::pipe()?;
        fcntl(&numbers, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        std::thread::Builder::new().name("signals".into()).spawn(move || wait_for(set, to))?;
        Ok(Signals { numbers })
    }

    /// The next signal that has come, if any has.
    pub fn take(&mut self) -> io::Result<Option<Signal>> {
        let mut number = [0];
        match self.numbers.read(&mut number) {
            Ok(0) => Ok(None),
            Ok(_) => Ok(Signal::try_from(i32::from(number[0])).ok()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Tell of these signals, as long as somebody wants to know.
fn wait_for(signals: SigSet, mut to: PipeWriter) {
    while let Ok(signal) = signals.wait() {
        if to.write_all(&[signal as u8]).is_err() {
            return;
        }
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.numbers.as_fd()
    }
}

/// The mask of ignored signals in `/proc/PID/status`; bit 0 is signal 1 (proc(5)).
fn ignored(status: &str) -> u64 {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_read() {
        assert_eq!(ignored("Name:\tbiv\nSigIgn:\t0000000000001001\n"), 0x1001);
        assert_eq!(ignored("Name:\tbiv\n"), 0);
    }
}
