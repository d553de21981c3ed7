//! What `biv` does while a machine runs: carries the user's standard streams to and from the guest,
//! and ends when the command, the machine, the user or the clock says so.
//!
//! One loop in one thread polls everything and blocks on nothing. What is at the other end is a
//! [`Link`]: the channel to the guest's init ([`channel`]), or a bare serial console ([`console`]).
//! Signals are blocked and read from a descriptor, so no handler runs anywhere: the processor's
//! threads run with registers of the guest, on which no ordinary handler could live.

use std::io::{self, IsTerminal};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::terminal::{self, Escape, Raw};

pub mod channel;
pub mod console;
mod output;
mod signals;

pub use output::Output;
pub use signals::Signals;

/// How much is read from standard input at once.
const INPUT_PIECE_BYTES: usize = 4096;

/// How long output that nobody reads may hold up the end.
const FLUSH_PATIENCE: Duration = Duration::from_secs(5);

/// Two SIGINTs within this time end the machine; a single one is the command's.
const INTERRUPT_TWICE: Duration = Duration::from_secs(1);

/// How a session ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The command ended with this status.
    Exited(u8),
    /// This signal ended the command.
    Signaled(u8),
    /// The machine has ended, or at least its end of the line.
    MachineEnded,
    /// Time is up.
    TimedOut,
    /// The user pressed the key that ends the machine.
    Escaped,
    /// This signal tells `biv` to end.
    Killed(u8),
}

