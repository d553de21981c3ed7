//! Runs a guest as a domain: makes the configuration of the machine, starts the machine, and waits
//! until the machine, its command, the user or the time limit ends it.

use std::fs::File;
use std::io;
use std::sync::mpsc;
use std::time::Instant;

use api::status;
use protocol::{Frame, Order};
use spec::Spec;
use vmm::devices::{Devices, Port, Serial};
use vmm::{Outcome, SerialBackend, TimeOfDay};

use crate::debugging;
use crate::domain::{Beginning, Domain, GuestEnd, Plan};
use crate::inspect;
use crate::network;
use crate::say::say;
use crate::snapshot::{Finish, Snapshots};
use crate::toolstack;
use hub::Conversation;
use provision::initramfs;
use session::channel::Channel;
use session::console::Console;
use session::detach::Child;
use session::terminal;
use session::terminal::{Escape, Mode};
use session::{Ending, Input, Outputs, Passing, Session, Signals, Verdict};

use super::error::Error;
use super::guest::{self, Guest};
use super::machine::{self, Machine, Parts, Telling, Wait};
use super::order::order;
use super::paravirtual::{self, Words, is_paravirtual};
use super::plugged;
use super::tail::Tail;
use super::warm::{Start, Unnamed};
use super::{backends, devices, firmware};

mod own_init;

/// Be where the machine is started.
pub fn enter_directory(spec: &Spec) -> Result<(), Error> {
    let Some(directory) = &spec.directory else { return Ok(()) };
    std::env::set_current_dir(directory)
        .map_err(|error| Error::Open { path: directory.clone(), error })
}

/// Runs a guest as a domain.
pub fn run_domain(
    guest: Guest,
    network: Option<network::Starting>,
    spec: &Spec,
    child: Option<Child>,
    beginning: Beginning,
) -> Result<u8, Error> {
    let path = guest.kernel_path.clone();
    let mut domain = Domain::begin(Plan { beginning, ..guest.plan(spec)? })?;
    let result = run_guest(guest, network, spec, &mut domain, child).map_err(|error| match error {
        Error::Machine(machine::Error::Machine(
            error @ (vmm::Error::Boot(_) | vmm::Error::Firmware(_)),
        )) => Error::Kernel { path, error },
        error => error,
    });
    let (ending, result) = Verdict::split(result);
    domain.end(ending);
    result
}

fn run_guest(
    mut guest: Guest,
    network: Option<network::Starting>,
    spec: &Spec,
    domain: &mut Domain,
    child: Option<Child>,
) -> Result<Verdict, Error> {
    let signals = signals_for(spec)?;
    let deadline = spec.life.timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    let is_plain = guest.is_plain;
    let order = order(spec, &guest.directories);
    let needs = devices::needs(&guest.directories, spec);
    let keeps_writes = guest.directories.are_written_back()
        || spec.disks().any(spec::Disk::keeps_writes)
        || spec.boot.firmware.as_ref().is_some_and(spec::Firmware::keeps_writes);
    let has_modules = guest.directories.modules.is_some();
    let obstacle = guest::obstacle(spec).or_else(|| guest.directories.obstacle());
    // Nobody removes a cache before the machine's end.
    let _held = std::mem::take(&mut guest.directories.held);
    let start = std::mem::take(&mut guest.start);
    let parameters = std::mem::take(&mut guest.parameters);
    let remark = guest.remark.take();
    let mut configuration = guest.configuration(spec)?;
    let (warm, conversation) = match start {
        Start::Cold => (None, None),
        Start::First(unnamed) => (Some(unnamed), None),
        Start::GoOn(snapshot, conversation) => {
            configuration.snapshot = Some(*snapshot);
            (None, conversation)
        }
    };
    let warm = warm.map(Unnamed::into_parts);
    let kept = domain.keeping.take().map(|kept| kept.hand_over(&mut configuration));
    let _lifelines = kept.transpose()?;
    let handles = backends::open(&mut configuration.devices, spec)?;
    let of_firmware = firmware::open(&mut configuration, spec)?;
    let inspect::Prepared { inspection, teller } =
        inspect::prepare(&spec.watch, &configuration.kernel)?;
    configuration.inspection = inspection;
    configuration.reporter = teller.as_ref().map(inspect::Teller::reporter).unwrap_or_default();
    let telling = Telling { stats: spec.watch.statistics, history: teller };
    let copy = spec.watch.console.as_deref().map(backends::create).transpose()?;
    let parameter = network.map(|network| network.connect(&mut configuration, domain));
    let parameter = parameter.transpose()?;
    let snapshots = Snapshots::new(obstacle, has_modules);
    configuration.held = debugging::offer(&spec.watch, domain).map_err(Error::Gdb)?;
    // Everything is open.
    remark.iter().chain(&of_firmware).for_each(|remark| say(remark));
    host::inherited::close_marked();
    let run = Prepared {
        spec,
        parts: Parts { configuration, handles, wait: Wait::of(spec, keeps_writes), telling },
        needs,
        conversation,
        parameters,
        snapshots,
        warm,
        copy,
        deadline,
        signals,
        child,
    };
    // The process is confined, and has no environment, when the machine ends.
    let audits = toolstack::audits_at_end();
    let verdict = run.run(domain, is_plain, &order, parameter.as_deref().unwrap_or_default())?;
    if audits && let Some(machine) = domain.machine.get() {
        toolstack::audit_at_end(machine).map_err(Error::Audit)?;
    }
    Ok(verdict)
}

