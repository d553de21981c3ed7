//! Signals as bytes to read from a descriptor, without handlers.
//!
//! A thread waits for them (sigwaitinfo(2)) and writes their numbers to a pipe. A signalfd would do without the thread,
//! but the kernel wakes whoever polls one at each signal that comes to the process, of whatever kind and to whichever
//! thread: the alarms of vCPUs woke the main thread hundreds of times a second, each time on a processor that another
//! thread had use for.

use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::thread::JoinHandleExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::pthread::pthread_kill;
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
    waits: Option<Waiting>,
}

/// The thread that waits, and what it is woken by when nobody wants to know any more.
#[derive(Debug)]
struct Waiting {
    thread: JoinHandle<()>,
    is_over: Arc<AtomicBool>,
    by: Signal,
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
        fcntl(&to, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        let waits = set.iter().next().map(|by| Waiting::start(set, by, to)).transpose()?;
        Ok(Signals { numbers, waits })
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

impl Drop for Signals {
    fn drop(&mut self) {
        if let Some(Waiting { thread, is_over, by }) = self.waits.take() {
            is_over.store(true, Ordering::SeqCst);
            // One that has ended needs no waking.
            let _ = pthread_kill(thread.as_pthread_t(), by);
            let _ = thread.join();
        }
    }
}

impl Waiting {
    fn start(signals: SigSet, by: Signal, mut to: PipeWriter) -> io::Result<Self> {
        let is_over = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&is_over);
        let wait = move || {
            while let Ok(signal) = signals.wait() {
                if ends.load(Ordering::SeqCst) {
                    return;
                }
                // Thousands that nobody has taken are enough.
                let _ = to.write_all(&[signal as u8]);
            }
        };
        let thread = std::thread::Builder::new().name("signals".into()).spawn(wait)?;
        Ok(Self { thread, is_over, by })
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
    fn signals_are_told_and_the_thread_ends() {
        // Of a thread of its own, because signals of the process would come to other tests' threads.
        let told = std::thread::spawn(|| {
            let set = SigSet::from(Signal::SIGWINCH);
            set.thread_block().expect("it can be blocked");
            let (mut numbers, to) = io::pipe().expect("a pipe");
            let waiting = Waiting::start(set, Signal::SIGWINCH, to).expect("a thread");
            pthread_kill(waiting.thread.as_pthread_t(), Signal::SIGWINCH).expect("it waits");
            let mut number = [0];
            numbers.read_exact(&mut number).expect("it is told");
            drop(Signals { numbers, waits: Some(waiting) });
            number[0]
        });
        assert_eq!(told.join().expect("it ends"), Signal::SIGWINCH as u8);
    }

    #[test]
    fn ignored_signals_are_read() {
        assert_eq!(ignored("Name:\tbiv\nSigIgn:\t0000000000001001\n"), 0x1001);
        assert_eq!(ignored("Name:\tbiv\n"), 0);
    }
}