/// Why a session could not go on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A descriptor or signal set-up failed.
    #[error("cannot talk to the guest: {0}")]
    Io(#[from] io::Error),
    /// The user's terminal.
    #[error("cannot prepare the terminal: {0}")]
    Terminal(io::Error),
    /// Standard output or standard error.
    #[error("cannot write {name}: {error}")]
    Output {
        /// Which.
        name: &'static str,
        /// What is wrong with it.
        error: io::Error,
    },
    /// The guest's init talks nonsense.
    #[error(transparent)]
    Protocol(#[from] protocol::Error),
    /// The command cannot be sent.
    #[error(transparent)]
    Order(#[from] protocol::OrderError),
    /// The guest sent a frame that only a host sends.
    #[error("the guest sent a frame out of turn")]
    OutOfTurn,
}

impl From<Errno> for Error {
    fn from(error: Errno) -> Error {
        Error::Io(error.into())
    }
}

/// The other end of the user's streams. None of it blocks.
pub trait Link {
    /// Whether a command runs at the other end, whose status is wanted.
    const HAS_COMMAND: bool;
    /// What to poll, and for what.
    fn descriptor(&self) -> BorrowedFd<'_>;
    /// What to wait for on it.
    fn interest(&self) -> PollFlags;
    /// Called when the descriptor is ready: sends and receives. `false` if the other end has gone.
    fn exchange(&mut self, outputs: &mut Outputs) -> Result<bool, Error>;
    /// How many bytes of input it takes now.
    fn room(&self) -> usize;
    /// Takes input; at most [`Link::room`] bytes.
    fn input(&mut self, bytes: &[u8]);
    /// There will be no more input.
    fn end_of_input(&mut self);
    /// Passes on a signal for the command; `false` if there is no command to take it.
    fn signal(&mut self, number: u8) -> bool;
    /// Passes on the size of the terminal.
    fn resize(&mut self, rows: u16, columns: u16);
    /// Bytes that the user has been given.
    fn delivered(&mut self, bytes: usize);
    /// How the command ended, if it has.
    fn ending(&self) -> Option<Ending>;
}

/// The user's standard output and standard error.
#[derive(Debug)]
pub struct Outputs {
    /// Standard output.
    pub stdout: Output,
    /// Standard error.
    pub stderr: Output,
}

impl Default for Outputs {
    fn default() -> Outputs {
        Outputs {
            stdout: Output::new("standard output", rustix::stdio::stdout()),
            stderr: Output::new("standard error", rustix::stdio::stderr()),
        }
    }
}

/// What a session is made of.
pub struct Session<L> {
    /// The other end.
    pub link: L,
    /// Readable, or closed, when the machine has ended.
    pub machine: UnixStream,
    /// When to give up.
    pub deadline: Option<Instant>,
    /// Whether the guest gets the terminal raw.
    pub raw: bool,
    /// The signals, blocked since before the machine's threads were started.
    pub signals: Signals,
}

impl<L: Link> Session<L> {
    /// Runs until something ends it. The terminal is restored when this returns.
    pub fn run(self) -> Result<Ending, Error> {
        let raw = if self.raw { Some(Raw::enter().map_err(Error::Terminal)?) } else { None };
        let mut running = Running {
            session: self,
            outputs: Outputs::default(),
            stdin_open: true,
            escape: Escape::default(),
            interrupted: None,
            link_open: true,
        };
        let ending = running.run();
        drop(raw);
        ending
    }
}

struct Running<L> {
    session: Session<L>,
    outputs: Outputs,
    stdin_open: bool,
    escape: Escape,
    interrupted: Option<Instant>,
    link_open: bool,
}

/// What a poll watches.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    Signals,
    Machine,
    Link,
    Stdin,
    Stdout,
    Stderr,
}

impl<L: Link> Running<L> {
    fn run(&mut self) -> Result<Ending, Error> {
        loop {
            let Some(ready) = self.wait(self.session.deadline)? else {
                return Ok(Ending::TimedOut);
            };
            if let Some(ending) = self.step(&ready)? {
                return self.finish(ending);
            }
        }
    }

    /// Does what can be done; returns the ending, if this was it.
    fn step(&mut self, ready: &[Source]) -> Result<Option<Ending>, Error> {
        if ready.contains(&Source::Signals)
            && let Some(ending) = self.take_signals()?
        {
            return Ok(Some(ending));
        }
        if ready.contains(&Source::Link) {
            self.link_open = self.session.link.exchange(&mut self.outputs)?;
        }
        if ready.contains(&Source::Stdin)
            && let Some(ending) = self.take_input()
        {
            return Ok(Some(ending));
        }
        self.give_output(ready)?;
        if let Some(ending) = self.session.link.ending() {
            return Ok(Some(ending));
        }
        let ended = ready.contains(&Source::Machine) || !self.link_open;
        // What the machine wrote before it ended is still to be read.
        if ended && self.link_open {
            self.drain_link()?;
            return Ok(Some(self.session.link.ending().unwrap_or(Ending::MachineEnded)));
        }
        Ok(ended.then_some(Ending::MachineEnded))
    }

    /// Waits for something to do; `None` when `until` has come first.
    fn wait(&self, until: Option<Instant>) -> Result<Option<Vec<Source>>, Error> {
        let link = &self.session.link;
        let stdin = rustix::stdio::stdin();
        let mut watched: Vec<(Source, BorrowedFd<'_>, PollFlags)> = vec![
            (Source::Signals, self.session.signals.as_fd(), PollFlags::IN),
            (Source::Machine, self.session.machine.as_fd(), PollFlags::IN),
        ];
        if self.link_open {
            watched.push((Source::Link, link.descriptor(), link.interest()));
        }
        if self.stdin_open && link.room() > 0 {
            watched.push((Source::Stdin, stdin, PollFlags::IN));
        }
        for (source, output) in
            [(Source::Stdout, &self.outputs.stdout), (Source::Stderr, &self.outputs.stderr)]
        {
            if output.is_pending() {
                watched.push((source, output.as_fd(), PollFlags::OUT));
            }
        }
        let mut fds: Vec<PollFd<'_>> =
            watched.iter().map(|(_, fd, flags)| PollFd::from_borrowed_fd(*fd, *flags)).collect();
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        match poll(&mut fds, left.as_ref()) {
            Ok(0) => return Ok(None),
            Ok(_) => {}
            Err(Errno::INTR) => return Ok(Some(Vec::new())),
            Err(error) => return Err(error.into()),
        }
        let ready = fds.iter().zip(&watched).filter(|(fd, _)| !fd.revents().is_empty());
        Ok(Some(ready.map(|(_, (source, ..))| *source).collect()))
    }

    fn take_signals(&mut self) -> Result<Option<Ending>, Error> {
        while let Some(signal) = self.session.signals.take()? {
            match signal {
                Signal::SIGWINCH => {
                    let (rows, columns) = terminal::size();
                    self.session.link.resize(rows, columns);
                }
                Signal::SIGINT => {
                    let again = self.interrupted.is_some_and(|at| at.elapsed() < INTERRUPT_TWICE);
                    self.interrupted = Some(Instant::now());
                    if again || !self.session.link.signal(signal as u8) {
                        return Ok(Some(Ending::Killed(signal as u8)));
                    }
                }
                other => return Ok(Some(Ending::Killed(other as u8))),
            }
        }
        Ok(None)
    }

    fn take_input(&mut self) -> Option<Ending> {
        let mut buffer = [0; INPUT_PIECE_BYTES];
        let room = self.session.link.room().min(buffer.len());
        match rustix::io::read(rustix::stdio::stdin(), &mut buffer[..room]) {
            Err(Errno::INTR | Errno::AGAIN) => {}
            // Standard input that cannot be read is one that has nothing in it.
            Ok(0) | Err(_) => {
                self.stdin_open = false;
                self.session.link.end_of_input();
            }
            Ok(count) => {
                let typed = &buffer[..count];
                if self.session.raw && self.escape.typed(typed, Instant::now()) {
                    return Some(Ending::Escaped);
                }
                self.session.link.input(typed);
            }
        }
        None
    }

    fn give_output(&mut self, ready: &[Source]) -> Result<(), Error> {
        for (source, output) in
            [(Source::Stdout, &mut self.outputs.stdout), (Source::Stderr, &mut self.outputs.stderr)]
        {
            if !ready.contains(&source) && !output.is_closed() {
                continue;
            }
            let was_closed = output.is_closed();
            let delivered = output.give()?;
            self.session.link.delivered(delivered);
            if output.is_closed() && !was_closed {
                // As if the command had written to the pipe itself.
                self.session.link.signal(Signal::SIGPIPE as u8);
            }
        }
        Ok(())
    }

    /// Takes what is on the link already; the machine writes nothing any more.
    fn drain_link(&mut self) -> Result<(), Error> {
        loop {
            let interest = PollFlags::IN;
            let mut fds = [PollFd::from_borrowed_fd(self.session.link.descriptor(), interest)];
            let none = Timespec { tv_sec: 0, tv_nsec: 0 };
            if poll(&mut fds, Some(&none))? == 0 {
                return Ok(());
            }
            if !self.session.link.exchange(&mut self.outputs)? {
                self.link_open = false;
                return Ok(());
            }
            self.flush()?;
        }
    }

    /// Writes what is still to be written, and returns `ending`, or what came in between.
    fn finish(&mut self, ending: Ending) -> Result<Ending, Error> {
        match ending {
            Ending::Exited(_) | Ending::Signaled(_) | Ending::MachineEnded => self.flush()?,
            Ending::TimedOut | Ending::Escaped | Ending::Killed(_) => {
                // What can be written at once is; nothing is waited for.
                let ready = [Source::Stdout, Source::Stderr];
                let ready: Vec<_> = self
                    .wait(Some(Instant::now()))?
                    .unwrap_or_default()
                    .into_iter()
                    .filter(|source| ready.contains(source))
                    .collect();
                self.give_output(&ready)?;
            }
        }
        Ok(ending)
    }

    fn flush(&mut self) -> Result<(), Error> {
        let mut patience = Instant::now() + FLUSH_PATIENCE;
        loop {
            let (out, err) = (&mut self.outputs.stdout, &mut self.outputs.stderr);
            let mut fds = Vec::new();
            for output in [&*out, &*err] {
                if output.is_pending() {
                    fds.push(PollFd::from_borrowed_fd(output.as_fd(), PollFlags::OUT));
                }
            }
            if fds.is_empty() {
                return Ok(());
            }
            fds.push(PollFd::new(&self.session.signals, PollFlags::IN));
            let left = patience.saturating_duration_since(Instant::now());
            match poll(&mut fds, Timespec::try_from(left).ok().as_ref()) {
                Ok(0) => return Ok(()),
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            if fds.last().is_some_and(|signals| !signals.revents().is_empty()) {
                return Ok(());
            }
            let delivered = out.give()? + err.give()?;
            if delivered > 0 {
                patience = Instant::now() + FLUSH_PATIENCE;
            }
        }
    }
}

/// Whether standard input comes from a person's terminal.
#[must_use]
pub fn stdin_is_terminal() -> bool {
    io::stdin().is_terminal()
}
