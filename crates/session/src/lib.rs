//! A session: the loop of a program while a command of its user's runs in a guest. The session
//! copies the user's standard streams to and from the guest, and ends when the command, the
//! machine, the user or the time limit ends it.
//!
//! What it is not: a domain, or a machine. It knows neither. It knows the line to the other end
//! ([`Line`]), and the log that takes output which the user's streams no longer take
//! ([`api::log`]).
//!
//! One loop in one thread polls everything and blocks on nothing. The other end is a [`Link`]: the
//! channel to the guest's init ([`channel`]), or a bare serial console ([`console`]). Signals are
//! blocked and read from a descriptor, so no signal handler runs: vCPU threads run with registers
//! of the guest, on which no ordinary handler could run. The session restores the terminal in every
//! case ([`terminal`]).

#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::io::{self, IsTerminal};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use host::poll::{PollFlags, Poller, look_at, wait_for};
use nix::sys::signal::Signal;
use rustix::fs::{OFlags, fcntl_getfl, fstat};
use rustix::io::Errno;

use self::terminal::{Escape, Mode, Raw};
use api::log::{self, Stream};

pub mod channel;
pub mod console;
pub mod detach;
pub mod environment;
pub mod helper;
pub mod homes;
mod line;
mod output;
pub mod say;
pub mod shell;
mod signals;
pub mod terminal;
mod verdict;

pub use line::Line;
pub use output::Output;
pub use signals::{Signals, number_of as signal_number};
pub use verdict::Verdict;

/// How much is read from standard input at once.
const INPUT_PIECE_BYTES: usize = 64 * 1024;

/// What a person may type ahead while the guest takes nothing; what goes beyond is dropped, but
/// still watched for the key that ends the machine.
const TYPED_AHEAD_MAX_BYTES: usize = 64 * 1024;

/// Two SIGINTs within this time end the machine; a single one is the command's. What comes closer
/// together than anybody presses keys is one: timeout(1), for instance, signals process and group.
const INTERRUPT_TWICE: std::ops::Range<Duration> =
    Duration::from_millis(50)..Duration::from_secs(1);

/// How often one that is in the background looks whether it still is.
const BACKGROUND_INTERVAL: Duration = Duration::from_millis(500);

/// How long the end of the line may be later than the end of the machine.
const END_OF_LINE_PATIENCE: Duration = Duration::from_secs(1);

/// What is wrong with a guest, for whoever waits for its command: said by whoever passes on what it says.
pub type Trouble = Arc<OnceLock<String>>;

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
    /// The guest breaks the protocol with the hub.
    #[error("{0}")]
    Guest(String),
    /// The guest sent a frame that only a host sends.
    #[error("protocol error: the guest's init sent an unexpected frame")]
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
    /// What to poll for what the other end sends, if it may send now.
    fn input_end(&self) -> Option<BorrowedFd<'_>>;
    /// What to poll for room, if there is something to send.
    fn output_end(&self) -> Option<BorrowedFd<'_>>;
    /// Called when either is ready: sends and receives. `false` if the other end has gone.
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

impl Outputs {
    /// From here on both go to a log.
    pub fn keep_in(&mut self, log: &log::Shared) {
        self.stdout.keep_in(log, Stream::Stdout);
        self.stderr.keep_in(log, Stream::Stderr);
    }
}

/// Where a command's input comes from.
#[derive(Debug, Default)]
pub enum Input {
    /// Our standard input.
    #[default]
    Ours,
    /// Somebody of ours.
    From(OwnedFd),
    /// It has none.
    None,
    /// It is a terminal without input.
    Endless,
}

impl Input {
    /// That of a command that is kept, or goes on by itself (`is_detached`), whose input is to be open or not.
    #[must_use]
    pub fn of(is_detached: bool, is_open: bool) -> Input {
        match (is_detached, is_open) {
            (false, _) => Input::Ours,
            (true, false) => Input::None,
            (true, true) => Input::Endless,
        }
    }

