//! The life of a domain. There is no daemon: each domain is one process, with its helpers, that
//! owns a directory, a lock and a socket.
//!
//! - [`crate::server`]: the thread that answers on the socket, as [`api::v1`] specifies.
//! - [`hub`]: multiplexes several clients to the guest's init; [`crate::console`]: the
//!   console; [`hub::attached`]: an attached client.
//! - [`session::detach`]: detached domains.
//!
//! What rules it:
//!
//! 1. *Liveness is a lock*, never a process number ([`api::registry`]).
//! 2. *Domains share nothing but the directory that contains their directories.* However a domain
//!    ends, no other domain notices.
//! 3. *Everything is open before the guest's first instruction.* What a domain's process cannot do
//!    afterwards (remove its directory, choose a name), other commands do when they look at the
//!    registry.
//! 4. *Only a domain that has a name or is detached is in the registry.* A confined process can
//!    remove nothing, so any other run would leave its directory behind. And such a run never fails
//!    because the registry cannot be used.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Mutex, mpsc};

use locks::Unpoisoned;

use crate::console::Console;
use crate::keeper;
use crate::server::{Machine, Server};
use crate::snapshot::{Finish, Snapshots};
use api::admission::Demand;
use api::{
    Ended, Name, Origin, Record, Registry, StartedBy, Written, again, files, log, record, registry,
};
use hub::{Conversation, Hub, Timekeeper};
use protocol::{Frame, Time};
use serde::{Deserialize, Serialize};
use session::detach;
use spec::{Board, Life, Spec};

use session::{Line, Outputs, Trouble};

/// Why there is no domain.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The registry.
    #[error(transparent)]
    Registry(#[from] registry::Error),
    /// The domain's own files.
    #[error("cannot make the domain's files: {0}")]
    Files(#[from] io::Error),
    /// The process that is to go on.
    #[error("cannot detach: {0}")]
    Detach(io::Error),
}

/// What a domain is to be.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    /// The machine.
    pub spec: Spec,
    /// The guest's command, or its kernel.
    pub command: Vec<String>,
    /// Whether the guest has an init of ours.
    pub has_init: bool,
    /// Whether its command has a terminal.
    pub has_terminal: bool,
    /// Where the kernel came from.
    pub kernel: String,
    /// What a snapshot of it is to say.
    pub origin: Origin,
    /// What it is to be with the domains of its name.
    pub beginning: Beginning,
}

/// How a domain begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Beginning {
    /// It is new.
    #[default]
    New,
    /// It takes the place of the domain of its name, which has ended.
    Again(StartedBy),
    /// It goes on from a snapshot, and cannot be started by its description.
    FromSnapshot,
}

/// The way to a guest's init.
#[derive(Debug)]
pub struct GuestEnd {
    /// The lines to it, of which it chooses one: those of its virtio port and of its serial port.
    pub lines: Vec<Line>,
    /// What its system must have.
    pub needs: Vec<Frame>,
    /// How late it is.
    pub time: vmm::TimeOfDay,
    /// The conversation that it is in, if it goes on from a snapshot.
    pub conversation: Option<Conversation>,
}

/// A process 1 of the guest's own.
#[derive(Debug)]
pub struct ProcessOne {
    /// The order for it, encoded ([`protocol::Order`]).
    pub order: Vec<u8>,
    /// Where a byte is written when it runs.
    pub notice: Option<UnixStream>,
}

impl GuestEnd {
    /// A hub, with a port at the other end of `first` for the command that the machine is for.
    fn hub(self, first: Line, trouble: &Trouble) -> io::Result<Hub> {
        let time = Box::new(HostTime(self.time));
        let mut hub = Hub::new(self.lines, self.needs, Some(time), Arc::clone(trouble))?;
        let Some(conversation) = self.conversation else {
            // There is room for the first.
            let _ = hub.connect(first, &[], &[]);
            return Ok(hub);
        };
        hub = hub.going_on(&conversation, seed()?);
        match conversation.has_command() {
            true => hub.connect_first(first, &conversation),
            false => drop(hub.connect(first, &[], &[])),
        }
        Ok(hub)
    }

    /// A hub without a first command, for a guest with a process 1 of its own.
    fn hub_beside(self, process_one: ProcessOne, trouble: &Trouble) -> io::Result<Hub> {
        let time = Box::new(HostTime(self.time));
        let hub = Hub::new(self.lines, self.needs, Some(time), Arc::clone(trouble))?;
        let hub = hub.with_process_one(&process_one.order, process_one.notice);
        Ok(match self.conversation {
            None => hub,
            Some(conversation) => hub.going_on(&conversation, seed()?),
        })
    }
}

/// Randomness that no other guest has.
fn seed() -> io::Result<[u8; 32]> {
    let mut seed = [0; 32];
    rustix::rand::getrandom(&mut seed, rustix::rand::GetRandomFlags::empty())?;
    Ok(seed)
}

/// The time of a machine, for its guest's init.
#[derive(Debug)]
struct HostTime(vmm::TimeOfDay);

