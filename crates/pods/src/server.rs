//! The thread that serves a pod's control socket and its hub: one loop, which polls everything.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::time::Instant;

use api::http::Response;
use api::pod::{self, Answer, Inspection, Record, State, Task};
use api::v1::Refusal;
use api::{files, http};
use host::poll::{PollFlags, Poller};
use hub::Hub;
use hub::attached::AttachedClient;
use hub::connection::{Asked, Connections};
use rustix::process::Uid;
use session::{Line, Trouble};

use crate::image::Write;
use crate::limits::{DRAIN_PATIENCE, TASK_PATIENCE};
use crate::names::Handle;
use crate::network::Link;
use crate::reader::Opened;
use crate::tracer::{Ask, Done, Restart, Tracer};

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
    /// What freezes it.
    pub tracer: Tracer,
    /// What its processes are to be made from, when init waits for them.
    pub image: Option<Opened>,
    /// Where it is said why there is no pod.
    pub trouble: Trouble,
    /// They are not to run yet.
    pub stays_frozen: bool,
    /// Who is to have them run (pidfd): the pod ends with it until then.
    pub guard: Option<OwnedFd>,
    /// The tracer makes the processes of an image.
    pub is_restarting: bool,
    /// Who has asked for what the tracer does, and whether the pod was frozen then.
    pub asked: Option<(u64, bool)>,
    /// What is to be answered when all that the pod's command has written was heard.
    pub answering: Option<Answering>,
    /// What the pod is.
    pub record: Record,
    /// What `biv` has said about it.
    pub messages: Option<File>,
    /// Whose it is.
    pub owner: Uid,
}

/// What came of a task, for whoever has asked for it.
#[derive(Debug)]
pub struct Answering {
    client: u64,
    /// Whether the pod was frozen then.
    was_frozen: bool,
    outcome: Result<Done, String>,
    /// When it is said at the latest, if it has to wait.
    deadline: Instant,
}

