//! The hub: multiplexes the channel to the guest's init among those who run commands in the guest,
//! which are the session of `biv run` itself and the clients of the control socket.
//!
//! Each of them is a *port*, and speaks as if it had the guest to itself: it exchanges greetings,
//! and then frames of session [`FIRST`]. The hub gives each port a session of the guest's and
//! forwards frames. What rules it:
//!
//! 1. *No port waits for another.* The hub holds at most one window of bytes for each port in each
//!    direction. It reads the guest's line whatever ports do.
//! 2. *A port that breaks the protocol, or closes, ends alone*: the hub hangs up on its command. A
//!    guest that breaks the protocol ends all ports.
//! 3. *Nothing blocks.*
//! 4. *The guest chooses its line.* There may be several lines, and the guest's init greets on one
//!    of them; the hub then closes the others.
//! 5. *A guest may have a process 1 of its own* ([`process_one`]). The hub orders that instead of a first command, and
//!    the guest greets once more when it runs. Then there are ports without a first one.
//! 6. *Another hub can go on with a conversation*, where a snapshot of the machine goes on. Before
//!    the snapshot is taken the hub quiesces the line: it sends nothing, and the guest has read
//!    everything that it was sent ([`Hub::fall_silent`]). A frame that the guest has sent in part
//!    is in the [`Conversation`].

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use protocol::{
    Decoder, Encoder, FIRST, Frame, LINE, MAGIC, SESSIONS_MAX, Streams, Time, WINDOW_OF_PORT_BYTES,
    WINDOW_TO_GUEST_BYTES, WINDOW_TO_HOST_BYTES, Window, hello,
};
use rustix::event::PollFlags;

use self::lines::{Lines, READ_BYTES};
use self::process_one::ProcessOne;
use crate::attached::AttachedClient;
use crate::watchers::{Sender, Watchers};
use session::{Line, Trouble};
use spec::shown;

mod conversation;
mod greetings;
mod lines;
mod process_one;

pub use conversation::Conversation;

/// Output of a command that its port has not taken: what its window allows, and what frames add to it.
const UNTAKEN_MAX_BYTES: usize = 2 * WINDOW_TO_HOST_BYTES as usize;

/// Ports whose command has ended and who have not taken all of its output yet; more are cut off.
const LEAVING_MAX: usize = 64;

/// When a guest is told the time for the second time; it is told again after twice as long, and so on.
const TIME_INTERVAL_FIRST: Duration = Duration::from_secs(2);

/// The longest that it is not told: its clock loses less than a millisecond in this, and one that does nothing
/// is not woken more often.
const TIME_INTERVAL_LAST: Duration = Duration::from_secs(64);

/// Tells how late it is by the clock that a guest's time is made from.
pub trait Timekeeper: std::fmt::Debug + Send {
    /// How late it is now.
    fn now(&self) -> Time;
}

/// Where something may have happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// The guest's line, or one of those that it may choose.
    Guest(usize),
    /// The port of a session.
    Port(u16),
    /// One that is leaving.
    Leaving(usize),
    /// One that watches the first command.
    Watcher(usize),
}

/// See above.
#[derive(Debug)]
pub struct Hub {
    lines: Lines,
    encoder: Encoder,
    /// On its way to the guest.
    outgoing: VecDeque<u8>,
    /// What may be on its way to it; it says so when it greets.
    window: Window,
    is_greeted: bool,
    /// What the guest is told before anything of a port's.
    preparing: VecDeque<Frame>,
    is_prepared: bool,
    /// Nothing is said to the guest.
    is_silent: bool,
    /// The guest is to be told that the end of its first command has been heard: it switches off then.
    owes_farewell: bool,
    /// How often the guest has been asked to say that it has read everything, and has not said so.
    unread: u32,
    ports: BTreeMap<u16, Port>,
    leaving: Vec<Port>,
    /// Of the first command.
    watchers: Watchers,
    /// Somebody sits at the console.
    is_attended: bool,
    trouble: Trouble,
    /// Sessions that there have been.
    sessions: u64,
    /// Those of the first command, if the guest has said.
    streams: Option<Streams>,
    /// What it is told the time by, if it is told.
    time: Option<Box<dyn Timekeeper>>,
    /// When the guest is told the time again, and after how long the next time.
    next_time: (Instant, Duration),
    /// The guest's own process 1, if it has one instead of a first command.
    process_one: Option<ProcessOne>,
}

