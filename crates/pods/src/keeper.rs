//! The keeper of a pod: the process that has started it, and lasts as long as it.
//!
//! Its main thread starts the pod's first process, runs the session with the first command, and then sees the pod to
//! its end. That thread lives as long as the process: the kernel ends the pod with the thread that has started it.
//! Another thread answers requests ([`crate::server`]).
//!
//! However the keeper ends, its lock in the registry is released and the kernel ends the pod. When it ends by itself,
//! no process of the pod is left: whoever waits for the lock waits for all of them.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;

use api::registry::{self, Claim};
use api::{Ended, Name, Registry, Written, files, log, networks, pod, record, status};
use host::processes::identity::open_process;
use hub::Hub;
use locks::Unpoisoned;
use pod_protocol::Setup;
use rustix::process::{WaitOptions, wait};
use session::channel::Channel;
use session::detach::Child;
use session::terminal::{Escape, Mode};
use session::{Ending, Input, Line, Outputs, Passing, Session, Signals, Trouble, Verdict};
use spec::shown;
use uplink::Ports;

use crate::limits::{KILL_PATIENCE, LOOK};
use crate::member::{self, Join};
use crate::names::{self, First, Users};
use crate::network::{self, Link, Uplink};
use crate::order;
use crate::parents::{self, Places};
use crate::reader::{self, Opened};
use crate::root::Files;
use crate::server::Server;
use crate::spec::PodSpec;
use crate::tracer::{self, Tracer};

/// The root of those that have the host's.
const HOST_ROOT: &str = "/";