/// Where something may have happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    Listener,
    Client(usize),
    Hub(hub::Place),
    Network,
    Switch,
    Tracer,
    Guard,
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
            if ready.contains(&Source::Tracer) {
                self.hear_tracer(&mut connections);
            }
            self.tell_in_time(&mut connections);
            self.restart();
            if ready.contains(&Source::Guard) && self.guard.take().is_some() {
                self.first.kill();
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
            if ready.contains(&Source::Switch)
                && let Some(Err(error)) = self.link.as_mut().map(Link::lose_switch)
            {
                tracing::warn!("the pod is cut off: {error}");
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
        if let Some(switch) = self.link.as_ref().and_then(Link::watched_switch) {
            poller.register(Source::Switch, switch, PollFlags::IN);
        }
        for (place, stream, flags) in connections.watched() {
            poller.register(Source::Client(place), stream, flags);
        }
        for (place, descriptor, flags) in self.hub.watched() {
            poller.register(Source::Hub(place), descriptor, flags);
        }
        if let Some(guard) = &self.guard {
            poller.register(Source::Guard, guard.as_fd(), PollFlags::IN);
        }
        poller.register(Source::Tracer, self.tracer.completion(), PollFlags::IN);
        let deadline = self.answering.as_ref().map(|answer| answer.deadline);
        poller.wait(deadline.into_iter().chain(connections.deadline()).min()).ok()?;
        Some(poller.ready().map(|(source, _)| source).collect())
    }

    fn serve(&mut self, connections: &mut Connections, place: usize) {
        let Some(Asked { request, length }) = connections.carry(place) else { return };
        let answer = pod::answer(&request, self);
        match answer {
            Answer::Response(response) => return connections.answer(place, &response),
            Answer::Later(task) => return self.begin(task, connections, place),
            Answer::Frames | Answer::Watch => {}
        }
        let (stream, rest) = connections.take(place, length);
        let Ok(line) = Line::of(stream) else { return };
        let preface = http::upgraded(http::FRAMES);
        match answer {
            Answer::Frames => drop(self.hub.connect(line, &preface, &rest)),
            Answer::Watch => self.hub.watch(AttachedClient::new(line, &preface, &rest)),
            Answer::Response(_) | Answer::Later(_) => {}
        }
    }

    /// Has the tracer do what a client wants.
    fn begin(&mut self, task: Task, connections: &mut Connections, place: usize) {
        let ask = match (task, self.hub.streams()) {
            (Task::Freeze, _) => Ok(Ask::Freeze),
            (Task::Thaw, _) => Ok(Ask::Thaw),
            (Task::Checkpoint(how), Some(streams)) => connections
                .take_file(place)
                .map(|file| {
                    let record = self.record.clone();
                    Ask::Copy(Box::new(Write { file, how, record, streams }))
                })
                .ok_or((400, "the request must come with a descriptor of an empty file")),
            (Task::Checkpoint(_), None) => Err((503, "its command is not running")),
        };
        match ask {
            Ok(ask) => {
                let client = connections.wait(place, TASK_PATIENCE);
                self.asked = client.map(|client| (client, self.tracer.is_frozen()));
                self.tracer.ask(ask);
            }
            Err((status, reason)) => {
                connections.answer(place, &Response::problem(status, reason.to_owned()));
            }
        }
    }

    /// Locks or unlocks the pod's link, if it has one.
    fn set_link(&mut self, set: fn(&mut Link) -> std::io::Result<()>) {
        if let Some(link) = &mut self.link
            && let Err(error) = set(link)
        {
            tracing::warn!("cannot set the pod's link: {error}");
        }
    }

    /// Has the processes of the image made, when init has streams for the first of them.
    fn restart(&mut self) {
        if let Some(streams) = self.hub.streams()
            && let Some(image) = self.image.take()
        {
            self.is_restarting = true;
            let stays_frozen = self.stays_frozen;
            self.tracer.ask(Ask::Restart(Box::new(Restart { image, streams, stays_frozen })));
        }
    }

    fn hear_tracer(&mut self, connections: &mut Connections) {
        let Some(outcome) = self.tracer.outcome() else { return };
        // Who ends while its link is locked is not heard of by others: it may go on elsewhere.
        if !self.tracer.is_frozen() && !matches!(outcome, Ok(Done::LetGo)) {
            self.set_link(Link::unlock);
        }
        if std::mem::take(&mut self.is_restarting) {
            return match outcome {
                Ok(_) => self.hub.note_adopted(),
                Err(why) => {
                    // The first one counts.
                    let _ = self.trouble.set(why);
                    self.first.kill();
                }
            };
        }
        match outcome {
            Ok(Done::Thawed) => self.guard = None,
            Ok(Done::Copied) => {
                // Connections of a pod that is written down must not hear that it is silent.
                self.set_link(Link::lock);
                return self.tracer.ask(Ask::Write);
            }
            Ok(Done::Unsettled(pause)) => return self.tracer.ask(Ask::FreezeAgain(pause)),
            _ => {}
        }
        let Some((client, was_frozen)) = self.asked.take() else { return };
        let deadline = Instant::now() + DRAIN_PATIENCE;
        let answer = Answering { client, was_frozen, outcome, deadline };
        match &answer.outcome {
            // Whoever hears this may end the pod: what its command has said before is heard first.
            Ok(Done::Written(_)) if self.tracer.is_frozen() => {
                self.hub.ask_for_all();
                self.answering = Some(answer);
            }
            _ => self.tell(connections, answer),
        }
    }

    /// Says what came of a task as soon as that may be said.
    fn tell_in_time(&mut self, connections: &mut Connections) {
        let may_be_told =
            |answer: &mut Answering| self.hub.has_heard_all() || Instant::now() >= answer.deadline;
        if let Some(answer) = self.answering.take_if(may_be_told) {
            self.tell(connections, answer);
        }
    }

    fn tell(&mut self, connections: &mut Connections, answer: Answering) {
        let Answering { client, was_frozen, outcome, .. } = answer;
        let stays_frozen = matches!(outcome, Ok(Done::Written(_))) && self.tracer.is_frozen();
        let response = match outcome {
            Ok(Done::Written(written)) => Response::json(200, &written),
            Ok(_) => Response::json(200, &pod::Pod::inspect(self)),
            Err(why) => Response::problem(409, why),
        };
        let is_heard = connections.answer_number(client, &response);
        // Whoever wanted it to end when the image is written has gone before that.
        if stays_frozen && !was_frozen && !is_heard {
            self.tracer.ask(Ask::Thaw);
        }
    }

    fn state(&self) -> State {
        match (self.hub.has_started(), self.tracer.is_frozen()) {
            (_, true) => State::Frozen,
            (true, false) if self.is_whole() => State::Running,
            _ => State::Starting,
        }
    }

    /// All its processes are there.
    fn is_whole(&self) -> bool {
        self.image.is_none() && !self.is_restarting
    }

    fn must_not_be_frozen(&self) -> Result<(), Refusal> {
        match self.state() {
            State::Frozen => Err((409, "it is frozen; let it go on with: biv pod thaw".to_owned())),
            _ if self.tracer.is_busy() => Err((409, "it is being checkpointed".to_owned())),
            _ => Ok(()),
        }
    }

    /// It does not run, or not yet.
    fn must_run(&self) -> Result<(), Refusal> {
        match self.hub.has_started() && self.is_whole() {
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
            state: self.state(),
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
        self.must_not_be_frozen()?;
        match self.hub.has_room() {
            true => Ok(()),
            false => Err((503, "too many commands are running in it".to_owned())),
        }
    }

    fn takes(&self, task: Task) -> Result<(), Refusal> {
        self.must_run()?;
        if self.tracer.is_busy() {
            return Err((409, "it is being frozen, checkpointed or restarted".to_owned()));
        }
        match task {
            Task::Checkpoint(_) if self.hub.running() > 1 => {
                let why = "commands of `biv pod exec` run in it, whose streams lead out of it";
                Err((409, why.to_owned()))
            }
            _ => Ok(()),
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