    /// What is read, if anything is.
    fn descriptor(&self) -> BorrowedFd<'_> {
        match self {
            Input::From(descriptor) => descriptor.as_fd(),
            _ => rustix::stdio::stdin(),
        }
    }

    /// Whether it is a terminal that another process group has in the foreground now.
    fn is_in_background(&self) -> bool {
        matches!(self, Input::Ours) && terminal::is_in_background()
    }
}

/// Which signals are for the command, if there is one that takes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Passing {
    /// SIGINT, as long as it does not come twice; the others end the session.
    #[default]
    Interrupt,
    /// Those of keys, SIGINT and SIGQUIT, with the same exception; the others end the session.
    Keys,
    /// None.
    Nothing,
}

/// What a session is made of.
pub struct Session<L> {
    /// The other end.
    pub link: L,
    /// Readable, or closed, when the machine has ended; without one, it has when the link has.
    pub machine: Option<UnixStream>,
    /// When to give up.
    pub deadline: Option<Instant>,
    /// What is done to the terminal.
    pub mode: Mode,
    /// The key that ends it, if the terminal's mode gives keys.
    pub escape: Escape,
    /// The signals, blocked since before the machine's threads were started.
    pub signals: Signals,
    /// Which of them are passed on.
    pub passing: Passing,
    /// Where the command's output goes.
    pub outputs: Outputs,
    /// Where its input comes from.
    pub input: Input,
    /// What SIGUSR1 asks for, if [`Signals::block_with_question`] has it.
    pub report: Option<Box<dyn Fn()>>,
}

impl<L: Link> Session<L> {
    /// Runs until something ends it. The terminal is restored when this returns.
    pub fn run(mut self) -> Result<Ending, Error> {
        if self.mode == Mode::LinesAndKey && terminal::is_in_background() {
            self.mode = Mode::Lines;
        }
        let changed = match self.mode {
            Mode::Lines => None,
            Mode::LinesAndKey => Some(Raw::watch_key().map_err(Error::Terminal)?),
            Mode::Raw => Some(Raw::enter().map_err(Error::Terminal)?),
        };
        let input = std::mem::take(&mut self.input);
        let outputs = std::mem::take(&mut self.outputs);
        let escape = std::mem::take(&mut self.escape);
        let mut running = Running {
            session: self,
            outputs,
            stdin_open: matches!(input, Input::Ours | Input::From(_)),
            escape,
            typed: VecDeque::new(),
            input_ended: matches!(input, Input::Endless),
            input,
            interrupted: None,
            link_open: true,
        };
        let ending = running.run();
        drop(changed);
        ending
    }
}

struct Running<L> {
    session: Session<L>,
    outputs: Outputs,
    input: Input,
    stdin_open: bool,
    escape: Escape,
    /// Input that was read before the link had room for it.
    typed: VecDeque<u8>,
    /// The link knows that there is no more input.
    input_ended: bool,
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
        // Something may have come over the link before it was ours.
        let mut ready = vec![Source::Link];
        loop {
            if let Some(ending) = self.step(&ready)? {
                return Ok(ending);
            }
            ready = match self.wait()? {
                Some(ready) => ready,
                None => return Ok(Ending::TimedOut),
            };
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
        self.pass_input();
        if let Some(ending) = self.give_output()? {
            return Ok(Some(ending));
        }
        if let Some(ending) = self.session.link.ending() {
            return self.flush(ending).map(Some);
        }
        if self.session.machine.is_none() && !self.link_open {
            return self.flush(Ending::MachineEnded).map(Some);
        }
        if !ready.contains(&Source::Machine) {
            return Ok(None);
        }
        // What the machine wrote before it ended is still to be read.
        self.drain_link().map(Some)
    }

