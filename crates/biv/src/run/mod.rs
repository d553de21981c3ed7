//! Boots a machine and stays with it until it, its command, the user or the clock ends.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Instant;

use protocol::{Frame, Order};
use spec::Spec;
use vmm::devices::{Port, Serial};
use vmm::{Line, Outcome, TimeOfDay};

use crate::domain::detach::Child;
use crate::domain::hub::Conversation;
use crate::domain::snapshot::{Finish, Snapshots};
use crate::domain::{self, Domain, Ended, GuestEnd};
use crate::inspect;
use crate::network;
use crate::session::channel::Channel;
use crate::session::console::Console;
use crate::session::{self, Ending, Input, Outputs, Passing, Session, Signals};
use crate::terminal::{Escape, Mode};
use crate::{status, terminal, vsock};
use provision::initramfs;
use spec::shown;

mod devices;
pub mod directories;
pub mod disk;
mod files;
mod guest;
pub mod homes;
pub mod image_disk;
pub mod launch;
mod machine;
mod order;
mod plugged;
pub mod restore;
pub mod sandbox;
mod statistics;
pub mod surroundings;
mod tail;
mod warm;

use self::guest::Guest;
use self::launch::Launch;
use self::machine::{Machine, Telling, Wait};
use self::order::order;
use self::plugged::{Handles, Opened};
use self::tail::Tail;
use self::warm::{Start, Unnamed};

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
    /// A directory that is no directory of files.
    #[error(
        "cannot show a directory at {place}: its file system {}", described(kind),
        place = place.display()
    )]
    FileSystem {
        /// Where it was to be in the guest.
        place: PathBuf,
        /// What it is.
        kind: ::files::kinds::Kind,
    },
    /// What is described makes no sense.
    #[error("{0}")]
    Contradiction(String),
    /// A snapshot that the user named.
    #[error("cannot restore {path}: {error}", path = path.display())]
    Snapshot {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        error: vmm::snapshot::Error,
    },
    /// A snapshot of ours that does not say what it had.
    #[error(
        "cannot restore {path}: it does not say what its machine had of the host, or says it in words that \
         this biv does not know; take it again",
        path = .0.display()
    )]
    NoOrigin(PathBuf),
    /// A snapshot that nobody vouches for wants something of the host.
    #[error(
        "cannot restore {path}: it was made elsewhere, or changed since, and gets nothing of this host that \
         is not named; it wants {wanted} (name these or others after biv restore; --net none and \
         --no-publish do without)", path = path.display()
    )]
    Unnamed {
        /// Which.
        path: PathBuf,
        /// What it wants, as options.
        wanted: String,
    },
    /// A kernel that the user named.
    #[error(
        "there is no file {0} and no kernel of that version; `biv kernel pull {0}` fetches one"
    )]
    NoKernel(String),
    /// Directories for a machine in which nothing of ours could mount them.
    #[error(
        "--volume needs an init of ours in the guest, which this machine does not have: give a command after --"
    )]
    PlainVolume,
    /// A directory that a guest gets a copy of.
    #[error(
        "--root-rw needs a kernel of Debian's: with a kernel of your own, the guest has a copy of the directory in \
         its memory; do without it, or give --root-disk"
    )]
    PackedRoot,
    /// The same, where it is no version.
    #[error(
        "there is no file {0}; kernels that `biv kernel ls` lists are called by their versions, such as 6.12"
    )]
    NoKernelFile(String),
    /// An image that the user named.
    #[error("there is no image {0}; `biv image build {0}` makes one")]
    NoImage(String),
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
    /// Its sockets.
    #[error(transparent)]
    Vsock(#[from] vsock::Error),
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

/// Why a file system of that kind is not shown, and what to do.
fn described(kind: &::files::kinds::Kind) -> String {
    use ::files::kinds::Kind;
    match kind {
        Kind::OfTheKernel(name) => {
            format!("is {name}, a window into the host's kernel; name a directory with files")
        }
        Kind::Ordinary | Kind::Unknown(_) => {
            let number = match kind {
                Kind::Unknown(number) => *number,
                _ => 0,
            };
            format!(
                "is of a kind that biv does not know ({number:#x}, statfs(2)); if it holds files, say so: \
                 --volume HOST:GUEST:anyfs"
            )
        }
    }
}

/// Runs a machine; returns the exit status. `child` is this process, if it is one that goes on by itself.
pub fn run(spec: &Spec, child: Option<Child>) -> Result<u8, Error> {
    enter_directory(spec)?;
    // It starts while we read the guest's files.
    let network = network::start(spec, &guest::net(spec))?;
    let mut guest = Guest::find(spec)?;
    let key = guest.key.take();
    let result = run_domain(guest, network, spec, child);
    if let Err(Error::Machine(machine::Error::Machine(vmm::Error::Snapshot(_)))) = &result {
        // It was taken for one that fits; the next machine boots, and leaves another.
        key.iter().for_each(warm::forget);
        start_cold(spec);
    }
    result
}

/// Be where the machine is started.
fn enter_directory(spec: &Spec) -> Result<(), Error> {
    let Some(directory) = &spec.directory else { return Ok(()) };
    std::env::set_current_dir(directory)
        .map_err(|error| Error::Open { path: directory.clone(), error })
}

/// Start once more, to boot: nobody has seen anything of us yet. Who has detached is waited for, and cannot.
fn start_cold(spec: &Spec) {
    use std::os::unix::process::CommandExt;
    if spec.boot.cold || spec.life.detached {
        return;
    }
    let mut spec = spec.clone();
    spec.boot.cold = true;
    // If that fails, it is said why there was no warm start.
    if let Ok(mut command) = launch::command(&Launch::Run(Box::new(spec))) {
        let _ = command.exec();
    }
}

/// Runs a guest as a domain.
fn run_domain(
    guest: Guest,
    network: Option<network::Starting>,
    spec: &Spec,
    child: Option<Child>,
) -> Result<u8, Error> {
    let path = guest.kernel_path.clone();
    let mut domain = Domain::begin(guest.plan(spec)?)?;
    let result = run_guest(guest, network, spec, &mut domain, child).map_err(|error| match error {
        Error::Machine(machine::Error::Machine(error @ vmm::Error::Boot(_))) => {
            Error::Kernel { path, error }
        }
        error => error,
    });
    let at = domain::record::now();
    let (ending, result) = match result {
        Ok(Verdict { status, reason }) => (Ended { at, status, error: None, reason }, Ok(status)),
        Err(error) => {
            let said = Some(error.to_string());
            (Ended { at, status: status::FAILURE, error: said, reason: None }, Err(error))
        }
    };
    domain.end(ending);
    result
}

/// How a run ended.
struct Verdict {
    /// The exit status.
    status: u8,
    /// What has been said of it, if it did not end by itself.
    reason: Option<String>,
}

impl Verdict {
    /// It ended as its command did, or as somebody wanted.
    fn plain(status: u8) -> Verdict {
        Verdict { status, reason: None }
    }

    /// It ended before, for this reason, which is said.
    fn told(status: u8, reason: String) -> Verdict {
        say(&reason);
        Verdict { status, reason: Some(reason) }
    }
}

fn run_guest(
    mut guest: Guest,
    network: Option<network::Starting>,
    spec: &Spec,
    domain: &mut Domain,
    child: Option<Child>,
) -> Result<Verdict, Error> {
    let has_history = spec.watch.history.is_some();
    let signals = if has_history { Signals::block_with_question() } else { Signals::block() }?;
    let deadline = spec.life.timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    let is_plain = guest.is_plain;
    let order = order(spec, &guest.directories);
    let needs = devices::needs(&guest.directories, spec);
    let keeps_writes =
        guest.directories.are_written_back() || spec.disks().any(spec::Disk::keeps_writes);
    let start = std::mem::take(&mut guest.start);
    let mut configuration = guest.configuration(spec)?;
    let (warm, conversation) = match start {
        Start::Cold => (None, None),
        Start::First(unnamed) => (Some(unnamed), None),
        Start::GoOn(snapshot, conversation) => {
            configuration.snapshot = Some(*snapshot);
            (None, conversation)
        }
    };
    let confine = !spec.engine.no_seccomp;
    let warm = warm.map(Unnamed::into_parts);
    let vsock = spec.sockets().next();
    let opened = Opened {
        sockets: vsock.map(|vsock| vsock::start(vsock, confine)).transpose()?,
        disks: disk::open_all(spec.disks())?,
        debug_console: spec.debug_console().map(|it| create(&it.file)).transpose()?,
        has_balloon: Domain::is_wanted(&spec.life),
    };
    let inspect::Prepared { inspection, teller } =
        inspect::prepare(&spec.watch, &configuration.kernel)?;
    configuration.inspection = inspection;
    configuration.reporter = teller.as_ref().map(inspect::Teller::reporter).unwrap_or_default();
    let telling = Telling { stats: spec.watch.statistics, history: teller };
    let copy = spec.watch.console.as_deref().map(create).transpose()?;
    let wait = Wait::of(spec, keeps_writes);
    let handles = plugged::add(&mut configuration.devices, opened);
    let parameter = network.as_ref().map(|network| network.parameter().to_owned());
    if let Some(network) = network {
        network.connect(&mut configuration);
    }
    let snapshots = Snapshots::new(restore::is_possible(spec));
    // Everything is open.
    host::inherited::close_marked();
    let run = Prepared {
        spec,
        configuration,
        handles,
        needs,
        conversation,
        snapshots,
        warm,
        copy,
        wait,
        telling,
        deadline,
        signals,
        child,
    };
    match is_plain {
        true => run.run_plain(domain),
        false => run.run_command(domain, &order, parameter.as_deref().unwrap_or_default()),
    }
}

/// A machine that lacks only its console and its command line.
struct Prepared<'a> {
    spec: &'a Spec,
    configuration: vmm::Configuration,
    /// What was kept of its devices.
    handles: Handles,
    /// What the guest's init is told that its system must have.
    needs: Vec<Frame>,
    /// What it was told already.
    conversation: Option<Conversation>,
    snapshots: Snapshots,
    /// A snapshot for those who start such a machine later.
    warm: Option<(File, Finish)>,
    /// Where the serial console is to be copied.
    copy: Option<File>,
    wait: Wait,
    telling: Telling,
    deadline: Option<Instant>,
    signals: Signals,
    child: Option<Child>,
}

