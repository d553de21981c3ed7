//! The thread that serves a pod's control socket and its hub: one loop, which polls everything.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;

use api::pod::{self, Inspection, Record, State};
use api::v1::{Answer, Refusal};
use api::{files, http};
use host::poll::{PollFlags, Poller};
use hub::Hub;
use hub::attached::AttachedClient;
use hub::connection::{Asked, Connections};
use rustix::process::Uid;
use session::Line;

use crate::names::Handle;
use crate::network::Link;

/// What the thread serves.
#[derive(Debug)]
pub struct Server {
    /// The control socket.
    pub listener: UnixListener,
    /// The way to the pod's init.
    pub hub: Hub,
    /// What ends the pod.
    pub first: Handle,
    /// The other end of its interface, if it has one.
    pub link: Option<Link>,
    /// What the pod is.
    pub record: Record,
    /// What `biv` has said about it.
    pub messages: Option<File>,
    /// Whose it is.
    pub owner: Uid,
}

/// Where something may have happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    Listener,
    Client(usize),
    Hub(hub::Place),
    Network,
}

impl Server {
    /// Serves until the process ends.
    pub fn run(mut self) {
        let mut connections = Connections::of(self.owner);
        while let Some(ready) = self.wait(&connections) {
            let places: Vec<_> = ready
                .iter()
                .filter_map(
                    |source| if let Source::Hub(place) = source { Some(*place) } else { None },
                )
                .collect();
            if !places.is_empty() {
                self.hub.carry(&places);
            }
            // Those that become something else leave a gap behind them.
            for source in ready.iter().rev() {
                if let Source::Client(place) = source {
                    self.serve(&mut connections, *place);
                }
            }
            if ready.contains(&Source::Network)
                && let Some(link) = &mut self.link
            {
                link.end();
            }
            if ready.contains(&Source::Listener) {
                connections.accept(&self.listener);
            }
            connections.dismiss();
        }
    }

    /// Waits until something can be done; none if the host does not let us.
    fn wait(&self, connections: &Connections) -> Option<Vec<Source>> {
        let mut poller = Poller::new();
        if connections.has_room() {
            poller.register(Source::Listener, self.listener.as_fd(), PollFlags::IN);
        }
        if let Some(process) = self.link.as_ref().and_then(Link::watched) {
            poller.register(Source::Network, process, PollFlags::IN);
        }
        for (place, stream, flags) in connections.watched() {
            poller.register(Source::Client(place), stream, flags);
        }
        for (place, descriptor, flags) in self.hub.watched() {
            poller.register(Source::Hub(place), descriptor, flags);
        }
        poller.wait(connections.deadline()).ok()?;
        Some(poller.ready().map(|(source, _)| source).collect())
    }

    fn serve(&mut self, connections: &mut Connections, place: usize) {
        let Some(Asked { request, length }) = connections.carry(place) else { return };
        let answer = pod::answer(&request, self);
        if let Answer::Response(response) = answer {
            return connections.answer(place, &response);
        }
        let (stream, rest) = connections.take(place, length);
        let Ok(line) = Line::of(stream) else { return };
        let preface = http::upgraded(http::FRAMES);
        match answer {
            Answer::Frames => drop(self.hub.connect(line, &preface, &rest)),
            Answer::Watch => self.hub.watch(AttachedClient::new(line, &preface, &rest)),
            Answer::Response(_) | Answer::Console | Answer::Snapshot(_) => {}
        }
    }

    /// It does not run, or not yet.
    fn must_run(&self) -> Result<(), Refusal> {
        match self.hub.has_started() {
            true => Ok(()),
            false => Err((503, "its command is not running".to_owned())),
        }
    }
}

impl pod::Pod for Server {
    fn inspect(&self) -> Inspection {
        let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        Inspection {
            record: self.record.clone(),
            state: if self.hub.has_started() { State::Running } else { State::Starting },
            commands: count(self.hub.running()),
            watchers: count(self.hub.watching()),
            messages: self.messages.as_ref().map(files::last_messages).unwrap_or_default(),
        }
    }

    fn stop(&mut self) -> Result<(), Refusal> {
        if !self.hub.is_up() {
            return Err((503, "it is not up yet".to_owned()));
        }
        self.hub.terminate();
        Ok(())
    }

    fn kill(&mut self, signal: Option<u8>) -> Result<(), Refusal> {
        match signal {
            None => self.first.kill(),
            Some(signal) => {
                self.must_run()?;
                self.hub.signal_first(signal);
            }
        }
        Ok(())
    }

    fn takes_commands(&self) -> Result<(), Refusal> {
        self.must_run()?;
        match self.hub.has_room() {
            true => Ok(()),
            false => Err((503, "too many commands are running in it".to_owned())),
        }
    }

    fn takes_watchers(&self) -> Result<(), Refusal> {
        self.must_run()?;
        match self.hub.may_be_watched() {
            true => Ok(()),
            false => Err((503, "too many clients are attached to it".to_owned())),
        }
    }
}