/// The signals that end a session, and the one that asks what the processors did last, if that is kept.
fn signals_for(spec: &Spec) -> io::Result<Signals> {
    match spec.watch.history {
        Some(_) => Signals::block_with_question(),
        None => Signals::block(),
    }
}

/// A machine that lacks only its console and its command line.
struct Prepared<'a> {
    spec: &'a Spec,
    parts: Parts,
    /// What the guest's init is told that its system must have.
    needs: Vec<Frame>,
    /// What it was told already.
    conversation: Option<Conversation>,
    /// What the disk that it boots from says to its kernel.
    parameters: String,
    snapshots: Snapshots,
    /// A snapshot for those who start such a machine later.
    warm: Option<(File, Finish)>,
    /// Where the serial console is to be copied.
    copy: Option<File>,
    deadline: Option<Instant>,
    signals: Signals,
    child: Option<Child>,
}

impl Prepared<'_> {
    /// Runs it: with nothing of ours in it, or with what `order` says.
    fn run(
        self,
        domain: &mut Domain,
        is_plain: bool,
        order: &Order,
        parameter: &str,
    ) -> Result<Verdict, Error> {
        match &self.spec.boot.init {
            _ if is_plain => self.run_plain(domain),
            Some(_) => self.run_system(domain, order, parameter),
            None => self.run_command(domain, order, parameter),
        }
    }

    /// One with nothing of ours in it: its console is on our standard streams.
    fn run_plain(mut self, domain: &mut Domain) -> Result<Verdict, Error> {
        let (spec, configuration) = (self.spec, &mut self.parts.configuration);
        // Linux is told where its console is; a Multiboot kernel may take its arguments by position.
        let is_multiboot = vmm::is_multiboot(&configuration.kernel);
        let console = paravirtual::words(spec, false).console;
        let ours: &[&str] = if is_multiboot { &[] } else { &[console, &self.parameters] };
        configuration.command_line = command_line(ours, spec);
        // One that goes on from a snapshot has no kernel to boot again.
        configuration.reboot = !spec.boot.no_reboot && configuration.snapshot.is_none();
        let ours = self.add_console()?;
        if !is_paravirtual(spec) {
            let serial = Serial::second(SerialBackend::default());
            self.parts.configuration.devices.push(Box::new(serial));
        }
        let ours = domain.serve_plain(ours, self.snapshots)?;
        let remote = domain.machine.clone();
        let (machine, mut started) =
            Started::start(spec.machine.board, self.parts, remote.clone())?;
        let mut outputs = Outputs::default();
        if let Some(child) = self.child
            && started.wait()
        {
            domain.going_on(child)?.go_on(&mut outputs)?;
        }
        let user = User::at_console(spec, outputs);
        converse(console_link(ours, remote)?, machine, self.deadline, user, self.signals)
    }

    /// Gives the machine the console that its kernel is told of, a serial port or a virtio console, and returns the way
    /// to it.
    fn add_console(&mut self) -> Result<session::Line, Error> {
        let devices = &mut self.parts.configuration.devices;
        let (ours, theirs) = session::Line::pair()?;
        let copy = self.copy.take();
        let serial = if guest::has_virtio_console(self.spec, &self.parameters) {
            let port = machine::console(theirs, terminal::size());
            self.parts.handles.window = Some(plugged::add_console(devices, port)?);
            SerialBackend {
                output: copy.map(|copy| Box::new(copy) as _),
                ..SerialBackend::default()
            }
        } else {
            match copy {
                Some(copy) => machine::line_with_copy(theirs, copy),
                None => machine::line(theirs),
            }
        };
        devices.push(Box::new(Serial::first(serial)));
        Ok(ours)
    }

    /// One whose init is ours: it runs a command, as `order` says.
    fn run_command(
        mut self,
        domain: &mut Domain,
        order: &Order,
        parameter: &str,
    ) -> Result<Verdict, Error> {
        let (spec, configuration) = (self.spec, &mut self.parts.configuration);
        let rdinit = format!("rdinit={}", initramfs::INIT);
        let quiet = if spec.watch.verbose == 0 && self.copy.is_none() { "quiet" } else { "" };
        // A panic resets the guest at once, and its command is lost with it. Before its init the kernel would
        // test its ciphers for a tenth of a second.
        let Words { console, channel, mtu } = paravirtual::words(spec, !parameter.is_empty());
        let ours = [console, quiet, "panic=-1", "cryptomgr.notests", watchdog(spec), oops(spec)];
        let words = [&ours[..], &[&rdinit, channel, parameter, mtu]].concat();
        configuration.command_line = command_line(&words, spec);
        let tail = Tail::default();
        let output: Option<Box<dyn io::Write + Send>> = match self.copy {
            Some(copy) => Some(Box::new(copy)),
            None if spec.watch.verbose > 0 => Some(Box::new(io::stderr())),
            None => Some(Box::new(tail.clone())),
        };
        let devices = &mut configuration.devices;
        devices.push(Box::new(Serial::first(SerialBackend { output, ..SerialBackend::default() })));
        let lines = lines_to_init(devices, !is_paravirtual(spec))?;
        let raw = order.terminal.is_some() && session::stdin_is_terminal();
        let running = self.conversation.as_ref().filter(|it| it.has_command());
        let running = running.map(Conversation::window_of_first);
        let mut console = None;
        // Only what others could find has been kept while its command ran.
        if (domain.is_known() || running.is_some()) && !is_paravirtual(spec) {
            let (end, theirs) = session::Line::pair()?;
            let port = machine::console(theirs, (0, 0));
            self.parts.handles.window =
                Some(plugged::add_console(&mut configuration.devices, port)?);
            console = Some(end);
        }
        let time = time_of(configuration).map_err(machine::Error::Machine)?;
        let (needs, conversation) = (self.needs, self.conversation);
        let end = GuestEnd { lines, needs, time, conversation };
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
        let remote = domain.machine.clone();
        let (machine, mut started) = Started::start(spec.machine.board, self.parts, remote)?;
        // A command that runs already says nothing of that; it does when the machine goes on.
        if running.is_some() && started.wait() {
            link.note_started();
        }
        let is_open = spec.process.interactive || order.terminal.is_some();
        let input = Input::of(spec.life.detached, is_open);
        let user = User { raw, input, tail, ..User::default() };
        converse(link, machine, self.deadline, user, self.signals)
    }
}