impl Prepared<'_> {
    /// One with nothing of ours in it: its console is on our standard streams.
    fn run_plain(mut self, domain: &mut Domain) -> Result<Verdict, Error> {
        let (spec, configuration) = (self.spec, &mut self.configuration);
        // Linux is told where its console is; a Multiboot kernel may take its arguments by position.
        let is_multiboot = vmm::is_multiboot(&configuration.kernel);
        let ours: &[&str] = if is_multiboot { &[] } else { &["console=ttyS0"] };
        configuration.command_line = command_line(ours, spec);
        // One that goes on from a snapshot has no kernel to boot again.
        configuration.reboot = !spec.boot.no_reboot && configuration.snapshot.is_none();
        let (ours, theirs) = session::Line::pair()?;
        let serial = if guest::has_virtio_console(spec) {
            let port = machine::console(theirs, terminal::size());
            self.handles.window = Some(plugged::add_console(&mut configuration.devices, port)?);
            Line { output: self.copy.map(|copy| Box::new(copy) as _), ..Line::default() }
        } else {
            match self.copy {
                Some(copy) => machine::line_with_copy(theirs, copy),
                None => machine::line(theirs),
            }
        };
        configuration.devices.push(Box::new(Serial::first(serial)));
        configuration.devices.push(Box::new(Serial::second(Line::default())));
        let ours = domain.serve_plain(ours, self.snapshots)?;
        let mut started = Started::of(configuration);
        let remote = domain.machine.clone();
        let machine = started.start(|| {
            Machine::start(
                self.configuration,
                self.handles,
                self.wait,
                self.telling,
                remote.clone(),
            )
        })?;
        let mut outputs = Outputs::default();
        if let Some(child) = self.child
            && started.wait()
        {
            domain.going_on(child)?.go_on(&mut outputs)?;
        }
        // What runs without us has an input, and nobody who types.
        let input = if spec.life.detached { Input::Endless } else { Input::Ours };
        let user = User { raw: terminal::is_interactive(), input, outputs, ..User::default() };
        let link = Console::new(ours)?.with_window(move |rows, columns| {
            remote.get().iter().for_each(|machine| machine.resize_console(rows, columns));
        });
        converse(link, machine, self.deadline, user, self.signals)
    }

    /// One whose init is ours: it runs a command, as `order` says.
    fn run_command(
        mut self,
        domain: &mut Domain,
        order: &Order,
        parameter: &str,
    ) -> Result<Verdict, Error> {
        let (spec, configuration) = (self.spec, &mut self.configuration);
        let rdinit = format!("rdinit={}", initramfs::INIT);
        let quiet = if spec.watch.verbose == 0 && self.copy.is_none() { "quiet" } else { "" };
        // A panic resets the guest at once, and its command is lost with it. Before its init the kernel would
        // test its ciphers for a tenth of a second.
        let ours = ["console=ttyS0", quiet, "panic=-1", "cryptomgr.notests"];
        let words = [&ours[..], &[&rdinit, CHANNEL, parameter]].concat();
        configuration.command_line = command_line(&words, spec);
        let tail = Tail::default();
        let output: Option<Box<dyn io::Write + Send>> = match self.copy {
            Some(copy) => Some(Box::new(copy)),
            None if spec.watch.verbose > 0 => Some(Box::new(io::stderr())),
            None => Some(Box::new(tail.clone())),
        };
        let devices = &mut configuration.devices;
        devices.push(Box::new(Serial::first(Line { output, ..Line::default() })));
        let (port, theirs) = session::Line::pair()?;
        devices.push(Box::new(Port::new(machine::console(theirs, (0, 0)))?));
        let (serial, theirs) = session::Line::pair()?;
        devices.push(Box::new(Serial::second(machine::line(theirs))));
        let raw = order.terminal.is_some() && session::stdin_is_terminal();
        let running = self.conversation.as_ref().filter(|it| it.has_command());
        let running = running.map(Conversation::window_of_first);
        let mut console = None;
        // Only what others could find has been kept while its command ran.
        if domain.is_known() || running.is_some() {
            let (end, theirs) = session::Line::pair()?;
            let port = machine::console(theirs, (0, 0));
            self.handles.window = Some(plugged::add_console(&mut configuration.devices, port)?);
            console = Some(end);
        }
        let time = time_of(configuration).map_err(machine::Error::Machine)?;
        let (needs, conversation) = (self.needs, self.conversation);
        let end = GuestEnd { lines: vec![port, serial], needs, time, conversation };
        let (ours, trouble) = domain.serve(end, console, self.snapshots, self.warm)?;
        let link = match running {
            Some(window) => Channel::going_on(ours, window)?,
            None => Channel::new(ours, order)?,
        };
        let mut link = link.with_trouble(trouble);
        if let Some(child) = self.child {
            let going_on = domain.going_on(child)?;
            link = link.on_start(move |outputs| going_on.go_on(outputs));
        }
        let mut started = Started::of(&mut self.configuration);
        let remote = domain.machine.clone();
        let machine = started.start(|| {
            Machine::start(self.configuration, self.handles, self.wait, self.telling, remote)
        })?;
        // A command that runs already says nothing of that; it does when the machine goes on.
        if running.is_some() && started.wait() {
            link.note_started();
        }
        let is_open = spec.process.interactive || order.terminal.is_some();
        let input = match (spec.life.detached, is_open) {
            (false, _) => Input::Ours,
            (true, false) => Input::None,
            (true, true) => Input::Endless,
        };
        let user = User { raw, input, tail, ..User::default() };
        converse(link, machine, self.deadline, user, self.signals)
    }
}

