//! The thread that serves a domain's control socket and its hub.
//!
//! One loop polls everything, and blocks only for the moment in which the vCPUs pause, for `pause`
//! or for a snapshot. The thread runs confined ([`host::confine`]): its socket listens before the
//! machine starts, and afterwards it opens nothing, but accepts connections and starts the threads
//! of snapshots, each with an eventfd ([`super::job`]).
//!
//! It answers only this user and root; the kernel tells which user a client is (SO_PEERCRED).

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use host::poll::{PollFlags, Poller};
use rustix::process::Uid;

use super::console::{self, Console};
use super::snapshot::Snapshots;
use super::toolstack;
use api::http::{self, Response};
use api::record::Record;
use api::v1::toolstack::{Ask, Reply};
use api::v1::{self, Answer, Inspection, Refusal, State, Statistics, Take};
use hub::Hub;
use hub::attached::AttachedClient;
use hub::connection::{Asked, Connections};
use session::Line;
use vmm::snapshot::{Compression, Written};

/// How long a client may wait for a snapshot.
const SNAPSHOT_PATIENCE: Duration = Duration::from_secs(600);

/// How a running machine is reached, once it is built.
pub type Machine = Arc<OnceLock<vmm::Remote>>;

/// What the thread serves.
pub struct Server {
    /// The control socket, if the domain is in the registry.
    pub listener: Option<UnixListener>,
    /// The way to the guest's init, if it has one of ours.
    pub hub: Option<Hub>,
    /// Its console, if it has one.
    pub console: Option<Console>,
    /// The machine.
    pub machine: Machine,
    /// What the domain is.
    pub record: Record,
    /// What `biv` has said about it.
    pub messages: Option<File>,
    /// Whose it is; a confined process does not ask.
    pub owner: Uid,
    /// Snapshots of it.
    pub snapshots: Snapshots,
}

impl Server {
    /// Serves until the process ends, or until there is nothing to serve.
    pub fn run(self) {
        let connections = Connections::of(self.owner);
        Serving { server: self, connections }.run();
    }
}

struct Serving {
    server: Server,
    connections: Connections,
}

/// Where something may have happened.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    Listener,
    Client(usize),
    Hub(hub::Place),
    Console(console::Place),
    Snapshots,
}

impl Serving {
    fn run(&mut self) {
        loop {
            let Some(ready) = self.wait() else { return };
            self.carry(&ready);
            // Those that become something else leave a gap behind them.
            for source in ready.iter().rev() {
                if let Source::Client(number) = source {
                    self.serve(*number);
                }
            }
            if ready.contains(&Source::Listener)
                && let Some(listener) = &self.server.listener
            {
                self.connections.accept(listener);
            }
            self.take_snapshot();
            self.server.hub.iter_mut().for_each(|hub| hub.tell_time(Instant::now()));
            self.connections.dismiss();
        }
    }

    /// Has hub and console do what they can.
    fn carry(&mut self, ready: &[Source]) {
        let of_hub =
            |source: &Source| if let Source::Hub(place) = source { Some(*place) } else { None };
        let places: Vec<_> = ready.iter().filter_map(of_hub).collect();
        if let Some(hub) = self.server.hub.as_mut().filter(|_| !places.is_empty()) {
            hub.carry(&places);
        }
        let of_console =
            |source: &Source| if let Source::Console(at) = source { Some(*at) } else { None };
        let places: Vec<_> = ready.iter().filter_map(of_console).collect();
        if let Some(console) = self.server.console.as_mut().filter(|_| !places.is_empty()) {
            console.carry(&places);
            self.server.attend_console();
        }
    }

    /// Waits until something can be done; none if nothing ever can.
    fn wait(&self) -> Option<Vec<Source>> {
        let mut poller = Poller::new();
        if let Some(listener) = &self.server.listener
            && self.connections.has_room()
        {
            poller.register(Source::Listener, listener.as_fd(), PollFlags::IN);
        }
        for (place, stream, flags) in self.connections.watched() {
            poller.register(Source::Client(place), stream, flags);
        }
        if let Some(hub) = &self.server.hub {
            for (place, descriptor, flags) in hub.watched() {
                poller.register(Source::Hub(place), descriptor, flags);
            }
        }
        if let Some(console) = &self.server.console {
            for (place, descriptor, flags) in console.watched() {
                poller.register(Source::Console(place), descriptor, flags);
            }
        }
        if let Some(completion) = self.server.snapshots.completion() {
            poller.register(Source::Snapshots, completion, PollFlags::IN);
        }
        if poller.is_empty() && self.connections.is_empty() {
            return None;
        }
        let of_hub = self.server.hub.as_ref().and_then(Hub::deadline);
        let of_all = [self.connections.deadline(), self.server.snapshots.deadline(), of_hub];
        let next = of_all.into_iter().flatten().min();
        poller.wait(next).ok()?;
        Some(poller.ready().map(|(source, _)| source).collect())
    }