    /// Waits for something to do; `None` when time is up first.
    fn wait(&self) -> Result<Option<Vec<Source>>, Error> {
        let link = &self.session.link;
        let mut poller = Poller::new();
        poller.register(Source::Signals, self.session.signals.as_fd(), PollFlags::IN);
        if let Some(machine) = &self.session.machine {
            poller.register(Source::Machine, machine.as_fd(), PollFlags::IN);
        }
        if let Some(end) = link.input_end().filter(|_| self.link_open) {
            poller.register(Source::Link, end, PollFlags::IN);
        }
        if let Some(end) = link.output_end().filter(|_| self.link_open) {
            poller.register(Source::Link, end, PollFlags::OUT);
        }
        // A person is always listened to; a file or a pipe waits until there is room for it.
        let is_person = self.session.mode != Mode::Lines;
        let is_wanted = is_person || (link.room() > 0 && self.typed.is_empty());
        let may_not_read = self.stdin_open && self.input.is_in_background();
        if self.stdin_open && is_wanted && !may_not_read {
            poller.register(Source::Stdin, self.input.descriptor(), PollFlags::IN);
        }
        for (source, output) in
            [(Source::Stdout, &self.outputs.stdout), (Source::Stderr, &self.outputs.stderr)]
        {
            if output.is_pending() {
                poller.register(source, output.as_fd(), PollFlags::OUT);
            }
        }
        let end = self.session.deadline;
        let look = may_not_read.then(|| Instant::now() + BACKGROUND_INTERVAL);
        let until = end.into_iter().chain(look).min();
        match poller.wait(until)? {
            0 if until == end => Ok(None),
            _ => Ok(Some(poller.ready().map(|(source, _)| source).collect())),
        }
    }

    fn take_signals(&mut self) -> Result<Option<Ending>, Error> {
        while let Some(signal) = self.session.signals.take()? {
            match signal {
                Signal::SIGWINCH => {
                    let (rows, columns) = terminal::size();
                    self.session.link.resize(rows, columns);
                }
                signals::QUESTION => {
                    if let Some(report) = &self.session.report {
                        report();
                    }
                }
                signal => {
                    if !self.pass_on(signal) {
                        return Ok(Some(Ending::Killed(signal as u8)));
                    }
                }
            }
        }
        Ok(None)
    }

    /// Whether a signal that tells somebody to end was for the command.
    fn pass_on(&mut self, signal: Signal) -> bool {
        match self.session.passing {
            Passing::Nothing => return false,
            Passing::Interrupt if signal != Signal::SIGINT => return false,
            Passing::Keys if !matches!(signal, Signal::SIGINT | Signal::SIGQUIT) => return false,
            _ => {}
        }
        if signal == Signal::SIGINT {
            let since = self.interrupted.map(|last| last.elapsed());
            if since.is_some_and(|since| since < INTERRUPT_TWICE.start) {
                return true;
            }
            self.interrupted = Some(Instant::now());
            if since.is_some_and(|since| INTERRUPT_TWICE.contains(&since)) {
                return false;
            }
        }
        self.session.link.signal(signal as u8)
    }

    fn take_input(&mut self) -> Option<Ending> {
        let mut buffer = [0; INPUT_PIECE_BYTES];
        match rustix::io::read(self.input.descriptor(), &mut buffer) {
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(Errno::IO) if self.input.is_in_background() => {}
            // A raw terminal has no end: it has gone.
            Ok(0) | Err(_) if self.session.mode == Mode::Raw => {
                return Some(Ending::Killed(Signal::SIGHUP as u8));
            }
            // The end of one line's input is not that of the key.
            Ok(0) if self.session.mode == Mode::LinesAndKey && !self.has_hung_up() => {}
            // Standard input that cannot be read is one that has nothing in it.
            Ok(0) | Err(_) => self.stdin_open = false,
            Ok(count) => {
                let typed = &buffer[..count];
                let is_watched = self.session.mode != Mode::Lines;
                if is_watched && self.escape.typed(typed, Instant::now()) {
                    return Some(Ending::Escaped);
                }
                let room = TYPED_AHEAD_MAX_BYTES.saturating_sub(self.typed.len());
                self.typed.extend(&typed[..count.min(room)]);
            }
        }
        None
    }

    /// Whether the terminal that input comes from has gone.
    fn has_hung_up(&self) -> bool {
        let ready = look_at(self.input.descriptor(), PollFlags::IN);
        ready.map_or(true, |ready| ready.contains(PollFlags::HUP))
    }

