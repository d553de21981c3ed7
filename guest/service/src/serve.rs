//! Serves the host over the channel: receives orders, carries each out in a session ([`Session`]),
//! and reports how the commands ended.
//!
//! One loop polls everything and blocks on nothing: the line, the commands' streams and the reaper.
//! Init acknowledges the host's bytes when they have reached the command, and reads a command's
//! output only while the host's window for it has room. So init holds at most two windows of bytes
//! for each session, and no session waits for another.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

use protocol::{FIRST, Frame, LINE, SESSIONS_MAX};
use rustix::event::PollFlags;

use crate::error::{Error, name_of};
use crate::line::Line;
use crate::poller::Poller;
use crate::reaper::{End, Reaper};
use crate::session::Session;
use crate::stream::Stream;

/// What is to be done after a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// To go on.
    GoOn,
    /// To end, when what was said has left: nothing may run in the system, and the host has been told why.
    Refuse,
    /// To leave the line to somebody else, who begins a new conversation over it.
    HandOver,
}

/// What the commands run in: it does what the host says that is of no session.
pub trait System {
    /// What people call it: commands are "not found in the ...".
    const PLACE: &'static str;

    /// Whether the host is told the first command's streams, and may have a process adopted as it.
    const ADOPTS: bool = false;

    /// Whether the host greets back: others may have had the line before.
    fn is_greeted_back(&self) -> bool {
        false
    }

    /// What is said before anything is heard, after the greeting; whether to go on.
    fn begin(&mut self, _line: &mut Line) -> Next {
        Next::GoOn
    }

    /// Obeys a frame; what is to be said to the host goes to `line`.
    ///
    /// # Errors
    ///
    /// The frame is none that a host sends for all, or not now.
    fn obey(&mut self, frame: &Frame, line: &mut Line) -> Result<Next, Error>;

    /// The host wants the end of everything, which the commands have been told.
    fn terminate(&mut self) {}

    /// A process has ended, which may be one that the system has started itself.
    fn has_ended(&mut self, pid: u32, end: End);
}

/// Serves the host over the line that is this device, until the first command has ended and all is said, or the line
/// is somebody else's.
///
/// # Errors
///
/// The line fails, or the host cannot be followed.
pub fn serve(device: OwnedFd, system: &mut impl System) -> Result<(), Error> {
    Service::new(device, system)?.run()
}

struct Service<'a, S> {
    line: Line,
    reaper: Reaper,
    sessions: BTreeMap<u16, Session>,
    system: &'a mut S,
    /// What is to be done after the last frame.
    next: Next,
}

/// What a poll watches.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    Line,
    Reaper,
    Stream(u16, Stream),
}

impl<'a, S: System> Service<'a, S> {
    fn new(device: OwnedFd, system: &'a mut S) -> Result<Self, Error> {
        let mut line = Line::over(device, system.is_greeted_back())?;
        let reaper = Reaper::start()?;
        let next = system.begin(&mut line);
        Ok(Self { line, reaper, sessions: BTreeMap::new(), system, next })
    }

    /// Does what a frame says that is of no session.
    fn obey_for_all(&mut self, frame: &Frame) -> Result<(), Error> {
        match frame {
            Frame::Credit(_) => {}
            Frame::Synchronize => self.line.send(LINE, &Frame::Synchronized),
            Frame::Terminate => {
                self.sessions.values().for_each(Session::terminate);
                self.system.terminate();
            }
            Frame::Adopted if S::ADOPTS => {
                if let Some(first) = self.sessions.get_mut(&FIRST) {
                    first.adopted(&mut self.line);
                }
            }
            _ => self.next = self.system.obey(frame, &mut self.line)?,
        }
        Ok(())
    }

    fn run(mut self) -> Result<(), Error> {
        loop {
            match self.next {
                Next::GoOn => {}
                Next::Refuse => return self.line.finish(),
                Next::HandOver => return self.line.hand_over(),
            }
            let ready = self.wait()?;
            if ready.contains(&Source::Line) {
                self.line.exchange()?;
                self.obey()?;
                if self.next != Next::GoOn {
                    continue;
                }
            }
            if ready.contains(&Source::Reaper) {
                let (pid, end) = self.reaper.end()?;
                self.system.has_ended(pid, end);
                if let Some(session) = self.sessions.values_mut().find(|session| session.is(pid)) {
                    session.has_ended(end);
                }
            }
            for source in ready {
                if let Source::Stream(number, stream) = source
                    && let Some(session) = self.sessions.get_mut(&number)
                {
                    session.carry(stream, &mut self.line)?;
                }
            }
            let mut over = Vec::new();
            for (&number, session) in &mut self.sessions {
                if session.advance(&mut self.line)? {
                    over.push(number);
                }
            }
            over.iter().for_each(|number| drop(self.sessions.remove(number)));
            if over.contains(&FIRST) {
                return self.line.finish();
            }
        }
    }

    /// Waits until something can be done, and says what.
    fn wait(&self) -> Result<Vec<Source>, Error> {
        let mut poller = Poller::new();
        poller.register(Source::Line, self.line.device(), self.line.interest());
        poller.register(Source::Reaper, &self.reaper, PollFlags::IN);
        for (&number, session) in &self.sessions {
            for (stream, descriptor, flags) in session.watched(&self.line) {
                poller.register(Source::Stream(number, stream), descriptor, flags);
            }
        }
        let wakes = self.sessions.values().filter_map(Session::wakes).min();
        Ok(poller.wait(wakes)?)
    }

    /// Does what the host's frames say.
    fn obey(&mut self) -> Result<(), Error> {
        while self.next == Next::GoOn
            && let Some((number, frame)) = self.line.next_frame()?
        {
            let may_adopt = S::ADOPTS && number == FIRST;
            match (number, &frame) {
                (LINE, frame) => {
                    self.obey_for_all(frame)?;
                    continue;
                }
                (FIRST..=SESSIONS_MAX, Frame::Order(_)) => {
                    let new = || Session::new(number, S::PLACE, may_adopt);
                    self.sessions.entry(number).or_insert_with(new);
                }
                (FIRST, _) if self.sessions.is_empty() => {
                    return Err(Error::OutOfTurn(name_of(&frame)));
                }
                (FIRST..=SESSIONS_MAX, _) => {}
                _ => return Err(Error::OutOfTurn(name_of(&frame))),
            }
            let may_have_started = may_adopt && frame == Frame::Start;
            // One that has ended since the host sent this has no use for it.
            if let Some(session) = self.sessions.get_mut(&number) {
                match session.obey(frame, &mut self.line) {
                    // Whoever wants a command run besides the first one harms himself only.
                    Err(error) if number != FIRST => session.fail(&error, &mut self.line),
                    other => other?,
                }
                if may_have_started && let Some(streams) = session.streams()? {
                    self.line.send(LINE, &Frame::Streams(streams));
                }
            }
        }
        Ok(())
    }
}