impl Timekeeper for HostTime {
    fn now(&self) -> Time {
        let pair = self.0.pair();
        let realtime = u64::try_from(pair.realtime.as_nanos()).unwrap_or(u64::MAX);
        let (counter, frequency) = (pair.counter, pair.frequency);
        Time { realtime, counter, frequency, is_start: false }
    }
}

/// This process's domain.
#[derive(Debug)]
pub struct Domain {
    /// Its name and directory, which are its own until the process ends.
    claim: Option<registry::Claim>,
    record: Option<Arc<Mutex<Written<Record>>>>,
    kept: bool,
    listener: Option<UnixListener>,
    /// What its command writes, if that is kept.
    pub log: Option<log::Shared>,
    /// Where `biv` writes its messages, if it is detached.
    pub messages: Option<File>,
    /// The machine, for requests.
    pub machine: Machine,
    /// What it has to do with a keeper, if it is a paravirtual one.
    pub keeping: Option<keeper::Kept>,
}

impl Domain {
    /// Enters it in the registry if it has a name or goes on by itself.
    pub fn begin(plan: Plan) -> Result<Domain, Error> {
        // gdb's socket is in its directory.
        let has_gdb = plan.spec.watch.gdb.as_ref().is_some_and(|gdb| gdb.at.is_none());
        // So is the place that it has among others.
        let is_resident = plan.spec.shared_network().is_some();
        match Self::is_wanted(&plan.spec.life) || has_gdb || is_resident {
            true => Self::enter(plan),
            false => Ok(Domain::unknown()),
        }
    }

    /// Whether such a machine is entered: it has a name, or goes on by itself.
    #[must_use]
    pub fn is_wanted(life: &Life) -> bool {
        life.name.is_some() || life.detached
    }

    /// One that is in no registry.
    fn unknown() -> Domain {
        Domain {
            claim: None,
            record: None,
            kept: false,
            listener: None,
            log: None,
            messages: None,
            machine: Machine::default(),
            keeping: None,
        }
    }

    fn enter(plan: Plan) -> Result<Domain, Error> {
        let Life { detached, remove, .. } = plan.spec.life;
        let registry = Registry::open()?;
        let (name, demand) = (plan.spec.life.name.as_ref(), Demand::of(&plan.spec));
        let claim = match (plan.beginning, name) {
            (Beginning::Again(by), Some(name)) => {
                registry.claim_again(name, demand.as_ref(), by)?
            }
            _ => registry.claim(name, demand.as_ref())?,
        };
        let record = Record {
            version: record::VERSION,
            name: claim.name.clone(),
            pid: std::process::id(),
            created: record::now(),
            detached,
            // What does not get so far is not kept, unless it was before.
            kept: matches!(plan.beginning, Beginning::Again(_)),
            command: plan.command,
            has_init: plan.has_init,
            has_terminal: plan.has_terminal,
            memory: plan.spec.machine.memory,
            processors: plan.spec.machine.processors,
            kernel: plan.kernel,
            spec: Box::new(plan.spec),
            ending: None,
        };
        let create = |name| Ok::<_, io::Error>(File::from(files::create(&claim.directory, name)?));
        let written = Written::create(&claim.directory, record)?;
        plan.origin.record(&claim.directory)?;
        let spec = &written.record.spec;
        if plan.beginning != Beginning::FromSnapshot {
            again::record(&claim.directory, spec)?;
        }
        let keeping = match spec.machine.board {
            // One that cannot be kept runs all the same.
            Board::Xen => keeper::enter(&registry, &claim, spec)
                .inspect_err(|error| tracing::info!("the domain is not scheduled: {error}"))
                .ok(),
            Board::Pc => None,
        };
        let (mut log, mut messages) = (None, None);
        if detached {
            log = Some(Arc::new(Mutex::new(log::Writer::create(&claim.directory)?)));
            messages = Some(create(files::MESSAGES)?);
        }
        let listener = files::listen(&claim.directory, files::SOCKET)?;
        listener.set_nonblocking(true)?;
        Ok(Domain {
            claim: Some(claim),
            record: Some(Arc::new(Mutex::new(written))),
            kept: detached && !remove,
            listener: Some(listener),
            log,
            messages,
            machine: Machine::default(),
            keeping,
        })
    }

    /// Its name, if it has one.
    #[must_use]
    pub fn name(&self) -> Option<&Name> {
        self.claim.as_ref().map(|claim| &claim.name)
    }

    /// Its directory, if it has one.
    #[must_use]
    pub fn directory(&self) -> Option<&OwnedFd> {
        self.claim.as_ref().map(|claim| &claim.directory)
    }

    /// Its directory and where that is, if it has one.
    #[must_use]
    pub fn place(&self) -> Option<(&OwnedFd, &Path)> {
        self.claim.as_ref().map(|claim| (&claim.directory, claim.path.as_path()))
    }