    fn serve(&mut self, place: usize) {
        let Some(Asked { request, length }) = self.connections.carry(place) else { return };
        match v1::answer(&request, &mut self.server) {
            Answer::Response(response) => self.connections.answer(place, &response),
            Answer::Snapshot(compression) => self.begin_snapshot(place, compression),
            become_something => self.hand_over(place, length, &become_something),
        }
    }

    /// A client wants a snapshot, in the file that it has handed over.
    fn begin_snapshot(&mut self, place: usize, take: Take) {
        let snapshots = &mut self.server.snapshots;
        let refusal = match self.connections.take_file(place) {
            None => (400, "the request must come with a descriptor of an empty file"),
            Some(_) if snapshots.is_busy() => (409, "a snapshot is being taken already"),
            Some(file) => {
                let compression =
                    if take.compress { Compression::Zstandard } else { Compression::None };
                if let Some(number) = self.connections.wait(place, SNAPSHOT_PATIENCE) {
                    snapshots.begin(file, compression, number);
                }
                return;
            }
        };
        self.connections.answer(place, &Response::problem(refusal.0, refusal.1.to_owned()));
    }

    /// Take the snapshot that is to be taken, if that can be done now.
    fn take_snapshot(&mut self) {
        let Server { snapshots, machine, hub, .. } = &mut self.server;
        match snapshots.advance(machine.get(), hub.as_mut()) {
            None => {}
            Some((None, Ok(written))) => tracing::debug!(?written, "the next start is warm"),
            Some((None, Err(error))) => tracing::debug!(error, "the next start is cold"),
            Some((Some(client), result)) => {
                let response = match result {
                    Ok(written) => Response::json(200, &told(&written)),
                    Err(error) => Response::problem(503, error),
                };
                self.connections.answer_number(client, &response);
            }
        }
    }

    /// The connection is the hub's or the console's from now on. It is closed if there is no place for
    /// it, which has been looked at before the answer.
    fn hand_over(&mut self, place: usize, length: usize, answer: &Answer) {
        let (stream, rest) = self.connections.take(place, length);
        let Ok(line) = Line::of(stream) else { return };
        let rest = rest.as_slice();
        let preface = http::upgraded(http::FRAMES);
        match (answer, &mut self.server.hub, &mut self.server.console) {
            (Answer::Frames, Some(hub), _) => drop(hub.connect(line, &preface, rest)),
            (Answer::Watch, Some(hub), _) => hub.watch(AttachedClient::new(line, &preface, rest)),
            (Answer::Console, _, Some(console)) => {
                console.connect(line, &preface, rest);
                self.server.attend_console();
            }
            _ => {}
        }
    }
}

impl Server {
    /// Tells the guest of who sits at the console, and how large the window is.
    fn attend_console(&mut self) {
        let Some(console) = &mut self.console else { return };
        if let Some(hub) = &mut self.hub {
            hub.set_attended(console.attendance() > 0);
        }
        if let Some(machine) = self.machine.get()
            && let Some((rows, columns)) = console.take_size()
        {
            machine.resize_console(rows, columns);
        }
    }

    /// A paused guest answers no request.
    fn must_not_stand_still(&self) -> Result<(), Refusal> {
        match self.machine.get().is_some_and(vmm::Remote::is_paused) {
            true => {
                Err((409, format!("it is paused; `biv resume {}` lets it go on", self.record.name)))
            }
            false => Ok(()),
        }
    }

    fn machine(&self) -> Result<&vmm::Remote, Refusal> {
        self.machine.get().ok_or_else(|| (503, "the machine is still being built".to_owned()))
    }
}

impl v1::Domain for Server {
    fn inspect(&self) -> Inspection {
        let state = match (self.machine.get(), &self.hub) {
            (Some(machine), _) if machine.is_paused() => State::Paused,
            (Some(_), Some(hub)) if hub.has_started() => State::Running,
            (Some(_), None) => State::Running,
            _ => State::Starting,
        };
        let count = |count: Option<usize>| u32::try_from(count.unwrap_or(0)).unwrap_or(u32::MAX);
        Inspection {
            record: self.record.clone(),
            state,
            commands: count(self.hub.as_ref().map(Hub::running)),
            watchers: count(self.hub.as_ref().map(Hub::watching)),
            terminals: count(self.console.as_ref().map(Console::attendance)),
            messages: self.messages.as_ref().map(api::files::last_messages).unwrap_or_default(),
        }
    }

    fn statistics(&self) -> Result<Statistics, Refusal> {
        let machine = self.machine()?;
        let processors = machine.activity().into_iter().map(|activity| v1::Processor {
            exits: activity.exits,
            interrupts: activity.interrupts,
            halts: activity.halts,
        });
        let (read_bytes, written_bytes) = host::moved_bytes();
        Ok(Statistics {
            memory: machine.maximum_memory(self.record.memory),
            memory_used: machine.memory_used(),
            balloon: machine.ballooned().map(balloon),
            processors: processors.collect(),
            sessions: self.hub.as_ref().map_or(0, Hub::sessions),
            read_bytes,
            written_bytes,
        })
    }