/// How far a port is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The guest knows nothing of it.
    New,
    /// It does.
    Known,
    /// Nobody is there any more; the guest has been told, or will be.
    Gone,
}

#[derive(Debug)]
struct Port {
    line: Line,
    encoder: Encoder,
    decoder: Decoder,
    /// On its way to the port.
    outgoing: VecDeque<u8>,
    /// Frames that wait for room on the guest's line.
    waiting: VecDeque<Frame>,
    /// What its command may be given.
    window: Window,
    /// What the command may be told that the port has taken.
    credit: u32,
    /// What the command has said, and has not been told that the port has taken.
    uncredited: u32,
    stage: Stage,
}

impl Hub {
    /// A hub for the guest at the other end of one of `lines`, which is told in `needs` what its system must have
    /// ([`Frame::Mounts`], [`Frame::Devices`]), and is told the time by this. What is wrong with it will be in
    /// `trouble`.
    pub fn new(
        lines: Vec<Line>,
        needs: Vec<Frame>,
        time: Option<Box<dyn Timekeeper>>,
        trouble: Trouble,
    ) -> std::io::Result<Hub> {
        Ok(Hub {
            lines: Lines::new(lines)?,
            encoder: Encoder::default(),
            outgoing: VecDeque::new(),
            window: Window::new(0),
            is_greeted: false,
            preparing: needs.into_iter().chain([Frame::Prepare]).collect(),
            is_prepared: false,
            is_silent: false,
            owes_farewell: false,
            unread: 0,
            ports: BTreeMap::new(),
            leaving: Vec::new(),
            watchers: Watchers::default(),
            is_attended: false,
            trouble,
            sessions: 0,
            streams: None,
            time,
            next_time: (Instant::now() + TIME_INTERVAL_FIRST, TIME_INTERVAL_FIRST),
            process_one: None,
        })
    }

    /// Whether the guest's init is up and its line open.
    #[must_use]
    pub fn is_up(&self) -> bool {
        let is_away = self.process_one.as_ref().is_some_and(ProcessOne::is_awaited);
        self.is_greeted && self.lines.are_open() && !is_away
    }

    /// Whether the first command has been ordered, or the guest's own process 1 runs.
    #[must_use]
    pub fn has_started(&self) -> bool {
        if let Some(process_one) = &self.process_one {
            return self.is_up() && process_one.runs();
        }
        self.is_up() && self.ports.get(&FIRST).is_some_and(|port| port.stage == Stage::Known)
    }

