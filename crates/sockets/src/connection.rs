//! One connection between a program of the host and one of the guest.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use host::poll::PollFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown as shut_down};

use crate::limits::{ANSWER_TIMEOUT, CONNECTION_BUFFER_BYTES, LINE_BYTES, PIECE_BYTES};
use crate::wire::{Header, Output, operation, shutdown};

/// The ports of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ports {
    /// The guest's.
    pub guest: u32,
    /// The host's.
    pub host: u32,
}

/// How far a connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The guest has been asked, by us.
    Asked(Instant),
    /// It is open.
    Open,
    /// The program has gone, and the guest is to close it.
    Left(Instant),
}

/// A connection that has two ends.
pub struct Connection {
    ports: Ports,
    socket: OwnedFd,
    stage: Stage,
    /// What the program has still to take.
    waiting: VecDeque<u8>,
    /// What it has taken, all together, and as the guest knows it.
    taken: u32,
    told: u32,
    /// What was sent to the guest, all together; what it has taken of that, and how much it holds.
    sent: u32,
    guest_taken: u32,
    guest_room: u32,
    /// The guest was asked for credit and has not answered.
    has_asked: bool,
    /// To be said: this operation, before anything else.
    first: Option<u16>,
    wants_credit: bool,
    /// What each end does no more ([`shutdown`]), and what the guest knows of the program's.
    of_guest: u32,
    of_program: u32,
    known: u32,
    /// The program has been told that the guest is done.
    is_shut: bool,
}

/// What is to become of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It goes on.
    Stay,
    /// It is over, and the guest is told.
    Reset,
}

impl Connection {
    /// One that a program wants; the guest is asked.
    pub fn asked(ports: Ports, socket: OwnedFd, now: Instant) -> Connection {
        Connection::new(ports, socket, Stage::Asked(now), operation::REQUEST)
    }

    /// One that the guest wants, as its header says; it is told that it has it.
    pub fn accepted(ports: Ports, socket: OwnedFd, header: &Header) -> Connection {
        let mut it = Connection::new(ports, socket, Stage::Open, operation::RESPONSE);
        it.note_credit(header);
        it
    }

    fn new(ports: Ports, socket: OwnedFd, stage: Stage, first: u16) -> Connection {
        Connection {
            ports,
            socket,
            stage,
            waiting: VecDeque::new(),
            taken: 0,
            told: 0,
            sent: 0,
            guest_taken: 0,
            guest_room: 0,
            has_asked: false,
            first: Some(first),
            wants_credit: false,
            of_guest: 0,
            of_program: 0,
            known: 0,
            is_shut: false,
        }
    }

    /// Whether the time has come to give up, and when it would.
    pub fn deadline(&self) -> Option<Instant> {
        match self.stage {
            Stage::Asked(since) | Stage::Left(since) => Some(since + ANSWER_TIMEOUT),
            Stage::Open => None,
        }
    }