    /// Whether others can find it, and sit down at its console.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.listener.is_some()
    }

    /// Starts the thread that serves a machine with an init of ours, which is at the other end of `guest`;
    /// the session gets the end of it that is returned, and what is wrong with the guest is said in the
    /// other. `console` is the way to its console, if it has one.
    pub fn serve(
        &mut self,
        guest: GuestEnd,
        console: Option<Line>,
        mut snapshots: Snapshots,
        warm: Option<(File, Finish)>,
    ) -> io::Result<(Line, Trouble)> {
        let trouble = Trouble::default();
        let (ours, theirs) = Line::pair()?;
        let mut hub = guest.hub(theirs, &trouble)?;
        if let Some(warm) = warm {
            snapshots.begin_warm(warm, &mut hub);
        }
        let console = console.map(|line| Console::new(line, self.log.clone())).transpose()?;
        self.start_server(Some(hub), console, snapshots)?;
        Ok((ours, trouble))
    }

    /// The same of a machine without, whose console is at the other end of `console`; the session gets the
    /// end of it that is returned.
    pub fn serve_plain(&mut self, console: Line, snapshots: Snapshots) -> io::Result<Line> {
        if !self.is_known() {
            return Ok(console);
        }
        let (ours, theirs) = Line::pair()?;
        self.start_server(
            None,
            Some(Console::new(console, None)?.with_streams(theirs)?),
            snapshots,
        )?;
        Ok(ours)
    }

    /// The same of a machine with a process 1 of its own and an agent of ours beside it: both are served. What is wrong
    /// with the guest is said in the trouble that is returned.
    pub fn serve_system(
        &mut self,
        guest: GuestEnd,
        process_one: ProcessOne,
        console: Line,
        snapshots: Snapshots,
    ) -> io::Result<(Line, Trouble)> {
        let trouble = Trouble::default();
        let hub = guest.hub_beside(process_one, &trouble)?;
        let (ours, console) = match self.is_known() {
            // Nobody else can sit down at it.
            false => (console, None),
            true => {
                let (ours, theirs) = Line::pair()?;
                let console = Console::new(console, self.log.clone())?.with_streams(theirs)?;
                (ours, Some(console))
            }
        };
        self.start_server(Some(hub), console, snapshots)?;
        Ok((ours, trouble))
    }

    fn start_server(
        &mut self,
        hub: Option<Hub>,
        console: Option<Console>,
        snapshots: Snapshots,
    ) -> io::Result<()> {
        let listener = self.listener.take();
        let record = self
            .record
            .as_ref()
            .map_or_else(nobody, |written| written.lock().unpoisoned().record.clone());
        let machine = Arc::clone(&self.machine);
        let messages = self.messages.as_ref().map(File::try_clone).transpose()?;
        let owner = rustix::process::geteuid();
        let server = Server { listener, hub, console, machine, record, messages, owner, snapshots };
        let (unprivileged, told) = mpsc::channel::<()>();
        std::thread::Builder::new().name("control".into()).spawn(move || {
            // What it needs is open. If it has to keep them, the filter of system calls is still there.
            let _ = host::privileges::drop_all();
            drop(unprivileged);
            server.run();
        })?;
        // Once the process is confined, asking for it would end the process.
        let _ = told.recv();
        Ok(())
    }

    /// It has come to its end.
    pub fn end(&mut self, ending: Ended) {
        if let Some(written) = &self.record {
            written.lock().unpoisoned().change(|record| record.ending = Some(ending));
        }
    }

    /// What is to be done when its command runs, if it is to go on by itself then.
    pub fn going_on(&mut self, child: detach::Child) -> io::Result<GoingOn> {
        let kept = self.kept;
        let messages = self.messages.as_ref().map(File::try_clone).transpose()?;
        let (name, log) = (self.name().cloned(), self.log.clone());
        Ok(GoingOn { child, name, messages, log, written: self.record.clone(), kept })
    }
}

/// A domain that is about to go on by itself.
#[derive(Debug)]
pub struct GoingOn {
    child: detach::Child,
    name: Option<Name>,
    messages: Option<File>,
    log: Option<log::Shared>,
    written: Option<Arc<Mutex<Written<Record>>>>,
    kept: bool,
}

impl GoingOn {
    /// It does, from here on; what its command writes is kept.
    pub fn go_on(self, outputs: &mut Outputs) -> io::Result<()> {
        if let Some(written) = &self.written {
            written.lock().unpoisoned().change(|record| record.kept = self.kept);
        }
        if let Some(log) = &self.log {
            outputs.keep_in(log);
        }
        match &self.name {
            Some(name) => self.child.goes_on(name, self.messages.as_ref()),
            None => Ok(()),
        }
    }
}

/// What is said of a domain that is not in the registry, which nobody can ask.
fn nobody() -> Record {
    Record {
        version: record::VERSION,
        name: Name::generated(0),
        pid: std::process::id(),
        created: record::now(),
        detached: false,
        kept: false,
        command: Vec::new(),
        has_init: false,
        has_terminal: false,
        memory: 0,
        processors: 0,
        kernel: String::new(),
        spec: Box::default(),
        ending: None,
    }
}
