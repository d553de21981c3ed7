//! Signals as records to read from a descriptor, without handlers.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

/// The number of a signal by its name, with or without SIG, or by number; none if there is no such signal.
#[must_use]
pub fn number_of(text: &str) -> Option<u8> {
    if let Ok(number) = text.parse() {
        return spec::SIGNALS.contains(&number).then_some(number);
    }
    let name = text.to_ascii_uppercase();
    let name = if name.starts_with("SIG") { name } else { format!("SIG{name}") };
    name.parse::<Signal>().ok().map(|signal| signal as u8)
}

/// What ends `biv`, is passed on, or tells of a new window size.
const SIGNALS: [Signal; 5] =
    [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM, Signal::SIGWINCH];

/// What asks for a report, of a session that gives one.
pub(super) const QUESTION: Signal = Signal::SIGUSR1;

/// The signals that a session handles, blocked for this thread and those that it starts later.
#[derive(Debug)]
pub struct Signals {
    descriptor: SignalFd,
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
        let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
        Ok(Signals { descriptor: SignalFd::with_flags(&set, flags)? })
    }

    /// Whether this host can do it; blocks nothing.
    pub fn probe() -> io::Result<()> {
        SignalFd::with_flags(&SigSet::empty(), SfdFlags::SFD_CLOEXEC)?;
        Ok(())
    }

    /// The next signal that has come, if any has.
    pub fn take(&mut self) -> io::Result<Option<Signal>> {
        let Some(information) = self.descriptor.read_signal()? else {
            return Ok(None);
        };
        Ok(Signal::try_from(information.ssi_signo as i32).ok())
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
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