    fn stop(&mut self) -> Result<(), Refusal> {
        let machine = self.machine()?.clone();
        machine.resume();
        match &mut self.hub {
            None => machine.press_power_button(),
            Some(hub) if !hub.is_up() => return Err((503, "the guest is not up yet".to_owned())),
            Some(hub) => match self.record.spec.process.stop_signal {
                Some(signal) if hub.has_started() && !hub.has_process_one() => {
                    hub.signal_first(signal);
                }
                _ => hub.terminate(),
            },
        }
        Ok(())
    }

    fn kill(&mut self, signal: Option<u8>) -> Result<(), Refusal> {
        let Some(signal) = signal else {
            self.machine()?.stop();
            return Ok(());
        };
        self.must_not_stand_still()?;
        match &mut self.hub {
            None => {
                Err((409, "this machine has no command that a signal could be sent to".to_owned()))
            }
            Some(hub) if hub.has_process_one() => {
                Err((409, "its process 1 is its own, and takes no signals from outside".to_owned()))
            }
            Some(hub) if !hub.has_started() => {
                Err((503, "its command has not started yet".to_owned()))
            }
            Some(hub) => {
                hub.signal_first(signal);
                Ok(())
            }
        }
    }

    fn balloon(&mut self, memory: u64) -> Result<(), Refusal> {
        let (machine, all) = (self.machine()?, self.record.memory);
        let most = machine.maximum_memory(all);
        if !(1..=most).contains(&memory) {
            return Err((
                400,
                format!("the machine has {most} bytes of memory; say how many of them"),
            ));
        }
        match machine.set_memory(all, memory) {
            true => Ok(()),
            false => Err((409, "the machine has no balloon device".to_owned())),
        }
    }

    fn toolstack(&mut self, ask: &Ask) -> Result<Reply, Refusal> {
        let answer = toolstack::answer(self.machine()?, ask);
        answer.unwrap_or_else(|| Err(v1::toolstack::none()))
    }

    fn pause(&mut self, paused: bool) -> Result<(), Refusal> {
        let machine = self.machine()?;
        if !paused {
            machine.resume();
        } else if !machine.pause() {
            machine.resume();
            return Err((503, "its processors could not be paused in time".to_owned()));
        }
        Ok(())
    }

    fn allows_snapshots(&self) -> Result<(), Refusal> {
        self.machine()?;
        // A guest's init has to be asked; a machine without one need not move.
        self.hub.as_ref().map_or(Ok(()), |_| self.must_not_stand_still())?;
        match &self.hub {
            Some(hub) if !hub.has_started() => {
                Err((503, "its command has not started yet".to_owned()))
            }
            _ => self.snapshots.obstacle.map_or(Ok(()), |why| Err((409, why.to_owned()))),
        }
    }

    fn takes_commands(&self) -> Result<(), Refusal> {
        self.must_not_stand_still()?;
        match &self.hub {
            None => Err((
                409,
                "the guest does not run Bivouac's init, so it cannot run commands".to_owned(),
            )),
            Some(hub) if !hub.has_started() => Err((503, "the guest is not up yet".to_owned())),
            Some(hub) if !hub.has_room() => {
                Err((503, "too many commands are running in it".to_owned()))
            }
            Some(_) => Ok(()),
        }
    }

    fn takes_terminals(&self) -> Result<(), Refusal> {
        self.must_not_stand_still()?;
        match &self.console {
            None => Err((409, "it has no console".to_owned())),
            Some(console) if !console.has_room() => {
                Err((503, "too many clients are connected to its console".to_owned()))
            }
            Some(_) => Ok(()),
        }
    }

    fn takes_watchers(&self) -> Result<(), Refusal> {
        self.must_not_stand_still()?;
        match &self.hub {
            None => Err((
                409,
                "it has no command to attach to, only a console (biv console)".to_owned(),
            )),
            Some(hub) if hub.has_process_one() => Err((
                409,
                "it has a process 1 of its own and no command to attach to, only a console (biv \
                 console)"
                    .to_owned(),
            )),
            Some(hub) if !hub.has_started() => Err((503, "its command is not running".to_owned())),
            Some(hub) if !hub.may_be_watched() => {
                Err((503, "too many clients are attached to it".to_owned()))
            }
            Some(_) => Ok(()),
        }
    }
}

/// What is said of a snapshot that was written.
fn told(written: &Written) -> v1::Snapshot {
    let paused = u64::try_from(written.paused.as_millis()).unwrap_or(u64::MAX);
    v1::Snapshot { paused, memory: written.memory, file: written.file }
}

fn balloon(found: vmm::Ballooned) -> v1::Balloon {
    let guest = found.statistics.unwrap_or_default();
    v1::Balloon {
        wanted: found.wanted,
        given: found.given,
        freed: found.freed,
        guest_total: guest.total,
        guest_free: guest.free,
        guest_available: guest.available,
        guest_caches: guest.caches,
        guest_swapped_in: guest.swapped_in,
        guest_swapped_out: guest.swapped_out,
        guest_major_faults: guest.major_faults,
        guest_minor_faults: guest.minor_faults,
    }
}
