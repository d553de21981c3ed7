//! The main thread: which domains there are, which processes they have, and what programs ask.
//!
//! It waits for requests and for the ends of domains, and wakes up by itself only to see whether time is scarce: then
//! it looks for new processes of domains several times a second.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::{Duration, Instant};

use api::http::{self, Response};
use api::keeper::{LOOK, STANDINGS, SchedulerKind};
use api::{Entry, Name, Registry, files, keeper};
use gates::Gates;
use host::Poller;
use host::poll::PollFlags;
use rustix::fs::{AtFlags, Mode, OFlags, openat, unlinkat};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use scheduler::{Cap, DomainId, Policy, Weight};
use spec::{Board, Scheduling};

use crate::engine::{Handle, Message, Newcomer};
use crate::limits::{CLIENT_TIMEOUT, DOMAINS_MAX, MEMBERS_PERIOD, REST_PERIOD};
use crate::meter::{Member, members};

/// A domain that is looked after.
struct Kept {
    id: DomainId,
    owner: i32,
    directory: OwnedFd,
    /// Becomes readable when it ends.
    process: OwnedFd,
    policy: Scheduling,
}

impl Kept {
    /// Its processes now. The zygote is nobody's child.
    fn members(&self) -> Vec<Member> {
        members(self.owner, keeper::helpers(&self.directory))
    }
}

struct Keeper {
    registry: Registry,
    listener: UnixListener,
    domains: BTreeMap<Name, Kept>,
    next: u32,
    engine: Handle,
    scheduler: SchedulerKind,
    /// When the processes of domains were looked for last.
    looked: Instant,
}

/// See [`crate::keep`].
pub(crate) fn keep(path: &Path) -> io::Result<()> {
    let registry = Registry::at(path).map_err(io::Error::other)?;
    let Some((directory, _lock)) = registry.become_keeper().map_err(io::Error::other)? else {
        return Ok(());
    };
    // One that was killed has left its own.
    let _ = unlinkat(&directory, files::SOCKET, AtFlags::empty());
    let listener = files::listen(&directory, files::SOCKET)?;
    listener.set_nonblocking(true)?;
    let scheduler = keeper::scheduler(&registry);
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let mut keeper = Keeper {
        registry,
        listener,
        domains: BTreeMap::new(),
        next: 0,
        engine: Handle::start(processors, scheduler)?,
        scheduler,
        looked: Instant::now(),
    };
    keeper.run()
}

impl Keeper {
    fn run(&mut self) -> io::Result<()> {
        loop {
            self.look();
            let left = self.registry.leave_keeping(needs_keeper);
            if self.domains.is_empty() && left.map_err(io::Error::other)? {
                self.engine.send(Message::End);
                return Ok(());
            }
            self.wait()?;
            while let Ok((client, _)) = self.listener.accept() {
                // What is wrong with a client is its own business.
                let _ = self.serve(&client);
            }
        }
    }

    /// Wait for a request, for the end of a domain, or until the processes of domains are to be looked for.
    fn wait(&mut self) -> io::Result<()> {
        loop {
            let rest = match self.engine.is_deciding() {
                true => MEMBERS_PERIOD,
                false => REST_PERIOD,
            };
            if self.looked.elapsed() >= rest {
                self.looked = Instant::now();
                for kept in self.domains.values() {
                    self.engine.send(Message::Members(kept.id, kept.members()));
                }
            }
            let mut poller = Poller::new();
            poller.register((), self.listener.as_fd(), PollFlags::IN);
            for kept in self.domains.values() {
                poller.register((), kept.process.as_fd(), PollFlags::IN);
            }
            if poller.wait(Some(Instant::now() + MEMBERS_PERIOD))? > 0 {
                return Ok(());
            }
        }
    }

    /// Look after the domains that there are now.
    fn look(&mut self) {
        let scheduler = keeper::scheduler(&self.registry);
        if std::mem::replace(&mut self.scheduler, scheduler) != scheduler {
            self.engine.send(Message::Scheduler(scheduler));
        }
        let entries = self.registry.list().unwrap_or_default();
        let living = |name: &Name| entries.iter().any(|entry| entry.alive && entry.name == *name);
        let gone = |kept: &Kept| !is_alive(&kept.process);
        let ended = self.domains.iter().filter(|(name, kept)| !living(name) || gone(kept));
        for name in ended.map(|(name, _)| name.clone()).collect::<Vec<_>>() {
            if let Some(kept) = self.domains.remove(&name) {
                self.engine.send(Message::Remove(kept.id));
            }
        }
        for entry in entries.iter().filter(|entry| entry.alive) {
            let Ok(policy) = keeper::policy(&entry.directory) else { continue };
            let is_full = self.domains.len() >= DOMAINS_MAX;
            match self.domains.get_mut(&entry.name) {
                Some(kept) if kept.policy == policy => {}
                Some(kept) => {
                    self.engine.send(Message::Policy(kept.id, worth(&policy)));
                    kept.policy = policy;
                }
                None if !is_full => {
                    // One that is not ready says so when it is.
                    let _ = self.take_on(entry, policy);
                }
                None => {}
            }
        }
    }