/// The time that a machine is told.
fn time_of(configuration: &vmm::Configuration) -> Result<TimeOfDay, vmm::Error> {
    match &configuration.snapshot {
        Some(snapshot) => Ok(TimeOfDay::of_snapshot(snapshot)?),
        None => Ok(TimeOfDay::of_the_host()),
    }
}

/// Where the guest's init finds us: at the virtio port, if its kernel has a driver, else at the second serial
/// port.
const CHANNEL: &str = "biv.channel=vport,ttyS1";

/// The kernel's command line: `words`, then what `--append` says, which therefore wins.
fn command_line(words: &[&str], spec: &Spec) -> String {
    let append = spec.boot.append.as_deref().unwrap_or_default();
    let words = words.iter().copied().chain([append]).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join(" ")
}

/// What there is at our end of the conversation.
#[derive(Default)]
struct User {
    raw: bool,
    input: Input,
    outputs: Outputs,
    /// What was on the console, and is nowhere else.
    tail: Tail,
}

/// Where it is heard that the machine runs.
struct Started {
    notice: mpsc::Receiver<()>,
    /// What has been heard.
    heard: Option<bool>,
    confined: bool,
    /// Where it is heard that a snapshot fits, and how the machine is told to go on.
    fits: Option<(mpsc::Receiver<()>, mpsc::Sender<()>)>,
}