    /// Hands on what was read, as far as there is room for it, and then its end.
    fn pass_input(&mut self) {
        let link = &mut self.session.link;
        while !self.typed.is_empty() && link.room() > 0 {
            let count = link.room().min(self.typed.len());
            let (front, _) = self.typed.as_slices();
            let count = count.min(front.len());
            link.input(&front[..count]);
            self.typed.drain(..count);
        }
        if !self.stdin_open && self.typed.is_empty() && !self.input_ended {
            self.input_ended = true;
            link.end_of_input();
        }
    }

    /// Writes what goes. Whoever writes to a pipe that nobody reads is ended by SIGPIPE: the
    /// command if there is one, else `biv`.
    fn give_output(&mut self) -> Result<Option<Ending>, Error> {
        const SIGPIPE: u8 = Signal::SIGPIPE as u8;
        for output in [&mut self.outputs.stdout, &mut self.outputs.stderr] {
            let was_closed = output.is_closed();
            let delivered = output.give()?;
            self.session.link.delivered(delivered);
            if output.is_closed() && !was_closed && !self.session.link.signal(SIGPIPE) {
                return Ok(Some(Ending::Killed(SIGPIPE)));
            }
        }
        Ok(None)
    }

    /// Takes what is on the link already, and gives it to the user; the machine writes nothing any
    /// more. Returns the ending, or what came in between.
    fn drain_link(&mut self) -> Result<Ending, Error> {
        while self.link_open {
            let ending = self.flush(Ending::MachineEnded)?;
            if ending != Ending::MachineEnded {
                return Ok(ending);
            }
            // After the flush there is room for more. The machine's end of the line is closed, so that an
            // end comes; but whoever passes on what it has sent may need a moment.
            let Some(end) = self.session.link.input_end() else { break };
            let deadline = Instant::now() + END_OF_LINE_PATIENCE;
            if wait_for(end, PollFlags::IN, Some(deadline))?.is_empty() {
                break;
            }
            self.link_open = self.session.link.exchange(&mut self.outputs)?;
        }
        self.flush(self.session.link.ending().unwrap_or(Ending::MachineEnded))
    }

    /// Writes all that is still to be written, however long its reader takes, and returns `ending`
    /// or what came in between.
    fn flush(&mut self, ending: Ending) -> Result<Ending, Error> {
        loop {
            self.give_output()?;
            let pending = [&self.outputs.stdout, &self.outputs.stderr];
            let mut poller = Poller::new();
            for output in pending.into_iter().filter(|output| output.is_pending()) {
                poller.register((), output.as_fd(), PollFlags::OUT);
            }
            if poller.is_empty() {
                return Ok(ending);
            }
            poller.register((), self.session.signals.as_fd(), PollFlags::IN);
            if poller.wait(self.session.deadline)? == 0 {
                return Ok(Ending::TimedOut);
            }
            if let Some(killed) = self.take_signals()? {
                return Ok(killed);
            }
        }
    }
}

/// Which of our standard streams can be of no use: input that cannot be read, output and errors that cannot be
/// written. The first process that closed them is to be told so by the command that uses them.
#[must_use]
pub fn closed_streams() -> [bool; 3] {
    let is_of_no_use = |descriptor: BorrowedFd<'_>, useless: OFlags| {
        fcntl_getfl(descriptor).map_or(true, |flags| flags & OFlags::RWMODE == useless)
    };
    [
        is_of_no_use(rustix::stdio::stdin(), OFlags::WRONLY),
        is_of_no_use(rustix::stdio::stdout(), OFlags::RDONLY),
        is_of_no_use(rustix::stdio::stderr(), OFlags::RDONLY),
    ]
}

/// Whether standard output and standard error are one file, as after `2>&1` or on a terminal.
#[must_use]
pub fn has_one_output() -> bool {
    let of = |stream| fstat(stream).map(|it| (it.st_dev, it.st_ino, it.st_rdev));
    let (stdout, stderr) = (of(rustix::stdio::stdout()), of(rustix::stdio::stderr()));
    matches!((stdout, stderr), (Ok(one), Ok(other)) if one == other)
}

/// Whether standard input comes from a person's terminal.
#[must_use]
pub fn stdin_is_terminal() -> bool {
    io::stdin().is_terminal()
}