    fn take_on(&mut self, entry: &Entry, policy: Scheduling) -> io::Result<()> {
        let record = entry.record.as_ref().ok_or(io::ErrorKind::NotFound)?;
        let owner = record.pid.cast_signed();
        let number = Pid::from_raw(owner).ok_or(io::ErrorKind::InvalidData)?;
        let process = pidfd_open(number, PidfdFlags::empty())?;
        let open = |name, flags| {
            let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            openat(&entry.directory, name, flags, Mode::empty())
        };
        let file = open(gates::FILE, OFlags::RDWR)?;
        let gates = Gates::open(&File::from(file))?;
        let id = DomainId(self.next);
        self.next = self.next.wrapping_add(1);
        let directory = entry.directory.try_clone()?;
        let kept = Kept { id, owner, directory, process, policy };
        // Not there if the domain does not listen.
        let lifeline = open(keeper::LIFELINE, OFlags::WRONLY | OFlags::NONBLOCK).ok();
        let newcomer = Newcomer {
            name: entry.name.to_string(),
            gates,
            policy: worth(&kept.policy),
            members: kept.members(),
            lifeline: lifeline.map(File::from),
        };
        self.engine.send(Message::Add(id, Box::new(newcomer)));
        self.domains.insert(entry.name.clone(), kept);
        Ok(())
    }

    fn serve(&mut self, client: &UnixStream) -> io::Result<()> {
        client.set_nonblocking(false)?;
        client.set_read_timeout(Some(CLIENT_TIMEOUT))?;
        client.set_write_timeout(Some(CLIENT_TIMEOUT))?;
        let peer = rustix::net::sockopt::socket_peercred(client)?;
        let (own, root) = (rustix::process::geteuid(), rustix::process::Uid::ROOT);
        if peer.uid != own && peer.uid != root {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let answer = match read(client) {
            Ok(request) => self.answer(&request),
            Err(problem) => problem,
        };
        (&mut &*client).write_all(&answer.bytes())
    }

    fn answer(&mut self, request: &http::Request) -> Response {
        match (request.method.as_str(), request.path.as_str()) {
            ("GET", STANDINGS) => match self.engine.standings() {
                Some(standings) => Response::json(200, &standings),
                None => Response::problem(503, "the scheduler is too busy to answer"),
            },
            ("POST", LOOK) => {
                self.look();
                Response::done()
            }
            (_, STANDINGS | LOOK) => Response::problem(405, "method not allowed for this path"),
            (_, path) => Response::problem(404, format!("there is no {path} here")),
        }
    }
}

/// The whole request of a client.
fn read(mut client: &UnixStream) -> Result<http::Request, Response> {
    let mut bytes = Vec::new();
    loop {
        match http::parse(&bytes) {
            Ok(Some((request, _))) => return Ok(request),
            Ok(None) => {}
            Err(error) => return Err(Response::problem(error.status(), error.to_string())),
        }
        let mut piece = [0; 4096];
        match client.read(&mut piece) {
            Ok(count) if count > 0 => bytes.extend_from_slice(&piece[..count]),
            _ => return Err(Response::problem(400, "the request is not complete")),
        }
    }
}

/// What a description means for the scheduler.
fn worth(policy: &Scheduling) -> Policy {
    Policy {
        weight: Weight::new(policy.weight).unwrap_or_default(),
        cap: policy.cap.and_then(Cap::new),
        warp: Duration::from_millis(policy.warp.into()),
    }
}

fn is_paravirtual(entry: &Entry) -> bool {
    entry.record.as_ref().is_some_and(|record| record.spec.machine.board == Board::Xen)
}

/// One that has not written its record yet may need a keeper.
fn needs_keeper(entry: &Entry) -> bool {
    entry.record.is_none() || is_paravirtual(entry)
}

fn is_alive(process: &OwnedFd) -> bool {
    host::poll::look_at(process, PollFlags::IN).is_ok_and(|ready| ready.is_empty())
}