impl Started {
    fn of(configuration: &mut vmm::Configuration) -> Self {
        let (sender, notice) = mpsc::channel();
        configuration.on_start = Some(vmm::Notice::new(move || {
            // Nobody waits for it but who detaches, or goes on.
            let _ = sender.send(());
        }));
        let confined = configuration.confine;
        let goes_on = confined && configuration.snapshot.is_some();
        let fits = goes_on.then(|| Self::rendezvous(configuration));
        Self { notice, heard: None, confined, fits }
    }

    /// Have the machine's thread say that its snapshot fits, and wait for this one, before it is confined.
    fn rendezvous(
        configuration: &mut vmm::Configuration,
    ) -> (mpsc::Receiver<()>, mpsc::Sender<()>) {
        let (fits, heard) = mpsc::channel();
        let (go_on, told) = mpsc::channel();
        let prepare = configuration.preparation.0.take();
        configuration.preparation = vmm::Preparation(Some(Box::new(move || {
            prepare.map_or(Ok(()), |prepare| prepare())?;
            // If nobody is there, nobody has to be waited for.
            let _ = fits.send(());
            let _ = told.recv();
            Ok(())
        })));
        (heard, go_on)
    }

    /// Wait until it runs; false if it does not come to that.
    fn wait(&mut self) -> bool {
        *self.heard.get_or_insert_with(|| self.notice.recv().is_ok())
    }