/// The console of a machine, which is told of the size of the terminal, as a session's other end.
fn console_link(line: session::Line, remote: crate::server::Machine) -> io::Result<Console> {
    Ok(Console::new(line)?.with_window(move |rows, columns| {
        remote.get().iter().for_each(|machine| machine.resize_console(rows, columns));
    }))
}

/// Gives a machine the lines by which its init may find us: a virtio port, if it has a bus for that, and the second
/// serial line; our ends.
fn lines_to_init(devices: &mut Devices, has_ports: bool) -> io::Result<Vec<session::Line>> {
    let mut lines = Vec::new();
    if has_ports {
        let (port, theirs) = session::Line::pair()?;
        devices.push(Box::new(Port::new(machine::console(theirs, (0, 0)))?));
        lines.push(port);
    }
    let (serial, theirs) = session::Line::pair()?;
    devices.push(Box::new(Serial::second(machine::line(theirs))));
    lines.push(serial);
    Ok(lines)
}

/// The time that a machine is told.
fn time_of(configuration: &vmm::Configuration) -> Result<TimeOfDay, vmm::Error> {
    match &configuration.snapshot {
        Some(snapshot) => Ok(TimeOfDay::of_snapshot(snapshot)?),
        None => Ok(TimeOfDay::of_the_host()),
    }
}

