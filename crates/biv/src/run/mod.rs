//! `biv run`: boots a machine and stays with it until it, its command, the user or the clock ends.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::Instant;

use protocol::Order;
use vmm::{Configuration, Contents, Module, Outcome, Sink};

use crate::cli::Run;
use crate::domain::detach::{self, Role};
use crate::domain::{self, Domain, Plan};
use crate::initramfs;
use crate::inspect;
use crate::network::{self, Net};
use crate::provision::{self, Guest, Part};
use crate::session::channel::Channel;
use crate::session::console::Console;
use crate::session::{self, Ending, Input, Outputs, Session, Signals};
use crate::{status, terminal};

pub mod directories;
pub mod disk;
mod files;
mod machine;
mod statistics;

use self::directories::Directories;
use self::machine::{Machine, Telling, Wait};

/// An ELF file is a test kernel, a small operating system or a vmlinux; it gets no user space of
/// ours unless that is asked for.
const ELF_MAGIC: &[u8] = b"\x7fELF";

/// The search path of commands in the guest.
pub const PATH: &[u8] = b"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

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
    /// A file that the user named, of which there is more than could be of use.
    #[error("cannot use {path}: {error}, which is too much for {whom}", path = path.display())]
    TooLarge {
        /// Which.
        path: PathBuf,
        /// How large it is.
        error: io::Error,
        /// For what it is too large, and what to do.
        whom: String,
    },
    /// The default guest.
    #[error(transparent)]
    Provision(#[from] provision::Error),
    /// The guest's first file system.
    #[error(transparent)]
    Initramfs(#[from] initramfs::Error),
    /// The network.
    #[error(transparent)]
    Network(#[from] network::Error),
    /// Its place among other domains.
    #[error(transparent)]
    Domain(#[from] domain::Error),
    /// What is to be seen of the engine.
    #[error(transparent)]
    Inspect(#[from] inspect::Error),
    /// Streams and signals.
    #[error(transparent)]
    Session(#[from] session::Error),
    /// A disk.
    #[error(transparent)]
    Disk(#[from] disk::Error),
    /// The machine.
    #[error(transparent)]
    Machine(#[from] machine::Error),
    /// The kernel, or how it is to be started.
    #[error("cannot boot {path}: {error}", path = path.display())]
    Kernel {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        error: vmm::Error,
    },
    /// The order to the guest.
    #[error(transparent)]
    Order(#[from] protocol::OrderError),
    /// A descriptor.
    #[error("cannot start the machine: {0}")]
    Io(#[from] io::Error),
}

/// Does what `biv run` says; returns the exit status.
pub fn run(arguments: &Run) -> Result<u8, Error> {
    let child = match arguments.detach.then(detach::role).transpose()? {
        Some(Role::Parent) => return Ok(detach::start()?),
        Some(Role::Child(child)) => Some(child),
        None => None,
    };
    // It starts while we read the guest's files.
    let network = network::start(
        &net(arguments),
        &arguments.publish,
        arguments.cpus.into(),
        !arguments.no_seccomp,
    )?;
    let guest = GuestFiles::find(arguments)?;
    let path = guest.kernel_path.clone();
    let mut domain = Domain::begin(&guest.plan(arguments))?;
    let result =
        run_guest(guest, network, arguments, &mut domain, child).map_err(|error| match error {
            Error::Machine(machine::Error::Machine(error @ vmm::Error::Boot(_))) => {
                Error::Kernel { path, error }
            }
            error => error,
        });
    match &result {
        Ok(status) => domain.end(*status, None),
        Err(error) => domain.end(status::FAILURE, Some(error.to_string())),
    }
    result
}

fn run_guest(
    guest: GuestFiles,
    network: Option<network::Starting>,
    arguments: &Run,
    domain: &mut Domain,
    child: Option<detach::Child>,
) -> Result<u8, Error> {
    let has_history = arguments.inspect.history.is_some();
    let signals = if has_history { Signals::block_with_question() } else { Signals::block() }?;
    let deadline = arguments.timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    let (ours, theirs) = session::Line::pair()?;
    let is_plain = guest.is_plain;
    let order = order(arguments, &guest.directories);
    let mut configuration = guest.configuration(arguments)?;
    configuration.disks = arguments.disks().map(disk::open).collect::<Result<_, _>>()?;
    let keeps_writes = arguments.disks().any(disk::Argument::keeps_writes);
    let inspect::Prepared { inspection, teller } =
        inspect::prepare(&arguments.inspect, &configuration.kernel)?;
    configuration.inspection = inspection;
    configuration.reporter = teller.as_ref().map(inspect::Teller::reporter).unwrap_or_default();
    let telling = Telling { stats: arguments.stats, history: teller };
    let copy = arguments.console.as_deref().map(create).transpose()?;
    let debug = arguments.debug_console.as_deref().map(create).transpose()?;
    let wait = match keeps_writes {
        true => Wait::UntilWritten,
        false if arguments.stats || copy.is_some() || debug.is_some() => Wait::ForTraces,
        false => Wait::No,
    };
    configuration.debug_console = debug.map(|file| Sink(Box::new(file)));
    let parameter = network.as_ref().map(|network| network.parameter().to_owned());
    if let Some(network) = network {
        network.connect(&mut configuration);
    }
    if is_plain {
        configuration.command_line = command_line(&["console=ttyS0"], arguments);
        configuration.reboot = !arguments.no_reboot;
        configuration.console = match copy {
            Some(copy) => machine::line_with_copy(theirs, copy),
            None => machine::line(theirs),
        };
        domain.serve(None)?;
        let (notice, started) = std::sync::mpsc::channel();
        configuration.on_start = Some(vmm::Notice::new(move || {
            // Nobody waits for it but who detaches.
            let _ = notice.send(());
        }));
        let machine = Machine::start(configuration, wait, telling, domain.machine.clone())?;
        let mut outputs = Outputs::default();
        if let Some(child) = child
            && started.recv().is_ok()
        {
            domain.going_on(child)?.go_on(&mut outputs)?;
        }
        // What runs without us has an input, and nobody who types.
        let input = if arguments.detach { Input::Endless } else { Input::Ours };
        let user = User { raw: terminal::is_interactive(), input, outputs };
        converse(Console::new(ours)?, machine, deadline, user, signals)
    } else {
        let rdinit = format!("rdinit={}", initramfs::INIT);
        let quiet = if arguments.verbose == 0 && copy.is_none() { "quiet" } else { "" };
        // A panic resets the guest at once, and its command is lost with it.
        let parameter = parameter.as_deref().unwrap_or_default();
        let words = ["console=ttyS0", quiet, "panic=-1", &rdinit, "biv.channel=ttyS1", parameter];
        configuration.command_line = command_line(&words, arguments);
        configuration.console.output = match copy {
            Some(copy) => Some(Box::new(copy)),
            None if arguments.verbose > 0 => Some(Box::new(io::stderr())),
            None => None,
        };
        configuration.channel = machine::line(theirs);
        let raw = order.terminal.is_some() && session::stdin_is_terminal();
        let (ours, trouble) = domain.serve(Some(ours))?;
        let ours = ours.ok_or_else(|| io::Error::other("the channel has no end for us"))?;
        let mut link = Channel::new(ours, &order)?.with_trouble(trouble);
        if let Some(child) = child {
            let going_on = domain.going_on(child)?;
            link = link.on_start(move |outputs| going_on.go_on(outputs));
        }
        let machine = Machine::start(configuration, wait, telling, domain.machine.clone())?;
        let input = match (arguments.detach, order.terminal) {
            (false, _) => Input::Ours,
            (true, None) => Input::None,
            (true, Some(_)) => Input::Endless,
        };
        converse(link, machine, deadline, User { raw, input, ..User::default() }, signals)
    }
}

/// The kernel's command line: `words`, then what `--append` says, which therefore wins.
fn command_line(words: &[&str], arguments: &Run) -> String {
    let append = arguments.append.as_deref().unwrap_or_default();
    let words = words.iter().copied().chain([append]).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join(" ")
}

/// What there is at our end of the conversation.
#[derive(Default)]
struct User {
    raw: bool,
    input: Input,
    outputs: Outputs,
}

fn converse<L: session::Link>(
    link: L,
    machine: Machine,
    deadline: Option<Instant>,
    user: User,
    signals: Signals,
) -> Result<u8, Error> {
    let (ended, report) = (machine.ended()?, machine.question());
    let User { raw, input, outputs } = user;
    let machine_end = Some(ended);
    let session =
        Session { link, machine: machine_end, deadline, raw, signals, outputs, input, report };
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
            machine.tell_history();
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
        Outcome::TripleFault(state) => {
            tracing::info!("{state}");
            say("the guest's processor shut down (triple fault); -v shows its state");
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
        // By `biv kill`, or by `biv stop` after a while.
        Outcome::Stopped => status::of_signal(9),
    }
}

fn say(message: &str) {
    use std::io::Write;
    // Standard error may be closed; the status still tells.
    let _ = writeln!(io::stderr(), "biv: {message}");
}

/// The kernel and the initial RAM disk, and what kind of guest they make.
struct GuestFiles {
    kernel: Contents,
    kernel_path: PathBuf,
    modules: Vec<Module>,
    is_plain: bool,
    directories: Directories,
}

/// What the machine is connected to, said or not.
fn net(arguments: &Run) -> Net {
    let default = || if is_plain(arguments) { Net::None } else { Net::User(None) };
    arguments.net.clone().unwrap_or_else(default)
}

/// Whether nothing of ours will run in the guest.
fn is_plain(arguments: &Run) -> bool {
    let wants_init = !arguments.command.is_empty() || arguments.root.is_some();
    let is_elf = || arguments.kernel.as_deref().is_some_and(files::is_elf);
    !wants_init && (arguments.initrd.is_some() || is_elf())
}

impl GuestFiles {
    fn find(arguments: &Run) -> Result<GuestFiles, Error> {
        let has_disk = arguments.root_disk.is_some();
        let wants_init = !arguments.command.is_empty() || arguments.root.is_some() || has_disk;
        let given = arguments.kernel.as_deref().map(files::read_kernel).transpose()?;
        let is_elf = given.as_ref().is_some_and(|kernel| kernel.starts_with(ELF_MAGIC));
        let is_plain = !wants_init && (arguments.initrd.is_some() || is_elf);
        // A kernel of the user's may have no virtio-fs, and its modules are not at hand.
        let is_packed = is_plain || given.is_some() || arguments.initrd.is_some();
        let is_shared = !is_packed && !arguments.busybox && !has_disk;
        let mut directories = if is_plain {
            Directories::default()
        } else {
            Directories::open(arguments, is_shared)?
        };
        if let Some(root) = &arguments.root_disk {
            directories.set_root_disk(root.device(), root.disk.read_only);
        }
        let is_packed_here = !is_shared && arguments.initrd.is_none() && arguments.root.is_none();
        let needs_busybox = !is_plain && is_packed_here && !has_disk;
        // What the user named is looked at before anything is downloaded.
        let memory = arguments.mem;
        let initrd = |path: &Path| files::read_module(path, memory, String::new());
        let mut modules = match (&arguments.initrd, &arguments.root) {
            (Some(list), _) if is_plain && is_elf => files::read_modules(list, memory)?,
            (Some(path), _) if is_plain => vec![initrd(path)?],
            (Some(path), _) => vec![initrd(path)?, module(initramfs::only_init()?)],
            (None, _) if is_shared || has_disk => vec![module(initramfs::only_init()?)],
            (None, Some(root)) => vec![module(initramfs::from_directory(root, memory)?)],
            (None, None) => Vec::new(),
        };
        let mut needed = Vec::new();
        if given.is_none() {
            needed.push(Part::Kernel);
        }
        let drivers =
            if is_plain || given.is_some() { Vec::new() } else { drivers(arguments, &directories) };
        if !drivers.is_empty() {
            needed.push(Part::Drivers);
        }
        if needs_busybox {
            needed.push(Part::Busybox);
        }
        let guest =
            if arguments.refresh { Guest::renew(&needed) } else { Guest::provide(&needed) }?;
        if needs_busybox {
            modules.push(module(initramfs::default_guest(&guest.busybox()?)?));
        }
        if !drivers.is_empty() {
            modules.push(module(initramfs::only_drivers(&guest.drivers(&drivers)?)?));
        }
        let mounts = directories.list();
        if !mounts.is_empty() {
            modules.push(module(initramfs::only_mounts(&mounts)?));
        }
        let kernel_path = arguments.kernel.clone().unwrap_or_else(|| guest.kernel());
        let kernel = given.map_or_else(|| files::read_kernel(&kernel_path), Ok)?;
        Ok(GuestFiles { kernel, kernel_path, modules, is_plain, directories })
    }

    /// What is said of the machine to whoever asks.
    fn plan(&self, arguments: &Run) -> Plan {
        let words = std::env::args_os().skip(2);
        Plan {
            name: arguments.name.clone(),
            detached: arguments.detach,
            forgotten: arguments.rm,
            command: words.map(|word| word.to_string_lossy().into_owned()).collect(),
            has_init: !self.is_plain,
            memory: arguments.mem,
            processors: arguments.cpus,
            kernel: self.kernel_path.to_string_lossy().into_owned(),
        }
    }

    /// A machine of these; command line, console, channel and reboot policy are the caller's.
    fn configuration(self, arguments: &Run) -> Result<Configuration, Error> {
        Ok(Configuration {
            directories: self.directories.serve(!arguments.no_seccomp)?,
            kernel: self.kernel,
            kernel_name: self.kernel_path.to_string_lossy().into_owned(),
            modules: self.modules,
            memory: arguments.mem,
            processors: arguments.cpus.into(),
            entropy: arguments.entropy,
            debug_exit: arguments.debug_exit,
            interpret: arguments.interpret,
            user_execution: arguments.user_execution(),
            techniques: arguments.without.unwrap_or_default(),
            // Without a place to keep it, the kernel is unpacked each time.
            cache: provision::cache_directory().ok().map(|cache| cache.join("unpacked")),
            count_interpreted: arguments.stats,
            confine: !arguments.no_seccomp,
            ..Configuration::default()
        })
    }
}

/// The modules that the default kernel needs for the machine's devices, in the order in which they are
/// to be loaded.
fn drivers(arguments: &Run, directories: &Directories) -> Vec<&'static str> {
    let mut names = Vec::new();
    if !directories.is_empty() {
        names.extend(directories::DRIVERS);
    }
    if arguments.entropy {
        names.push("virtio-rng");
    }
    if net(arguments) != Net::None {
        names.extend(["failover", "net_failover", "virtio_net"]);
    }
    if arguments.disks().next().is_some() {
        names.extend(disk::DRIVERS);
    }
    if names.is_empty() { names } else { [provision::VIRTIO, &names].concat() }
}

fn module(data: Vec<u8>) -> Module {
    Module { data: Contents::new(data), command_line: String::new() }
}

fn create(path: &Path) -> Result<File, Error> {
    File::create(path).map_err(|error| Error::Open { path: path.to_owned(), error })
}

/// What the guest's init is to run.
fn order(arguments: &Run, directories: &Directories) -> Order {
    let is_shell = arguments.command.is_empty();
    let on_terminal = arguments.tty || (is_shell && terminal::is_interactive());
    let mut environment = match directories.is_the_host {
        true => directories::environment(),
        false => vec![PATH.to_vec(), b"HOME=/root".to_vec()],
    };
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
        directory: directories
            .working_directory
            .as_ref()
            .map_or_else(|| b"/".to_vec(), |path| path.as_os_str().as_bytes().to_vec()),
        user: directories.user().into_bytes(),
        terminal: on_terminal.then(terminal::size),
    }
}