    /// Start the machine, and drop root's capabilities for this thread before it is confined. One whose snapshot
    /// turns out not to fit is started once more, and needs them for that ([`start_cold`]).
    fn start(
        &mut self,
        start: impl FnOnce() -> Result<Machine, machine::Error>,
    ) -> Result<Machine, Error> {
        let drop_all = || host::privileges::drop_all().map_err(io::Error::from);
        match self.fits.take() {
            None if self.confined => drop_all()?,
            None => {}
            Some((fits, go_on)) => {
                let machine = start()?;
                if fits.recv().is_ok() {
                    drop_all()?;
                    // It may have ended.
                    let _ = go_on.send(());
                }
                return Ok(machine);
            }
        }
        Ok(start()?)
    }
}

fn converse<L: session::Link>(
    link: L,
    machine: Machine,
    deadline: Option<Instant>,
    user: User,
    signals: Signals,
) -> Result<Verdict, Error> {
    let (ended, report) = (machine.ended()?, machine.question());
    let User { raw, input, outputs, tail } = user;
    let machine_end = Some(ended);
    let session = Session {
        link,
        machine: machine_end,
        deadline,
        mode: Mode::raw_if(raw),
        escape: Escape::default(),
        signals,
        passing: Passing::Interrupt,
        outputs,
        input,
        report,
    };
    let ending = session.run()?;
    match ending {
        Ending::Exited(status) => {
            // Nothing that the machine holds outlives it, so its power-off is not waited for,
            // unless somebody wants to know what it did.
            machine.finish()?;
            Ok(Verdict::plain(status))
        }
        Ending::Signaled(signal) => {
            machine.finish()?;
            Ok(Verdict::plain(status::of_signal(signal)))
        }
        Ending::TimedOut => {
            machine.tell_history();
            let reason = "the machine was ended by --timeout".to_owned();
            Ok(Verdict::told(status::TIMEOUT, reason))
        }
        Ending::Escaped => Ok(Verdict::plain(status::of_signal(2))),
        Ending::Killed(signal) => Ok(Verdict::plain(status::of_signal(signal))),
        Ending::MachineEnded => Ok(judge(machine.outcome()?, L::HAS_COMMAND, &tail)),
    }
}

/// What is to be said of a machine that has ended by itself.
fn judge(outcome: Outcome, has_command: bool, tail: &Tail) -> Verdict {
    match outcome {
        Outcome::DebugExit(value) => Verdict::plain(value),
        Outcome::TripleFault(state) => {
            tracing::info!("{state}");
            let reason = "the guest's processor shut down (triple fault); -v shows its state";
            Verdict::told(status::TRIPLE_FAULT, reason.to_owned())
        }
        Outcome::PoweredOff | Outcome::Reset if !has_command => Verdict::plain(status::SUCCESS),
        Outcome::PoweredOff => lost("switched itself off", tail),
        Outcome::Reset => lost("panicked or rebooted", tail),
        // By `biv kill`, or by `biv stop` after a while.
        Outcome::Stopped => Verdict::plain(status::of_signal(9)),
    }
}

/// The same of one that did so, with what it said last.
fn lost(did: &str, tail: &Tail) -> Verdict {
    let reason = format!("the guest {did} before its command ended; -v shows its console{tail}");
    Verdict::told(status::GUEST_LOST, reason)
}

pub(crate) fn say(message: &str) {
    use std::io::Write;
    // Standard error may be closed; the status still tells.
    let _ = writeln!(io::stderr(), "biv: {}", shown::harmless(message));
}

fn create(path: &Path) -> Result<File, Error> {
    File::create(path).map_err(|error| Error::Open { path: path.to_owned(), error })
}

/// Whether the command is to have a terminal.
fn is_on_terminal(spec: &Spec) -> bool {
    spec.process.terminal || (spec.process.args.is_empty() && terminal::is_interactive())
}