/// Twice a second, even when idle, a kernel compares the time-stamp counter with the clock that it uses. It does
/// without, unless `--append` says what it is to do with either: another word cannot take this one back.
fn watchdog(spec: &Spec) -> &'static str {
    let append = spec.boot.append.as_deref().unwrap_or_default();
    let is_theirs = |word: &str| word.starts_with("tsc=") || word.starts_with("clocksource=");
    if append.split_ascii_whitespace().any(is_theirs) { "" } else { "tsc=nowatchdog" }
}

/// A kernel of the user's own is most likely being tested: what a command says after an oops is worth nothing, and the
/// machine ends as after a panic. A parameter with which the user says something of that stands alone.
fn oops(spec: &Spec) -> &'static str {
    let append = spec.boot.append.as_deref().unwrap_or_default();
    let says = append.contains("oops");
    if guest::has_own_kernel(spec) && !says { "oops=panic" } else { "" }
}

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

impl User {
    /// Whoever sits at the console of a machine, or nobody. What runs without us has an input, and nobody who types.
    fn at_console(spec: &Spec, outputs: Outputs) -> Self {
        let input = if spec.life.detached { Input::Endless } else { Input::Ours };
        Self { raw: terminal::is_interactive(), input, outputs, ..Self::default() }
    }
}

/// Where it is heard that the machine runs.
struct Started {
    notice: mpsc::Receiver<()>,
    /// What has been heard.
    heard: Option<bool>,
}

impl Started {
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
    /// turns out not to fit is started once more, and needs them for that ([`super::start`]).
    fn start(
        board: spec::Board,
        mut parts: Parts,
        remote: crate::server::Machine,
    ) -> Result<(Machine, Self), Error> {
        let configuration = &mut parts.configuration;
        let drop_all = || host::privileges::drop_all().map_err(io::Error::from);
        let (sender, notice) = mpsc::channel();
        configuration.on_start = Some(vmm::Notice::new(move || {
            // Nobody waits for it but who detaches, or goes on.
            let _ = sender.send(());
        }));
        let is_confined = configuration.confine;
        let goes_on = is_confined && configuration.snapshot.is_some();
        let fits = goes_on.then(|| Self::rendezvous(configuration));
        if is_confined && !goes_on {
            drop_all()?;
        }
        let machine = Machine::start(board, parts, remote)?;
        if let Some((fits, go_on)) = fits
            && fits.recv().is_ok()
        {
            drop_all()?;
            // It may have ended.
            let _ = go_on.send(());
        }
        Ok((machine, Self { notice, heard: None }))
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
            let reason = "the machine was stopped because the time of --timeout was up".to_owned();
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
        Outcome::PoweredOff => lost("powered off", tail),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_oops_ends_a_machine_whose_kernel_is_the_users() {
        let with = |kernel: Option<&str>, append: &str| {
            let mut spec = Spec::default();
            spec.boot.kernel = kernel.map(Into::into);
            spec.boot.append = Some(append.to_owned());
            oops(&spec)
        };
        assert_eq!(with(Some("./bzImage"), "quiet"), "oops=panic");
        assert_eq!(with(Some("./bzImage"), "sysctl.kernel.panic_on_oops=0"), "");
        assert_eq!(with(Some("6.12"), ""), "");
        assert_eq!(with(None, ""), "");
    }

    #[test]
    fn a_counter_is_not_watched_unless_somebody_says_what_clock_to_use() {
        let with = |append: &str| {
            let mut spec = Spec::default();
            spec.boot.append = Some(append.to_owned());
            watchdog(&spec)
        };
        assert_eq!(watchdog(&Spec::default()), "tsc=nowatchdog");
        assert_eq!(with("loglevel=7 notsc=1"), "tsc=nowatchdog");
        assert_eq!(with("loglevel=7 clocksource=tsc"), "");
        assert_eq!(with("tsc=recalibrate"), "");
    }
}