/// Why there is no pod, or none to its end.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The registry.
    #[error(transparent)]
    Registry(#[from] registry::Error),
    /// The pod's own files.
    #[error("cannot make the pod's files: {0}")]
    Files(io::Error),
    /// The directory that is to be the root.
    #[error("cannot use {path} as the root of a pod: {error}", path = path.display())]
    Root {
        /// Which.
        path: std::path::PathBuf,
        /// What is wrong with it.
        error: io::Error,
    },
    /// The image that it is to go on from.
    #[error("cannot restart {path}: {why}", path = path.display())]
    Image {
        /// Which.
        path: std::path::PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// Its names.
    #[error(transparent)]
    Names(#[from] names::Error),
    /// Its first process has failed.
    #[error("cannot make the pod: {0}")]
    Init(String),
    /// Its place in a network.
    #[error(transparent)]
    Member(#[from] member::Error),
    /// A port that is to lead to it.
    #[error(transparent)]
    Ports(#[from] uplink::Error),
    /// Its network.
    #[error("cannot connect the pod to the network (--net none runs it without): {0}")]
    Network(io::Error),
    /// The keeper.
    #[error(transparent)]
    Confine(#[from] host::confine::Error),
    /// The session with its command.
    #[error(transparent)]
    Session(#[from] session::Error),
    /// The host.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// Keeps a pod to its end; returns the exit status. With `child`, this process goes on by itself when the command runs.
///
/// # Errors
///
/// There is no pod, or it cannot be kept.
pub fn run(spec: &PodSpec, child: Option<Child>) -> Result<u8, Error> {
    // Before any thread is started.
    let signals = Signals::block()?;
    let open = |path| open_image(path, &spec.parents);
    let image = spec.image.as_deref().map(open).transpose()?;
    let spec = &match image.as_ref().and_then(|image| image.pod()) {
        Some(pod) => going_on(spec, pod)?,
        None => spec.clone(),
    };
    let registry = Registry::of_pods()?;
    let claim = registry.claim(spec.name.as_ref())?;
    let place = match place(spec, &registry, &claim.name) {
        Ok(place) => place,
        Err(error) => {
            let _ = registry.discard(claim);
            return Err(error.into());
        }
    };
    let member = place.as_ref().map(|place| place.member.clone());
    let network = spec.network.clone().map(|network| pod::Network { member, ..network });
    let spec = &PodSpec { network, ..spec.clone() };
    let mut kept = Kept::begin(spec, claim)?;
    // Its place is in its record: nobody else takes it.
    let joined = place.map(|place| place.network);
    let result = keep(spec, (image, joined), &mut kept, child, signals);
    let (ending, result) = Verdict::split(result);
    kept.end(ending);
    if !kept.is_kept() {
        // What cannot be removed now, the next command that looks removes.
        let _ = registry.discard(kept.claim);
    }
    result
}

/// Reads the image that a pod is to go on from, and its parents.
fn open_image(path: &Path, parents: &[PathBuf]) -> Result<Opened, Error> {
    let failed = |why: String| Error::Image { path: path.to_owned(), why };
    let file = parents::open(path).map_err(|error| failed(error.to_string()))?;
    let opened = reader::open(&file, &mut Places::of(path, parents)).map_err(failed)?;
    match opened.pod() {
        Some(_) => Ok(opened),
        None => Err(failed("the image cannot be used: it is not that of a pod".to_owned())),
    }
}

/// What a pod is to be that goes on from an image: what the image says is not asked for again, but nothing of the host
/// is given that the command line does not give.
fn going_on(spec: &PodSpec, pod: &checkpoint::pod::Pod) -> Result<PodSpec, Error> {
    let path = || spec.image.clone().unwrap_or_default();
    if pod.root != HOST_ROOT && spec.root.is_none() {
        let why =
            format!("its root was {}; say with --root DIR what it is now", shown::line(&pod.root));
        return Err(Error::Image { path: path(), why });
    }
    Ok(PodSpec {
        args: pod.command.iter().map(OsString::from).collect(),
        hostname: Some(spec.hostname.clone().unwrap_or_else(|| pod.hostname.clone())),
        terminal: pod.terminal.is_some(),
        join: joining(spec, pod).map_err(|why| Error::Image { path: path(), why })?,
        ..spec.clone()
    })
}

/// The place in a network that a pod wants which goes on from an image: the one that it had, unless the command line
/// says something else.
fn joining(spec: &PodSpec, pod: &checkpoint::pod::Pod) -> Result<Option<Join>, String> {
    let Some(joined) = &pod.joined else { return Ok(spec.join.clone()) };
    let had: Name = joined.network.parse().map_err(|_| "its network is wrong".to_owned())?;
    let wanted = spec.join.as_ref();
    let network = wanted.and_then(|join| join.network.clone()).unwrap_or_else(|| had.clone());
    let other = wanted.and_then(|join| join.address);
    let is_the_same = network == had && other.is_none_or(|other| other == joined.address);
    let address = other.or_else(|| (network == had).then_some(joined.address));
    let lease = is_the_same.then(|| joined.lease.clone());
    Ok(Some(Join { network: Some(network), address, lease }))
}

/// The place of a pod in its network, if it wants one.
fn place(
    spec: &PodSpec,
    registry: &Registry<pod::Record>,
    name: &Name,
) -> Result<Option<member::Place>, member::Error> {
    let join = spec.join.as_ref().filter(|_| spec.network.is_some());
    join.map(|join| member::find(registry, name, join, spec.guard.is_some())).transpose()
}

/// What a pod has in the registry.
struct Kept {
    claim: Claim,
    written: Arc<Mutex<Written<pod::Record>>>,
    log: Option<log::Shared>,
    messages: Option<File>,
    listener: Option<UnixListener>,
}

impl Kept {
    fn begin(spec: &PodSpec, claim: Claim) -> Result<Kept, Error> {
        Self::make(spec, claim).map_err(Error::Files)
    }

    fn make(spec: &PodSpec, claim: Claim) -> io::Result<Kept> {
        let record = pod::Record {
            version: pod::VERSION,
            name: claim.name.clone(),
            pid: std::process::id(),
            created: record::now(),
            detached: spec.detached,
            // What does not get so far is not kept.
            kept: false,
            command: spec.args.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
            has_terminal: order::is_on_terminal(spec),
            root: spec
                .root
                .as_ref()
                .map_or_else(|| HOST_ROOT.into(), |root| root.display().to_string()),
            is_writable: spec.is_writable,
            hostname: spec.hostname.clone().unwrap_or_else(|| claim.name.to_string()),
            network: spec.network.clone(),
            ending: None,
        };
        let create = |name| Ok::<_, io::Error>(File::from(files::create(&claim.directory, name)?));
        let written = Written::create(&claim.directory, record)?;
        let (mut log, mut messages) = (None, None);
        if spec.detached {
            log = Some(Arc::new(Mutex::new(log::Writer::create(&claim.directory)?)));
            messages = Some(create(files::MESSAGES)?);
        }
        let listener = files::listen(&claim.directory, files::SOCKET)?;
        listener.set_nonblocking(true)?;
        let written = Arc::new(Mutex::new(written));
        Ok(Kept { claim, written, log, messages, listener: Some(listener) })
    }

    fn record(&self) -> pod::Record {
        self.written.lock().unpoisoned().record.clone()
    }

    fn end(&self, ending: Ended) {
        self.written.lock().unpoisoned().change(|record| record.ending = Some(ending));
    }

    fn is_kept(&self) -> bool {
        self.record().kept
    }

    /// Starts the thread that serves a pod, whose init is at the other end of `line`; the session gets the end that is
    /// returned, and what is wrong with init is said in the other.
    fn serve(
        &mut self,
        line: Line,
        first: &First,
        image: Option<Opened>,
        spec: &PodSpec,
        link: Option<Link>,
    ) -> io::Result<(Line, Trouble, tracer::Handle)> {
        let trouble = Trouble::default();
        let (ours, theirs) = Line::pair()?;
        // A pod has the host's clock, and needs nothing else to be told.
        let mut hub = Hub::new(vec![line], Vec::new(), None, Arc::clone(&trouble))?;
        // There is room for the first.
        let _ = hub.connect(theirs, &[], &[]);
        let tracer = Tracer::start(first.traced()?)?;
        let handle = tracer.handle();
        let server = Server {
            listener: self.listener.take().ok_or(io::ErrorKind::NotConnected)?,
            hub,
            first: first.handle()?,
            link,
            tracer,
            image,
            stays_frozen: spec.frozen,
            guard: spec.guard.map(open_process).transpose()?,
            trouble: Arc::clone(&trouble),
            is_restarting: false,
            asked: None,
            answering: None,
            record: self.record(),
            messages: self.messages.as_ref().map(File::try_clone).transpose()?,
            owner: rustix::process::geteuid(),
        };
        std::thread::Builder::new().name("control".into()).spawn(move || server.run())?;
        Ok((ours, trouble, handle))
    }

    /// What is done when the command runs, if the pod goes on by itself then.
    fn going_on(&self, child: Child, kept: bool) -> io::Result<GoingOn> {
        let messages = self.messages.as_ref().map(File::try_clone).transpose()?;
        let (name, written) = (self.claim.name.clone(), Arc::clone(&self.written));
        Ok(GoingOn { child, name, messages, log: self.log.clone(), written, kept })
    }
}

/// A pod that is about to go on by itself.
struct GoingOn {
    child: Child,
    name: Name,
    messages: Option<File>,
    log: Option<log::Shared>,
    written: Arc<Mutex<Written<pod::Record>>>,
    kept: bool,
}

impl GoingOn {
    fn go_on(self, outputs: &mut Outputs) -> io::Result<()> {
        self.written.lock().unpoisoned().change(|record| record.kept = self.kept);
        if let Some(log) = &self.log {
            outputs.keep_in(log);
        }
        self.child.goes_on(&self.name, self.messages.as_ref())
    }
}

/// Starts a pod, and runs the session with its command.
fn keep(
    spec: &PodSpec,
    (image, joined): (Option<Opened>, Option<networks::Network>),
    kept: &mut Kept,
    child: Option<Child>,
    signals: Signals,
) -> Result<Verdict, Error> {
    // What was left open by chance is for nobody.
    host::inherited::close_marked();
    // Whoever of the pod's processes outlives its parent, and the pod's init, is ours to reap.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
        .map_err(io::Error::from)?;
    let users = Users::of_process();
    let files = Files::of(spec, &users)
        .map_err(|error| Error::Root { path: spec.root.clone().unwrap_or_default(), error })?;
    let ports = spec.network.as_ref().map(|network| Ports::bind(&network.publish)).transpose()?;
    let pod = image.as_ref().and_then(|image| image.pod());
    let order = match pod {
        Some(pod) => order::adopt(pod),
        None => order::order(spec, &files.directory),
    };
    let clocks = pod.map(|pod| pod.clocks);
    let reading = image.as_ref().map(Opened::process);
    let setup = setup(spec, kept.record().hostname, files, &users);
    let (mut first, line) = start(setup, &users, clocks)?;
    let joined = joined.map(|joined| (&kept.claim.name, joined));
    let (mut uplink, link) = connect(spec, ports, &mut first, joined)?.unzip();
    // The pod is there, and has not been heard yet.
    host::confine::confine_keeper()?;
    let has_started = Arc::new(OnceLock::new());
    let (ours, trouble, tracer) = kept.serve(Line::of(line)?, &first, image, spec, link)?;
    let mut link = Channel::new(ours, &order)?.with_trouble(trouble);
    let going_on = child.map(|child| kept.going_on(child, spec.detached && !spec.remove));
    let (going_on, noted) = (going_on.transpose()?, Arc::clone(&has_started));
    link = link.on_start(move |outputs| {
        // It starts once.
        let _ = noted.set(());
        going_on.map_or(Ok(()), |going_on| going_on.go_on(outputs))
    });
    let session = Session {
        link,
        machine: None,
        deadline: spec.timeout.and_then(|timeout| Instant::now().checked_add(timeout)),
        mode: Mode::raw_if(order.terminal.is_some() && session::stdin_is_terminal()),
        escape: Escape::default(),
        signals,
        passing: Passing::Interrupt,
        outputs: Outputs::default(),
        input: Input::of(spec.detached, spec.interactive || order.terminal.is_some()),
        report: None,
    };
    let ended = session.run();
    if let Some(uplink) = &mut uplink {
        uplink.hang_up();
    }
    let is_over =
        matches!(ended, Ok(Ending::Exited(_) | Ending::Signaled(_) | Ending::MachineEnded));
    if !is_over {
        first.kill();
    }
    // Nothing is made of the image any more.
    reading.map(|reading| reading.end());
    // What is frozen cannot end.
    tracer.let_go();
    let why = finish(&mut first, uplink);
    match ended? {
        Ending::MachineEnded if has_started.get().is_none() => Err(Error::Init(why)),
        ending => Ok(judge(ending)),
    }
}

/// What the first process is told.
fn setup(spec: &PodSpec, hostname: String, files: Files, users: &Users) -> Setup {
    Setup {
        keeper: std::process::id(),
        hostname: hostname.into_bytes(),
        root: files.root,
        shared: files.shared,
        hidden: files.hidden,
        has_groups: users.has_groups(),
        network: spec.network.as_ref().map(|it| network::addresses(it.member.as_ref())),
    }
}

/// Connects the pod to its network, if it is to have one.
fn connect(
    spec: &PodSpec,
    ports: Option<Ports>,
    first: &mut First,
    joined: Option<(&Name, networks::Network)>,
) -> Result<Option<(Uplink, Link)>, Error> {
    let (Some(network), Some(ports), Some(peer)) = (&spec.network, ports, first.peer.take()) else {
        return Ok(None);
    };
    let (uplink, mut link) = Uplink::start(peer, network, ports, joined).map_err(Error::Network)?;
    // Who is made from an image hears nothing before its sockets are there.
    if spec.image.is_none() {
        link.attach()?;
    }
    Ok(Some((uplink, link)))
}

/// Starts the first process. Where a tool refuses to map ranges of users, there is one user.
fn start(
    mut setup: Setup,
    users: &Users,
    clocks: Option<[u64; 2]>,
) -> Result<(First, std::os::unix::net::UnixStream), Error> {
    match names::start(&setup, users, clocks) {
        Err(names::Error::Users(error)) if matches!(users, Users::Ranges(_)) => {
            tracing::info!("the pod has one user: {error}");
            setup.has_groups = false;
            Ok(names::start(&setup, &Users::One, clocks)?)
        }
        other => Ok(other?),
    }
}

/// Sees the pod to its end; what its first process has complained of.
fn finish(first: &mut First, uplink: Option<Uplink>) -> String {
    let was_killed = first.end();
    let why = first.why();
    drop(uplink);
    if !was_killed {
        // It has waited for process 1, and the kernel has that one end last of all.
        return why;
    }
    // Process 1 of the pod is our child now.
    let deadline = Instant::now() + KILL_PATIENCE;
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some(_)) => {}
            Ok(None) if Instant::now() < deadline && switch::has_other_children() => {
                std::thread::sleep(LOOK);
            }
            Ok(None) | Err(_) => return why,
        }
    }
}

fn judge(ending: Ending) -> Verdict {
    match ending {
        Ending::Exited(status) => Verdict::plain(status),
        Ending::Signaled(signal) | Ending::Killed(signal) => {
            Verdict::plain(status::of_signal(signal))
        }
        Ending::Escaped => Verdict::plain(status::of_signal(2)),
        Ending::TimedOut => {
            let reason = "the pod was ended because the time of --timeout was up";
            Verdict::told(status::TIMEOUT, reason.to_owned())
        }
        // By `biv pod kill`, or by `biv pod stop` after a while, or by somebody of the host.
        Ending::MachineEnded => Verdict::plain(status::of_signal(9)),
    }
}
