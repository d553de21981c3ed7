//! A domain's console: it connects the machine's end with the attached clients.
//!
//! The hub's thread keeps the last output, up to a limit, for clients that attach later, and writes
//! all of it to the domain's log. Each client sees all output, and types as if it were alone. The
//! window has the size that a client has sent last.
//!
//! In a machine without our init the standard streams of `biv run` may be attached to the console
//! as well. They come first: when they take no more, the machine waits, as it would without a
//! domain.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;

use locks::Unpoisoned;
use protocol::Frame;
use rustix::event::PollFlags;

use crate::recent::Recent;
use api::log::{self, Stream};
use hub::attached::{ATTACHED_MAX, AttachedClient};
use session::Line;

/// Bytes on their way to the streams of `biv run`, or from them to the machine, before more are read.
const UNDERWAY_MAX_BYTES: usize = 64 << 10;

/// Bytes read at once.
const PIECE_BYTES: usize = 16 << 10;

/// Where something may have happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// The machine's end.
    Machine,
    /// The streams of `biv run`.
    Streams,
    /// A client.
    Client(usize),
}

/// See above.
#[derive(Debug)]
pub struct Console {
    machine: Option<Line>,
    streams: Option<Streams>,
    clients: Vec<AttachedClient>,
    shown: Recent,
    /// On its way to the machine.
    typed: VecDeque<u8>,
    log: Option<log::Shared>,
    /// The size that a client has sent last, until the hub has taken it.
    size: Option<(u16, u16)>,
}

#[derive(Debug)]
struct Streams {
    line: Line,
    outgoing: VecDeque<u8>,
}

impl Console {
    /// The console of the machine at the other end of `machine`; what it shows goes to `log`.
    pub fn new(machine: Line, log: Option<log::Shared>) -> std::io::Result<Console> {
        machine.set_nonblocking()?;
        Ok(Console {
            machine: Some(machine),
            streams: None,
            clients: Vec::new(),
            shown: Recent::default(),
            typed: VecDeque::new(),
            log,
            size: None,
        })
    }

    /// The same, which is also the standard streams of `biv run`, at the other end of `streams`.
    pub fn with_streams(self, streams: Line) -> std::io::Result<Console> {
        streams.set_nonblocking()?;
        let streams = Some(Streams { line: streams, outgoing: VecDeque::new() });
        Ok(Console { streams, ..self })
    }

    /// Whether another may sit down.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.clients.len() < ATTACHED_MAX
    }

    /// How many sit at it.
    #[must_use]
    pub fn attendance(&self) -> usize {
        self.clients.len()
    }

    /// Rows and columns, if a client has sent them since the last call.
    pub fn take_size(&mut self) -> Option<(u16, u16)> {
        self.size.take()
    }

    /// Attaches the client at the other end of `line`; see [`AttachedClient::new`]. There must be room.
    pub fn connect(&mut self, line: Line, preface: &[u8], received: &[u8]) {
        let mut client = AttachedClient::new(line, preface, received);
        client.show_bytes(self.shown.bytes());
        self.clients.push(client);
        self.carry(&[]);
    }

    /// What to poll, for what, and where it is.
    pub fn watched(&self) -> Vec<(Place, BorrowedFd<'_>, PollFlags)> {
        let mut watched = Vec::new();
        let waiting = self.streams.as_ref().map_or(0, |streams| streams.outgoing.len());
        if let Some(machine) = &self.machine {
            if waiting < UNDERWAY_MAX_BYTES {
                watched.push((Place::Machine, machine.from(), PollFlags::IN));
            }
            if !self.typed.is_empty() {
                watched.push((Place::Machine, machine.to(), PollFlags::OUT));
            }
        }
        if let Some(streams) = &self.streams {
            if self.typed.len() < UNDERWAY_MAX_BYTES {
                watched.push((Place::Streams, streams.line.from(), PollFlags::IN));
            }
            if waiting > 0 {
                watched.push((Place::Streams, streams.line.to(), PollFlags::OUT));
            }
        }
        for (number, client) in self.clients.iter().enumerate() {
            watched.extend(client.watched().map(|(fd, flags)| (Place::Client(number), fd, flags)));
        }
        watched
    }

    /// Does what can be done in these places.
    pub fn carry(&mut self, ready: &[Place]) {
        for place in ready {
            if let Place::Client(number) = place
                && let Some(client) = self.clients.get_mut(*number)
            {
                client.carry();
            }
        }
        if ready.contains(&Place::Machine) {
            self.show();
        }
        if ready.contains(&Place::Streams) {
            self.exchange_with_streams();
        }
        self.type_all();
        self.clients.retain(|client| !client.is_gone());
    }

    /// Shows what the machine has sent.
    fn show(&mut self) {
        let mut buffer = [0; PIECE_BYTES];
        let Some(machine) = &self.machine else { return };
        let bytes = match machine.receive(&mut buffer) {
            Ok(None) => return,
            Ok(Some(count @ 1..)) => &buffer[..count],
            Ok(Some(0)) | Err(_) => return self.lose_machine(),
        };
        if let Some(log) = &self.log {
            log.lock().unpoisoned().add(Stream::Console, bytes);
        }
        self.clients.iter_mut().for_each(|client| client.show_bytes(bytes));
        if let Some(streams) = &mut self.streams {
            streams.outgoing.extend(bytes);
            // A session that has gone ends the process.
            let _ = streams.line.send(&mut streams.outgoing);
        }
        self.shown.add(bytes);
    }

    fn lose_machine(&mut self) {
        self.machine = None;
        self.clients.iter_mut().for_each(AttachedClient::leave);
        // Its session waits for this end.
        if self.streams.as_ref().is_some_and(|streams| streams.outgoing.is_empty()) {
            self.streams = None;
        }
    }

    fn exchange_with_streams(&mut self) {
        let Some(streams) = &mut self.streams else { return };
        let mut buffer = [0; PIECE_BYTES];
        let received = streams.line.receive(&mut buffer).unwrap_or(Some(0));
        self.typed.extend(&buffer[..received.unwrap_or(0)]);
        let sent = streams.line.send(&mut streams.outgoing);
        let is_over = self.machine.is_none() && streams.outgoing.is_empty();
        if received == Some(0) || sent.is_err() || is_over {
            self.streams = None;
        }
    }

    /// Passes on what was typed, in turn, and does what was wished for.
    fn type_all(&mut self) {
        for client in &mut self.clients {
            while let Some(request) = client.take_request() {
                if let Frame::WindowSize { rows, columns } = request {
                    self.size = Some((rows, columns));
                }
            }
            let room = UNDERWAY_MAX_BYTES.saturating_sub(self.typed.len());
            let count = room.min(client.typed().len());
            if count > 0 {
                self.typed.extend(client.typed().drain(..count));
                client.has_taken(count);
            }
        }
        if let Some(machine) = &self.machine
            && machine.send(&mut self.typed).is_err()
        {
            self.lose_machine();
        }
    }
}