    /// Whether another command could be run.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.ports.len() + usize::from(self.process_one.is_some()) < usize::from(SESSIONS_MAX)
    }

    /// Commands that run, or are about to.
    #[must_use]
    pub fn running(&self) -> usize {
        self.ports.len()
    }

    /// Sessions that there have been since the machine was started.
    #[must_use]
    pub fn sessions(&self) -> u64 {
        self.sessions
    }

    /// Takes a port at the other end of `line`, which has sent `received` already and is sent `preface`
    /// first. The first port has the session that the machine ends with. Gives the line back if there
    /// are too many, or no guest.
    pub fn connect(&mut self, line: Line, preface: &[u8], received: &[u8]) -> Result<(), Line> {
        let lowest = if self.process_one.is_some() { FIRST + 1 } else { FIRST };
        let free = (lowest..=SESSIONS_MAX).find(|number| !self.ports.contains_key(number));
        let (Some(number), true) = (free, self.lines.are_open()) else {
            return Err(line);
        };
        // It will be found closed if this fails.
        let _ = line.set_nonblocking();
        let mut port = Port::new(line, preface);
        port.decoder.feed(received);
        if self.is_greeted {
            port.greet();
        }
        self.sessions += 1;
        self.ports.insert(number, port);
        self.take_from(number);
        self.send_what_fits();
        Ok(())
    }

    /// How many watch the first command.
    #[must_use]
    pub fn watching(&self) -> usize {
        self.watchers.count()
    }

    /// Whether another may watch the first command.
    #[must_use]
    pub fn may_be_watched(&self) -> bool {
        self.watchers.has_room()
    }

    /// Takes one who watches the first command, which must have started.
    pub fn watch(&mut self, client: AttachedClient) {
        self.watchers.add(client);
        self.send_what_fits();
    }

    /// Somebody sits at the console, or nobody does any more: the guest's init has a shell there for who
    /// does.
    pub fn set_attended(&mut self, is_attended: bool) {
        if std::mem::replace(&mut self.is_attended, is_attended) != is_attended && self.is_up() {
            self.say(LINE, &Frame::Console(is_attended));
        }
    }

    /// Sends a signal to the first command, which must have started.
    pub fn signal_first(&mut self, number: u8) {
        let frame = Frame::Signal(number);
        self.watchers.note_sent(Sender::Other, frame.wire_bytes());
        self.say(FIRST, &frame);
    }

    /// Asks the guest, which must be up, to end its commands and to switch off.
    pub fn terminate(&mut self) {
        self.say(LINE, &Frame::Terminate);
    }

    /// The streams of the first command of a pod, once it has them.
    #[must_use]
    pub fn streams(&self) -> Option<Streams> {
        self.streams
    }

    /// The process that the pod's init, which must be up, was to adopt has taken its streams.
    pub fn note_adopted(&mut self) {
        self.say(LINE, &Frame::Adopted);
    }

    /// Says something that is not a port's, and short enough for any window.
    fn say(&mut self, session: u16, frame: &Frame) {
        self.window.take(frame.wire_bytes());
        self.put(session, frame);
        if self.is_silent {
            self.synchronize();
        }
        self.flush_guest();
    }

    /// When [`Self::tell_time`] is to be called, if the guest is up.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        (self.is_up() && self.time.is_some()).then_some(self.next_time.0)
    }

    /// Tells the guest how late it is, if that is due now. One that does not read what it is sent is told later.
    pub fn tell_time(&mut self, now: Instant) {
        let (due, interval) = self.next_time;
        if now < due {
            return;
        }
        let may_speak = self.is_up() && !self.is_silent && self.preparing.is_empty();
        if may_speak
            && let Some(frame) = self.time_frame(false)
            && self.window.take(frame.wire_bytes())
        {
            self.put(LINE, &frame);
            self.flush_guest();
        }
        self.next_time = (now + interval, (interval * 2).min(TIME_INTERVAL_LAST));
    }

    /// How late it is now, for a guest that is told.
    fn time_frame(&self, is_start: bool) -> Option<Frame> {
        let time = self.time.as_ref()?.now();
        Some(Frame::Time(Time { is_start, ..time }))
    }

    /// What to poll, for what, and where it is.
    pub fn watched(&self) -> Vec<(Place, BorrowedFd<'_>, PollFlags)> {
        let mut watched = Vec::new();
        for (number, line) in self.lines.all() {
            watched.push((Place::Guest(number), line.from(), PollFlags::IN));
            if !self.outgoing.is_empty() {
                watched.push((Place::Guest(number), line.to(), PollFlags::OUT));
            }
        }
        for (&number, port) in &self.ports {
            if port.stage != Stage::Gone {
                watched.push((Place::Port(number), port.line.from(), PollFlags::IN));
                if !port.outgoing.is_empty() {
                    watched.push((Place::Port(number), port.line.to(), PollFlags::OUT));
                }
            }
        }
        for (number, port) in self.leaving.iter().enumerate() {
            watched.push((Place::Leaving(number), port.line.to(), PollFlags::OUT));
        }
        let watchers = self.watchers.watched();
        watched.extend(watchers.map(|(number, fd, flags)| (Place::Watcher(number), fd, flags)));
        watched
    }

    /// Does what can be done in these places.
    pub fn carry(&mut self, ready: &[Place]) {
        for place in ready {
            match place {
                Place::Guest(number) => self.exchange_with_guest(*number),
                Place::Port(number) => self.take_from(*number),
                Place::Watcher(number) => self.watchers.carry(*number),
                Place::Leaving(_) => {}
            }
        }
        self.send_what_fits();
        self.give_output();
        self.watchers.sweep();
    }

    /// Gives ports what there is for them, and forgets those that have everything.
    fn give_output(&mut self) {
        let mut gone = Vec::new();
        for (&number, port) in &mut self.ports {
            if port.stage != Stage::Gone && port.line.send(&mut port.outgoing).is_err() {
                gone.push(number);
            }
        }
        gone.iter().for_each(|&number| self.hang_up(number));
        self.leaving.retain_mut(|port| {
            port.line.send(&mut port.outgoing).is_ok() && !port.outgoing.is_empty()
        });
        let too_many = self.leaving.len().saturating_sub(LEAVING_MAX);
        self.leaving.drain(..too_many);
    }

    /// Sends and receives what one of the guest's lines takes and has.
    fn exchange_with_guest(&mut self, number: usize) {
        self.flush_guest();
        let heard = match self.lines.receive(number) {
            Ok(true) => self.hear_all(number),
            Ok(false) if self.lines.are_open() => Ok(()),
            Ok(false) => return self.lose_guest(None),
            Err(error) => Err(error.to_string()),
        };
        if let Err(trouble) = heard {
            self.lose_guest(Some(trouble));
        }
    }

    /// The guest has gone, or is not to be listened to any more.
    fn lose_guest(&mut self, trouble: Option<String>) {
        if let Some(trouble) = trouble {
            // The first one counts.
            let _ = self.trouble.set(trouble);
        }
        self.process_one.iter_mut().for_each(ProcessOne::give_up);
        self.lines.close();
        self.outgoing.clear();
        self.watchers.dismiss();
        let ports = std::mem::take(&mut self.ports);
        self.leaving.extend(ports.into_values().filter(|port| port.stage != Stage::Gone));
    }

    /// Reads all that has come over a line. A guest that greets on one has chosen it.
    fn hear_all(&mut self, number: usize) -> Result<(), String> {
        let mut number = number;
        while let Some((session, frame)) =
            self.lines.next_frame(number).map_err(|error| error.to_string())?
        {
            if !self.is_greeted {
                self.lines.choose(number);
                number = 0;
            }
            self.hear(session, frame)?;
        }
        Ok(())
    }

    fn hear(&mut self, session: u16, mut frame: Frame) -> Result<(), String> {
        const OUT_OF_TURN: &str = "protocol error: the guest's init sent an unexpected frame";
        match (&frame, session) {
            (Frame::Hello { window, .. }, LINE)
                if !self.is_greeted || self.process_one.is_some() =>
            {
                self.hear_greeting(*window);
                return Ok(());
            }
            (Frame::Started, LINE) if self.process_one.is_some() => {
                self.process_one.iter_mut().for_each(ProcessOne::note_start);
                return Ok(());
            }
            (Frame::Credit(credit), LINE) => {
                self.window.give_back(*credit);
                return Ok(());
            }
            (Frame::Synchronized, LINE) => {
                self.unread = self.unread.saturating_sub(1);
                return Ok(());
            }
            (Frame::Streams(streams), LINE) => {
                self.streams = Some(*streams);
                return Ok(());
            }
            (Frame::Unprepared(reason), LINE) if self.is_prepared => {
                return Err(shown::line(&String::from_utf8_lossy(reason)));
            }
            _ => {}
        }
        let port = self.ports.get_mut(&session).ok_or(OUT_OF_TURN)?;
        if port.stage == Stage::New {
            return Err(OUT_OF_TURN.to_owned());
        }
        if session == FIRST {
            match &mut frame {
                Frame::Credit(credit) => *credit = self.watchers.share_out(*credit),
                Frame::Started => {}
                said => self.watchers.show(said),
            }
        }
        let is_last = match &frame {
            Frame::Credit(credit) => {
                port.window.give_back(*credit);
                false
            }
            Frame::Started | Frame::Stdout(_) | Frame::Stderr(_) => false,
            Frame::Exited(_) | Frame::Signaled(_) => true,
            _ => return Err(OUT_OF_TURN.to_owned()),
        };
        if !matches!(frame, Frame::Credit(_)) {
            port.uncredited = port.uncredited.saturating_add(frame.wire_bytes());
        }
        if port.stage != Stage::Gone {
            port.put(&frame);
            if port.outgoing.len() > UNTAKEN_MAX_BYTES {
                return Err(OUT_OF_TURN.to_owned());
            }
        }
        if is_last && let Some(port) = self.ports.remove(&session) {
            self.leaving.extend((port.stage != Stage::Gone).then_some(port));
            self.owes_farewell |= session == FIRST;
        }
        Ok(())
    }

    /// The guest's init has greeted, or the agent beside a process 1 that is not ours.
    fn hear_greeting(&mut self, window: u32) {
        self.window = Window::new(window.min(WINDOW_OF_PORT_BYTES));
        if self.is_greeted {
            self.begin_anew();
        }
        self.is_greeted = true;
        if self.process_one.is_some() {
            // What was said to whoever was there before may still be on its way.
            self.outgoing.extend(MAGIC);
        }
        if let Some(time) = self.time_frame(true) {
            self.preparing.push_front(time);
        }
        if self.is_attended {
            self.preparing.push_back(Frame::Console(true));
        }
        self.ports.values_mut().for_each(Port::greet);
    }

    /// Takes what a port has sent.
    fn take_from(&mut self, number: u16) {
        let Some(port) = self.ports.get_mut(&number) else { return };
        if port.stage == Stage::Gone {
            return;
        }
        if !port.receive() {
            self.hang_up(number);
        }
    }

    /// A port has gone, or is not to be listened to any more.
    fn hang_up(&mut self, number: u16) {
        let Some(port) = self.ports.get_mut(&number) else { return };
        if port.stage == Stage::New {
            self.ports.remove(&number);
            return;
        }
        port.waiting.clear();
        port.outgoing.clear();
        port.credit = 0;
        if port.stage != Stage::Gone {
            port.stage = Stage::Gone;
            port.waiting.push_back(Frame::Close);
        }
    }

    /// Passes on to the guest what it has room for, one frame of each port in turn.
    fn send_what_fits(&mut self) {
        if !self.is_up() || self.is_silent {
            return;
        }
        while let Some(frame) = self.preparing.front()
            && self.window.take(frame.wire_bytes())
        {
            let frame = self.preparing.pop_front().unwrap_or(Frame::Prepare);
            self.is_prepared |= frame == Frame::Prepare;
            self.put(LINE, &frame);
        }
        self.note_order();
        if !self.preparing.is_empty() || !self.is_up() {
            return self.flush_guest();
        }
        if std::mem::take(&mut self.owes_farewell) {
            self.say(FIRST, &Frame::Close);
        }
        let mut ports = std::mem::take(&mut self.ports);
        let mut has_sent = true;
        while has_sent {
            has_sent = false;
            for (&number, port) in &mut ports {
                if port.credit > 0 {
                    let credit = std::mem::take(&mut port.credit);
                    port.uncredited = port.uncredited.saturating_sub(credit);
                    self.put(number, &Frame::Credit(credit));
                }
                if let Some(frame) = port.waiting.front()
                    && self.window.take(frame.wire_bytes())
                {
                    self.put(number, frame);
                    if number == FIRST {
                        self.watchers.note_sent(Sender::Session, frame.wire_bytes());
                    }
                    port.waiting.pop_front();
                    if port.stage == Stage::New {
                        port.stage = Stage::Known;
                    }
                    has_sent = true;
                }
            }
        }
        self.ports = ports;
        if self.has_started() {
            while let Some(frame) = self.watchers.next_frame(&mut self.window) {
                self.watchers.note_sent(Sender::Other, frame.wire_bytes());
                self.put(FIRST, &frame);
            }
        }
        self.flush_guest();
    }

    fn put(&mut self, session: u16, frame: &Frame) {
        let mut bytes = Vec::new();
        self.encoder.put_to(session, frame, &mut bytes);
        self.outgoing.extend(bytes);
    }

    fn flush_guest(&mut self) {
        if let Some(guest) = self.lines.chosen().filter(|_| self.is_greeted) {
            // A line that fails is found closed when it is read.
            let _ = guest.send(&mut self.outgoing);
        }
    }
}

