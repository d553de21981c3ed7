//! `biv run`: boots a machine and stays with it until it, its command, the user or the clock ends.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::Instant;

use protocol::Order;

use crate::cli::Run;
use crate::initramfs;
use crate::provision::{self, Guest, Part};
use crate::session::channel::Channel;
use crate::session::console::Console;
use crate::session::{self, Ending, Session, Signals, channel};
use crate::{status, terminal};

mod kind;
mod machine;

use self::machine::{Launch, Machine, Outcome};

/// The search path of commands in the guest.
const PATH: &[u8] = b"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What runs when no command is given.
const SHELL: [&[u8]; 2] = [b"/bin/sh", b"-l"];

/// Why there was no run, or none to its end.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file that the user named.
    #[error("cannot open {path}: {error}", path = path.display())]
    Open {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        error: io::Error,
    },
    /// The default guest.
    #[error(transparent)]
    Provision(#[from] provision::Error),
    /// The guest's first file system.
    #[error(transparent)]
    Initramfs(#[from] initramfs::Error),
    /// Streams and signals.
    #[error(transparent)]
    Session(#[from] session::Error),
    /// The machine.
    #[error(transparent)]
    Machine(#[from] machine::Error),
    /// The order to the guest.
    #[error(transparent)]
    Order(#[from] protocol::OrderError),
    /// A descriptor.
    #[error("cannot start the machine: {0}")]
    Io(#[from] io::Error),
}

/// Does what `biv run` says; returns the exit status.
pub fn run(arguments: &Run) -> Result<u8, Error> {
    let guest = GuestFiles::find(arguments)?;
    let signals = Signals::block()?;
    let deadline = arguments.timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    let (ours, theirs) = channel::line()?;
    let mut launch = Launch::new(arguments, guest.kernel, guest.initrd);
    if guest.is_plain {
        launch.command_line(&["console=ttyS0"], arguments);
        launch.console = machine::Console::Line(theirs);
        if let Some(path) = &arguments.console {
            launch.console_copy = Some(create(path)?);
        }
        let machine = Machine::start(launch)?;
        let link = Console::new(ours)?;
        let raw = terminal::is_interactive();
        converse(link, machine, deadline, raw, signals)
    } else {
        let order = order(arguments);
        let rdinit = format!("rdinit={}", initramfs::INIT);
        let quiet =
            if arguments.verbose == 0 && arguments.console.is_none() { "quiet" } else { "" };
        launch.command_line(
            &["console=ttyS0", quiet, "panic=-1", &rdinit, "biv.channel=ttyS1"],
            arguments,
        );
        launch.console = match &arguments.console {
            Some(path) => machine::Console::File(create(path)?),
            None if arguments.verbose > 0 => machine::Console::StandardError,
            None => machine::Console::Nowhere,
        };
        launch.channel = Some(theirs);
        // A panic restarts the guest at once (panic=-1), and its command is lost with it.
        launch.reboot = false;
        let machine = Machine::start(launch)?;
        let link = Channel::new(ours, &order)?;
        let raw = order.terminal.is_some() && session::stdin_is_terminal();
        converse(link, machine, deadline, raw, signals)
    }
}

fn converse<L: session::Link>(
    link: L,
    machine: Machine,
    deadline: Option<Instant>,
    raw: bool,
    signals: Signals,
) -> Result<u8, Error> {
    let ended = machine.ended()?;
    let session = Session { link, machine: ended, deadline, raw, signals };
    let ending = session.run()?;
    match ending {
        Ending::Exited(status) => {
            // Nothing that the machine holds outlives it, so its power-off is not waited for,
            // unless somebody wants to know what it did.
            machine.finish()?;
            Ok(status)
        }
        Ending::Signaled(signal) => {
            machine.finish()?;
            Ok(status::of_signal(signal))
        }
        Ending::TimedOut => {
            say("the machine was ended by --timeout");
            Ok(status::TIMEOUT)
        }
        Ending::Escaped => Ok(status::of_signal(2)),
        Ending::Killed(signal) => Ok(status::of_signal(signal)),
        Ending::MachineEnded => Ok(judge(machine.outcome()?, L::HAS_COMMAND)),
    }
}

/// The status for a machine that has ended by itself.
fn judge(outcome: Outcome, has_command: bool) -> u8 {
    match outcome {
        Outcome::DebugExit(value) => value,
        Outcome::TripleFault => {
            say("the guest's processor shut down (triple fault)");
            status::TRIPLE_FAULT
        }
        Outcome::PoweredOff | Outcome::Reset if !has_command => status::SUCCESS,
        Outcome::PoweredOff => {
            say("the guest switched itself off before its command ended; -v shows its console");
            status::GUEST_LOST
        }
        Outcome::Reset => {
            say("the guest panicked or rebooted before its command ended; -v shows its console");
            status::GUEST_LOST
        }
    }
}

fn say(message: &str) {
    use std::io::Write;
    // Standard error may be closed; the status still tells.
    let _ = writeln!(io::stderr(), "biv: {message}");
}

/// The kernel and the initial RAM disk, and what kind of guest they make.
struct GuestFiles {
    kernel: File,
    initrd: Option<File>,
    is_plain: bool,
}

impl GuestFiles {
    fn find(arguments: &Run) -> Result<GuestFiles, Error> {
        let wants_init = !arguments.command.is_empty() || arguments.root.is_some();
        let kernel = arguments.kernel.as_deref().map(open).transpose()?;
        let is_plain = !wants_init
            && (arguments.initrd.is_some() || kernel.as_ref().is_some_and(kind::is_elf));
        let mut needed = Vec::new();
        if kernel.is_none() {
            needed.push(Part::Kernel);
        }
        let needs_busybox = !is_plain && arguments.initrd.is_none() && arguments.root.is_none();
        if needs_busybox {
            needed.push(Part::Busybox);
        }
        if let Some(initrd) = &arguments.initrd {
            open(initrd)?;
        }
        let guest = if needed.is_empty() { None } else { Some(Guest::provide(&needed)?) };
        let initrd = match (&arguments.initrd, &arguments.root, &guest) {
            (Some(initrd), _, _) if is_plain => Some(open(initrd)?),
            (Some(initrd), _, _) => Some(initramfs::with_init(initrd)?),
            (None, Some(root), _) => Some(initramfs::from_directory(root)?),
            (None, None, Some(guest)) if needs_busybox => {
                Some(initramfs::default_guest(&guest.busybox()?)?)
            }
            _ => None,
        };
        let kernel = match (kernel, guest) {
            (Some(kernel), _) => kernel,
            (None, Some(guest)) => open(&guest.kernel())?,
            (None, None) => return Err(io::Error::from(io::ErrorKind::NotFound).into()),
        };
        Ok(GuestFiles { kernel, initrd, is_plain })
    }
}

fn open(path: &Path) -> Result<File, Error> {
    let at = |error| Error::Open { path: path.to_owned(), error };
    let file = File::open(path).map_err(at)?;
    if file.metadata().map_err(at)?.is_dir() {
        return Err(at(io::ErrorKind::IsADirectory.into()));
    }
    Ok(file)
}

fn create(path: &Path) -> Result<File, Error> {
    File::create(path).map_err(|error| Error::Open { path: path.to_owned(), error })
}

/// What the guest's init is to run.
fn order(arguments: &Run) -> Order {
    let is_shell = arguments.command.is_empty();
    let on_terminal = arguments.tty || (is_shell && terminal::is_interactive());
    let mut environment = vec![PATH.to_vec(), b"HOME=/root".to_vec()];
    if on_terminal {
        let kind = std::env::var_os("TERM").unwrap_or_else(|| OsString::from("linux"));
        environment.push([b"TERM=", kind.as_bytes()].concat());
    }
    let command = if is_shell {
        SHELL.map(<[u8]>::to_vec).to_vec()
    } else {
        arguments.command.iter().map(|argument| argument.clone().into_vec()).collect()
    };
    Order {
        arguments: command,
        environment,
        directory: b"/".to_vec(),
        terminal: on_terminal.then(terminal::size),
    }
}
