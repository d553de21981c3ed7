//! Starts the machine in a thread and tells how it ended: the seam to `vmm`.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::thread::JoinHandle;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::cli::Run;

/// How long a guest may take to switch itself off after its command has ended.
const FINISH_PATIENCE_SECONDS: i64 = 10;

/// Why there is no machine.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It could not be built, or it failed.
    #[error("{0}")]
    Machine(String),
    /// Its thread.
    #[error("cannot start the machine: {0}")]
    Thread(#[from] io::Error),
    /// A fault of ours.
    #[error("the machine's thread panicked; please report this with the message above")]
    Panicked,
}

/// How a machine ended by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Power-off.
    PoweredOff,
    /// A reset that was not followed by a boot.
    Reset,
    /// The processor shut down.
    TripleFault,
    /// The port of `--debug-exit`, with the status.
    DebugExit(u8),
}

/// Where the serial console goes.
#[derive(Debug)]
pub enum Console {
    /// Nobody reads it.
    Nowhere,
    /// For the user's eyes, beside the command's output.
    StandardError,
    /// Kept.
    File(File),
    /// Both ways, to the session.
    Line(UnixStream),
}

/// All that is needed to start a machine.
#[derive(Debug)]
pub struct Launch {
    /// The kernel's image.
    pub kernel: File,
    /// The initial RAM disk.
    pub initrd: Option<File>,
    /// The kernel's command line.
    pub words: Vec<u8>,
    /// Bytes of memory.
    pub memory: u64,
    /// The first serial port.
    pub console: Console,
    /// Where a copy of what it sends goes.
    pub console_copy: Option<File>,
    /// The second serial port.
    pub channel: Option<UnixStream>,
    /// Whether a reset boots again.
    pub reboot: bool,
    /// Whether there is a debug-exit port.
    pub debug_exit: bool,
    /// Whether to interpret only.
    pub interpret: bool,
    /// Whether to print what the engine did.
    pub stats: bool,
}

impl Launch {
    /// What the options say; console, channel and command line are the caller's.
    pub fn new(arguments: &Run, kernel: File, initrd: Option<File>) -> Launch {
        Launch {
            kernel,
            initrd,
            words: Vec::new(),
            memory: arguments.mem,
            console: Console::Nowhere,
            console_copy: None,
            channel: None,
            reboot: !arguments.no_reboot,
            debug_exit: arguments.debug_exit,
            interpret: arguments.interpret,
            stats: arguments.stats,
        }
    }

    /// Sets the kernel's command line: `words`, then what `--append` says, which therefore wins.
    pub fn command_line(&mut self, words: &[&str], arguments: &Run) {
        let append = arguments.append.as_deref().unwrap_or(OsStr::new("")).as_bytes();
        let words = words.iter().map(|word| word.as_bytes()).chain([append]);
        let words: Vec<&[u8]> = words.filter(|word| !word.is_empty()).collect();
        self.words = words.join(&b' ');
    }
}

/// A machine in its thread.
#[derive(Debug)]
pub struct Machine {
    thread: JoinHandle<Result<Outcome, Error>>,
    ended: UnixStream,
    wait: bool,
}

impl Machine {
    /// Builds it and lets it run. Signals must be blocked by now.
    pub fn start(launch: Launch) -> Result<Machine, Error> {
        let (ended, guard) = UnixStream::pair()?;
        let wait = launch.stats || matches!(launch.console, Console::File(_));
        let thread = std::thread::Builder::new().name("machine".into()).spawn(move || {
            // Its end is seen when this closes, also after a panic.
            let _guard = guard;
            run(launch)
        })?;
        Ok(Machine { thread, ended, wait })
    }

    /// What becomes readable when the machine has ended.
    pub fn ended(&self) -> io::Result<UnixStream> {
        self.ended.try_clone()
    }

    /// Waits for the end if its traces are wanted, but not forever: the guest may not come to it.
    pub fn finish(self) -> Result<(), Error> {
        if !self.wait {
            return Ok(());
        }
        let patience = Timespec { tv_sec: FINISH_PATIENCE_SECONDS, tv_nsec: 0 };
        match poll(&mut [PollFd::new(&self.ended, PollFlags::IN)], Some(&patience)) {
            Ok(count) if count > 0 => self.outcome().map(drop),
            _ => Ok(()),
        }
    }

    /// Waits for the end and says how it came.
    pub fn outcome(self) -> Result<Outcome, Error> {
        self.thread.join().map_err(|_| Error::Panicked)?
    }
}

fn run(launch: Launch) -> Result<Outcome, Error> {
    drop(launch);
    Err(Error::Machine("no engine".into()))
}