impl Port {
    fn new(line: Line, preface: &[u8]) -> Port {
        Port {
            line,
            encoder: Encoder::default(),
            decoder: Decoder::new(),
            outgoing: preface.iter().copied().collect(),
            waiting: VecDeque::new(),
            window: Window::new(WINDOW_TO_GUEST_BYTES),
            credit: 0,
            uncredited: 0,
            stage: Stage::New,
        }
    }

    fn greet(&mut self) {
        let mut bytes = Vec::new();
        hello(WINDOW_TO_GUEST_BYTES, &mut self.encoder, &mut bytes);
        self.outgoing.extend(bytes);
    }

    fn put(&mut self, frame: &Frame) {
        let mut bytes = Vec::new();
        self.encoder.put(frame, &mut bytes);
        self.outgoing.extend(bytes);
    }

    /// Takes what has come; `false` if that was the end, or nonsense.
    fn receive(&mut self) -> bool {
        let mut buffer = [0; READ_BYTES];
        match self.line.receive(&mut buffer) {
            Ok(None) => {}
            Ok(Some(0)) | Err(_) => return false,
            Ok(Some(count)) => self.decoder.feed(&buffer[..count]),
        }
        loop {
            let is_good = match self.decoder.next_frame() {
                Ok(None) => return true,
                Ok(Some(frame)) => self.accept(frame),
                Err(_) => false,
            };
            if !is_good {
                return false;
            }
        }
    }

    /// Whether the frame is one that a host sends, and within the window.
    fn accept(&mut self, frame: Frame) -> bool {
        let is_good = match &frame {
            Frame::Credit(credit) => {
                self.credit = self.credit.saturating_add(*credit);
                return true;
            }
            Frame::Order(_) | Frame::Start | Frame::Stdin(_) | Frame::StdinEnd => true,
            Frame::Signal(_) | Frame::WindowSize { .. } => true,
            _ => false,
        };
        let is_good = is_good && self.window.take(frame.wire_bytes());
        if is_good {
            // Input that waits holds up neither a signal nor a size; what was ordered comes before both.
            let is_input = |frame: &Frame| matches!(frame, Frame::Stdin(_));
            let first_input = self.waiting.iter().position(is_input);
            match (&frame, first_input) {
                (Frame::Signal(_) | Frame::WindowSize { .. }, Some(at)) => {
                    self.waiting.insert(at, frame);
                }
                _ => self.waiting.push_back(frame),
            }
        }
        is_good
    }
}