    /// What to poll, and for what, if for anything: a socket whose other end has gone is always ready.
    pub fn interest(&self, output: &Output) -> Option<(BorrowedFd<'_>, PollFlags)> {
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::IN, self.may_read(output));
        flags.set(PollFlags::OUT, !self.waiting.is_empty());
        (!flags.is_empty()).then(|| (self.socket.as_fd(), flags))
    }

    fn may_read(&self, output: &Output) -> bool {
        self.stage == Stage::Open
            && self.first.is_none()
            && self.of_program & shutdown::DONE == 0
            && self.of_guest & shutdown::DEAF == 0
            && self.credit() > 0
            && output.has_room()
    }

    /// How much the guest takes.
    fn credit(&self) -> u32 {
        let under_way = self.sent.wrapping_sub(self.guest_taken);
        self.guest_room.saturating_sub(under_way)
    }

    fn note_credit(&mut self, header: &Header) {
        (self.guest_room, self.guest_taken) = (header.room, header.taken);
        self.has_asked = false;
    }

    /// The guest says something.
    pub fn hear(&mut self, header: &Header, data: &[u8], now: Instant) -> Fate {
        self.note_credit(header);
        match (header.operation, self.stage) {
            (operation::RESPONSE, Stage::Asked(_)) => {
                self.stage = Stage::Open;
                let line = format!("OK {}\n", self.ports.host);
                // A socket that nobody has written to has room for it.
                let all = send(&self.socket, line.as_bytes(), SendFlags::NOSIGNAL);
                if all != Ok(line.len()) {
                    self.leave(now);
                }
            }
            (_, Stage::Asked(_)) => return Fate::Reset,
            (operation::DATA, _) => return self.take(data, now),
            (operation::CREDIT_UPDATE, _) => {}
            (operation::CREDIT_REQUEST, _) => self.wants_credit = true,
            (operation::SHUTDOWN, _) => {
                self.of_guest |= header.flags & (shutdown::DEAF | shutdown::DONE);
                if self.of_guest & shutdown::DEAF != 0 {
                    // It fails where the program has gone, which is found out.
                    let _ = shut_down(&self.socket, Shutdown::Read);
                }
                self.give(now);
            }
            _ => return Fate::Reset,
        }
        self.fate()
    }

    fn take(&mut self, data: &[u8], now: Instant) -> Fate {
        let is_too_much = self.waiting.len() + data.len() > CONNECTION_BUFFER_BYTES;
        if is_too_much || self.of_guest & shutdown::DONE != 0 {
            return Fate::Reset;
        }
        self.waiting.extend(data);
        self.give(now);
        Fate::Stay
    }

    /// Give the program what it takes.
    pub fn give(&mut self, now: Instant) {
        while !self.waiting.is_empty() {
            let is_deaf = self.of_program & shutdown::DEAF != 0;
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            let sent = match is_deaf {
                true => Ok(self.waiting.len()),
                false => send(&self.socket, self.waiting.as_slices().0, flags),
            };
            match sent {
                Ok(count) => {
                    self.taken = self.taken.wrapping_add(count as u32);
                    self.waiting.drain(..count);
                }
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR) => {}
                // It has closed that way, or altogether.
                Err(_) => self.shut(shutdown::DEAF, now),
            }
        }
        if self.of_guest & shutdown::DONE != 0 && !std::mem::replace(&mut self.is_shut, true) {
            let _ = shut_down(&self.socket, Shutdown::Write);
        }
    }

    /// Read what the program has written, and send it; `is_gone`, if there will be no more of anything.
    pub fn read(&mut self, output: &mut Output, is_gone: bool, now: Instant) {
        if !self.may_read(output) {
            return;
        }
        let mut buffer = [0; PIECE_BYTES];
        let room = (self.credit() as usize).min(PIECE_BYTES);
        match recv(&self.socket, &mut buffer[..room], RecvFlags::DONTWAIT) {
            Ok((0, _)) if is_gone => self.leave(now),
            Ok((0, _)) => self.shut(shutdown::DONE, now),
            Ok((count, _)) => {
                self.sent = self.sent.wrapping_add(count as u32);
                self.say(operation::DATA, 0, &buffer[..count], output);
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => self.leave(now),
        }
    }

    /// The program has gone.
    fn leave(&mut self, now: Instant) {
        self.shut(shutdown::DEAF | shutdown::DONE, now);
    }

    /// The program does this no more.
    fn shut(&mut self, what: u32, now: Instant) {
        self.of_program |= what;
        if self.of_program == shutdown::DEAF | shutdown::DONE && self.stage == Stage::Open {
            self.stage = Stage::Left(now);
        }
    }

    /// Say what there is to say besides data, as far as there is room for it.
    pub fn speak(&mut self, output: &mut Output) {
        if !output.has_room() {
            return;
        }
        if let Some(first) = self.first.take() {
            self.say(first, 0, &[], output);
        }
        if matches!(self.stage, Stage::Asked(_)) {
            return;
        }
        if self.known != self.of_program {
            self.known = self.of_program;
            self.say(operation::SHUTDOWN, self.known, &[], output);
        }
        let untold = self.taken.wrapping_sub(self.told) as usize;
        if self.wants_credit || untold >= CONNECTION_BUFFER_BYTES / 2 {
            self.say(operation::CREDIT_UPDATE, 0, &[], output);
        }
        if self.credit() == 0 && !self.has_asked {
            self.has_asked = true;
            self.say(operation::CREDIT_REQUEST, 0, &[], output);
        }
    }

    fn say(&mut self, operation: u16, flags: u32, data: &[u8], output: &mut Output) {
        let header = Header {
            from: self.ports.host,
            to: self.ports.guest,
            length: 0,
            operation,
            flags,
            room: CONNECTION_BUFFER_BYTES as u32,
            taken: self.taken,
        };
        // Each packet tells of credit.
        self.told = self.taken;
        self.wants_credit = false;
        output.add(header, data);
    }

    /// It is over when the guest has closed it and the program has everything.
    pub fn fate(&self) -> Fate {
        let both = shutdown::DEAF | shutdown::DONE;
        if self.of_guest == both && self.waiting.is_empty() { Fate::Reset } else { Fate::Stay }
    }
}

/// A program that has not said yet what it wants.
pub struct Asking {
    pub socket: OwnedFd,
    line: Vec<u8>,
    since: Instant,
}

/// How far it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// It has not said.
    Unknown,
    /// This port of the guest's.
    Port(u32),
    /// Nothing that there is, or it has gone.
    Invalid,
}

impl Asking {
    pub fn new(socket: OwnedFd, now: Instant) -> Asking {
        Asking { socket, line: Vec::new(), since: now }
    }

    pub fn deadline(&self) -> Instant {
        self.since + ANSWER_TIMEOUT
    }

    /// Read the line, and no byte after it: these are for the guest.
    pub fn read(&mut self) -> Wanted {
        while self.line.len() < LINE_BYTES {
            let mut byte = [0];
            match recv(&self.socket, &mut byte, RecvFlags::DONTWAIT) {
                Ok((1, _)) if byte != *b"\n" => self.line.push(byte[0]),
                Ok((1, _)) => return port(&self.line).map_or(Wanted::Invalid, Wanted::Port),
                Err(Errno::AGAIN | Errno::INTR) => return Wanted::Unknown,
                Ok(_) | Err(_) => return Wanted::Invalid,
            }
        }
        Wanted::Invalid
    }
}

/// What `CONNECT PORT` names.
fn port(line: &[u8]) -> Option<u32> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let digits = line.strip_prefix(b"CONNECT ")?;
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(digits).ok().filter(|_| is_number)?.parse().ok()
}
