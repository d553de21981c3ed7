//! Serves the host over the channel: receives orders, carries each out in a session ([`Session`]),
//! and reports how the commands ended.
//!
//! One loop polls everything and blocks on nothing: the line, the commands' streams and the reaper.
//! Init acknowledges the host's bytes when they have reached the command, and reads a command's
//! output only while the host's window for it has room. So init holds at most two windows of bytes
//! for each session, and no session waits for another.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;

use protocol::{FIRST, Frame, LINE, PAYLOAD_MAX_BYTES, SESSIONS_MAX};
use rustix::event::PollFlags;

use crate::clock::Clock;
use crate::console::Console;
use crate::error::{Error, name_of};
use crate::line::{self, Line};
use crate::poller::Poller;
use crate::reaper::Reaper;
use crate::session::Session;
use crate::stream::Stream;
use crate::{kernel, random, system};

/// The longest list of mounts, and of devices: far more than any has.
const LIST_MAX_BYTES: usize = 1 << 20;

/// Serves the host over the first of these devices ([`line::find`]) until the first command has ended and
/// all is said.
pub fn run(devices: &str) -> io::Result<()> {
    serve(line::find(devices)?).map_err(io::Error::other)
}

/// Serves the host over the line that is this device.
pub fn serve(device: OwnedFd) -> Result<(), Error> {
    Service::new(device)?.run()
}

struct Service {
    line: Line,
    reaper: Reaper,
    sessions: BTreeMap<u16, Session>,
    console: Console,
    clock: Clock,
    /// What has come of the list of what is to be mounted.
    mounts: Vec<u8>,
    /// The same of the devices that are to have a driver.
    devices: Vec<u8>,
    /// The system is not what the host wants, and the host has been told so.
    is_unprepared: bool,
}

/// What a poll watches.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    Line,
    Reaper,
    Stream(u16, Stream),
}

impl Service {
    fn new(device: OwnedFd) -> Result<Service, Error> {
        let (line, reaper) = (Line::over(device)?, Reaper::start()?);
        Ok(Service {
            line,
            reaper,
            sessions: BTreeMap::new(),
            console: Console::default(),
            clock: Clock::default(),
            mounts: Vec::new(),
            devices: Vec::new(),
            is_unprepared: false,
        })
    }

    /// Has the system prepared. Without what the host wants it to have, nothing runs in it.
    fn prepare(&mut self) {
        let mounts = std::mem::take(&mut self.mounts);
        let trouble = system::prepare(&mounts, &std::mem::take(&mut self.devices));
        kernel::complain(&trouble.remarks);
        kernel::complain(&trouble.failures);
        if !trouble.failures.is_empty() {
            self.is_unprepared = true;
            let mut text = trouble.failures.join("; ").into_bytes();
            text.truncate(PAYLOAD_MAX_BYTES);
            self.line.send(LINE, &Frame::Unprepared(text));
        }
    }

    /// Does what a frame says that is of no session.
    fn obey_for_all(&mut self, frame: &Frame) -> Result<(), Error> {
        match frame {
            Frame::Credit(_) => {}
            Frame::Time(time) => self.clock.hear(time),
            Frame::Seed(bytes) => random::add(bytes),
            Frame::Mounts(part) if self.mounts.len() < LIST_MAX_BYTES => self.mounts.extend(part),
            Frame::Devices(part) if self.devices.len() < LIST_MAX_BYTES => {
                self.devices.extend(part);
            }
            Frame::Prepare => self.prepare(),
            Frame::Console(is_wanted) => self.console.set_wanted(*is_wanted),
            Frame::Synchronize => self.line.send(LINE, &Frame::Synchronized),
            Frame::Terminate => self.sessions.values().for_each(Session::terminate),
            _ => return Err(Error::OutOfTurn(name_of(frame))),
        }
        Ok(())
    }

    fn run(mut self) -> Result<(), Error> {
        loop {
            let ready = self.wait()?;
            if ready.contains(&Source::Line) {
                self.line.exchange()?;
                self.obey()?;
                if self.is_unprepared {
                    return self.line.finish();
                }
            }
            if ready.contains(&Source::Reaper) {
                let (pid, end) = self.reaper.end()?;
                self.console.has_ended(pid);
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
        while !self.is_unprepared
            && let Some((number, frame)) = self.line.next_frame()?
        {
            match (number, &frame) {
                (LINE, frame) => {
                    self.obey_for_all(frame)?;
                    continue;
                }
                (FIRST..=SESSIONS_MAX, Frame::Order(_)) => {
                    self.sessions.entry(number).or_insert_with(|| Session::new(number));
                }
                (FIRST, _) if self.sessions.is_empty() => {
                    return Err(Error::OutOfTurn(name_of(&frame)));
                }
                (FIRST..=SESSIONS_MAX, _) => {}
                _ => return Err(Error::OutOfTurn(name_of(&frame))),
            }
            // One that has ended since the host sent this has no use for it.
            if let Some(session) = self.sessions.get_mut(&number) {
                match session.obey(frame, &mut self.line) {
                    // Whoever wants a command run besides the first one harms himself only.
                    Err(error) if number != FIRST => session.fail(&error, &mut self.line),
                    other => other?,
                }
            }
        }
        Ok(())
    }
}
