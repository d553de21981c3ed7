//! Starts the machine in a thread, and reports how it ended: the seam to `vmm`.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use host::poll::{PollFlags, wait_for};
use spec::Spec;
use vmm::{Configuration, Outcome, SerialBackend};

use super::plugged::{self, Handles};
use super::statistics;
use crate::inspect::Teller;

/// How long a guest may take to switch itself off after its command has ended, where all that is lost
/// otherwise are traces.
const FINISH_PATIENCE_SECONDS: u64 = 10;

/// The same, while it writes to its disks what it still has in memory.
const WRITING_PATIENCE_SECONDS: u64 = 300;

/// Why there is no machine.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It could not be built, or it failed.
    #[error(transparent)]
    Machine(#[from] vmm::Error),
    /// Its thread.
    #[error("cannot start the machine: {0}")]
    Thread(#[from] io::Error),
    /// It cannot be shut off.
    #[error(transparent)]
    Confine(#[from] host::confine::Error),
    /// The guest does not come to its end.
    #[error(
        "the guest did not power off within {WRITING_PATIENCE_SECONDS} seconds after its command \
         ended; what it had not written to its disks is lost"
    )]
    Unwritten,
    /// A fault of ours.
    #[error(
        "internal error: the machine's thread panicked; please report this with the message above"
    )]
    Panicked,
}

/// A virtio console to and from the session, with a window of so many rows and columns.
pub fn console(end: session::Line, size: (u16, u16)) -> vmm::ConsolePort {
    let (input, output) = end.into_parts();
    vmm::ConsolePort { input, output: output.into(), size }
}

/// A serial line to and from the session.
pub fn line(end: session::Line) -> SerialBackend {
    let (input, output) = end.into_parts();
    SerialBackend { input: Some(input), output: Some(Box::new(output)) }
}

/// The same, with a copy of what the guest sends.
pub fn line_with_copy(end: session::Line, copy: File) -> SerialBackend {
    let (input, line) = end.into_parts();
    SerialBackend { input: Some(input), output: Some(Box::new(Tee { line, copy })) }
}

/// Writes everything twice.
struct Tee {
    line: File,
    copy: File,
}

impl Write for Tee {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.line.write(bytes)?;
        self.copy.write_all(&bytes[..count])?;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.line.flush()?;
        self.copy.flush()
    }
}

/// What a machine is started from.
pub struct Parts {
    /// What it consists of.
    pub configuration: Configuration,
    /// What was kept of its devices.
    pub handles: Handles,
    /// Whether its end is waited for.
    pub wait: Wait,
    /// What is to be told of it besides its end.
    pub telling: Telling,
}

/// What is to be told of a machine besides its end.
#[derive(Clone, Default)]
pub struct Telling {
    /// What the engine did.
    pub stats: bool,
    /// What the processors did last.
    pub history: Option<Teller>,
}

/// Whether the machine's end is waited for after its command's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// Nothing is lost with it.
    No,
    /// Somebody wants to know what it did.
    ForTraces,
    /// Its disks, and directories that are written back to, are to have everything.
    UntilWritten,
}

impl Wait {
    /// As a machine is described, whose writes are kept or not.
    pub fn of(spec: &Spec, keeps_writes: bool) -> Self {
        let watch = &spec.watch;
        let has_traces =
            watch.statistics || watch.console.is_some() || spec.debug_console().is_some();
        match keeps_writes {
            true => Self::UntilWritten,
            false if has_traces => Self::ForTraces,
            false => Self::No,
        }
    }
}

/// A machine in its thread.
pub struct Machine {
    thread: JoinHandle<Result<Outcome, Error>>,
    ended: UnixStream,
    wait: Wait,
    history: Option<Teller>,
    processors: usize,
}

impl Machine {
    /// Builds it and lets it run. Signals must be blocked by now.
    ///
    /// [`Machine::finish`] waits for its end as `wait` says.
    pub fn start(
        board: spec::Board,
        parts: Parts,
        remote: Arc<OnceLock<vmm::Remote>>,
    ) -> Result<Machine, Error> {
        let Parts { mut configuration, handles, wait, telling } = parts;
        plugged::put_in_bus_order(&mut configuration.devices);
        let processors = configuration.processors;
        let history = telling.history.clone();
        let (ended, guard) = UnixStream::pair()?;
        let thread = std::thread::Builder::new().name("machine".into()).spawn(move || {
            // Its end is seen when this closes, also after a panic.
            let _guard = guard;
            match board {
                spec::Board::Pc => run::<vmm::Platform>(configuration, handles, &telling, &remote),
                spec::Board::Xen => run::<vmm::XenBoard>(configuration, handles, &telling, &remote),
            }
        })?;
        Ok(Machine { thread, ended, wait, history, processors })
    }

    /// What asks for the history while it runs, if there is one.
    pub fn question(&self) -> Option<Box<dyn Fn()>> {
        let teller = self.history.clone()?;
        Some(Box::new(move || teller.ask()))
    }

    /// Has the history told before time is up for good.
    pub fn tell_history(&self) {
        if let Some(teller) = &self.history {
            teller.ask_and_wait(self.processors);
        }
    }

    /// What becomes readable when the machine has ended.
    pub fn ended(&self) -> io::Result<UnixStream> {
        self.ended.try_clone()
    }

    /// Waits for the end if its traces are wanted, but not forever: the guest may not come to it.
    pub fn finish(self) -> Result<(), Error> {
        let seconds = match self.wait {
            Wait::No => return Ok(()),
            Wait::ForTraces => FINISH_PATIENCE_SECONDS,
            Wait::UntilWritten => WRITING_PATIENCE_SECONDS,
        };
        let deadline = Instant::now() + Duration::from_secs(seconds);
        match wait_for(&self.ended, PollFlags::IN, Some(deadline)) {
            Ok(ready) if !ready.is_empty() => self.outcome().map(drop),
            _ if self.wait == Wait::UntilWritten => Err(Error::Unwritten),
            _ => Ok(()),
        }
    }

    /// Waits for the end and says how it came.
    pub fn outcome(self) -> Result<Outcome, Error> {
        self.thread.join().map_err(|_| Error::Panicked)?
    }
}

fn run<B: vmm::Board>(
    configuration: Configuration,
    handles: Handles,
    telling: &Telling,
    remote: &OnceLock<vmm::Remote>,
) -> Result<Outcome, Error> {
    if configuration.confine {
        // Helpers are forked soon, and have of both what this process has.
        host::privileges::drop_all().map_err(io::Error::from)?;
        host::confine::hide()?;
    }
    let mut machine = vmm::Machine::<B>::on_board(configuration)?;
    let Handles { balloon, window } = handles;
    let mut seen = machine.remote();
    (seen.balloon, seen.window) = (balloon, window);
    // There is one machine only.
    let _ = remote.set(seen);
    if let Some(teller) = &telling.history {
        teller.attend(machine.questions());
    }
    let outcome = machine.run()?;
    if let (Some(teller), Outcome::TripleFault(_) | Outcome::Reset) = (&telling.history, &outcome) {
        teller.tell_of(machine.processors());
    }
    if telling.stats {
        let mut text =
            statistics::describe(machine.processors(), machine.activity(), machine.age());
        text.push_str(&statistics::describe_requests(&machine.directory_requests()));
        // Standard error may be closed.
        let _ = io::stderr().write_all(text.as_bytes());
    }
    Ok(outcome)
}
