//! One session: first it receives an order; then it connects a command's streams with the line.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::time::Instant;

use protocol::{
    Frame, HEADER_BYTES, ORDER_MAX_BYTES, Order, OrderError, Output, Receipts, Streams,
    WINDOW_TO_GUEST_BYTES, WINDOW_TO_HOST_BYTES, Window,
};
use rustix::event::PollFlags;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl, fstat};
use rustix::pipe::fcntl_setpipe_size;
use rustix::process::{Pid, Signal, kill_process_group};

use crate::command::{self, Running};
use crate::error::{Error, name_of};
use crate::line::{Line, write_some};
use crate::pace::Pace;
use crate::reaper::{self, End};
use crate::stream::Stream;

/// What a pipe between a command and us holds: what a command writes in a millisecond, at 256 MB/s.
const PIPE_BYTES: usize = 256 * 1024;

/// Pieces of one stream that are read before others have their turn.
const PIECES_AT_ONCE: usize = 4;

/// Status of a session that came to nothing: that of what `biv` fails at.
const STATUS_FAILED: u8 = 125;

/// An order, or a command that runs.
pub struct Session {
    number: u16,
    /// What the command runs in, for people.
    place: &'static str,
    /// Whether the order may be for a process to be adopted.
    adopts: bool,
    window: Window,
    receipts: Receipts,
    /// What has come of the order; none once the command has been started.
    order: Option<Vec<u8>>,
    pid: u32,
    terminal: Option<OwnedFd>,
    stdin: Option<OwnedFd>,
    stdout: Option<OwnedFd>,
    stderr: Option<OwnedFd>,
    /// The command's ends of them, which wait for the process that is to be adopted.
    waiting: Vec<OwnedFd>,
    pace: Pace,
    /// Bytes for the command.
    pending: VecDeque<u8>,
    /// The host has sent the end of standard input.
    input_ended: bool,
    /// How the command ended; what it has written may be still to be sent.
    end: Option<End>,
}

impl Session {
    /// A session that has no order yet; commands run in what is called `place`.
    pub fn new(number: u16, place: &'static str, adopts: bool) -> Session {
        Session {
            number,
            place,
            adopts,
            window: Window::new(WINDOW_TO_HOST_BYTES),
            receipts: Receipts::new(WINDOW_TO_GUEST_BYTES),
            order: Some(Vec::new()),
            pid: 0,
            terminal: None,
            stdin: None,
            stdout: None,
            stderr: None,
            waiting: Vec::new(),
            pace: Pace::default(),
            pending: VecDeque::new(),
            input_ended: false,
            end: None,
        }
    }

    /// Whether its command is this process.
    pub fn is(&self, pid: u32) -> bool {
        self.pid == pid && self.order.is_none()
    }

    /// The command has ended.
    pub fn has_ended(&mut self, end: End) {
        self.end = Some(end);
        self.stdin = None;
    }

    /// What to poll for.
    pub fn watched(&self, line: &Line) -> Vec<(Stream, &OwnedFd, PollFlags)> {
        let mut watched = Vec::new();
        if let Some(stdin) = self.stdin.as_ref().filter(|_| !self.pending.is_empty()) {
            watched.push((Stream::Stdin, stdin, PollFlags::OUT));
        }
        // One that is to be adopted has said nothing yet that anybody listens to.
        let may_speak = self.end.is_none() && self.waiting.is_empty();
        if may_speak && self.window.payload_room(0) > 0 && !line.is_full() {
            let outputs = [(Stream::Stdout, &self.stdout), (Stream::Stderr, &self.stderr)];
            let resting = self.resting().map(|(stream, _)| stream);
            let outputs = outputs.into_iter().filter(|(stream, _)| Some(*stream) != resting);
            watched.extend(outputs.filter_map(|(stream, descriptor)| {
                Some((stream, descriptor.as_ref()?, PollFlags::IN))
            }));
        }
        watched
    }

    /// When a stream that rests is to be watched again.
    pub fn wakes(&self) -> Option<Instant> {
        self.resting().map(|(_, until)| until)
    }

    /// The output that is not read now, and until when.
    fn resting(&self) -> Option<(Stream, Instant)> {
        self.pace.resting().filter(|(_, until)| Instant::now() < *until)
    }

    /// A stream is ready.
    pub fn carry(&mut self, stream: Stream, line: &mut Line) -> Result<(), Error> {
        if stream == Stream::Stdin {
            return self.feed_command(line);
        }
        // What was written to the other one before this comes before it.
        if let Some((other, _)) = self.resting().filter(|(resting, _)| *resting != stream) {
            while self.read_output(other, line)? {}
        }
        for _ in 0..PIECES_AT_ONCE {
            if line.is_full() || !self.read_output(stream, line)? {
                break;
            }
        }
        Ok(())
    }

    /// Does what waits to be done; whether the session is over.
    pub fn advance(&mut self, line: &mut Line) -> Result<bool, Error> {
        if !self.pending.is_empty() || self.input_ended {
            self.feed_command(line)?;
        }
        let Some(end) = self.end.filter(|_| self.waiting.is_empty()) else {
            return Ok(false);
        };
        // What it had written comes first; what children of it write later is not waited for.
        for stream in [Stream::Stdout, Stream::Stderr] {
            while self.read_output(stream, line)? {}
        }
        let has_more = self.stdout.is_some() || self.stderr.is_some();
        if has_more && self.window.payload_room(0) == 0 {
            return Ok(false);
        }
        self.send(
            line,
            &match end {
                End::Exited(status) => Frame::Exited(status),
                End::Signaled(signal) => Frame::Signaled(signal),
            },
        );
        Ok(true)
    }

    /// Does what the host says.
    pub fn obey(&mut self, frame: Frame, line: &mut Line) -> Result<(), Error> {
        let bytes = frame.wire_bytes();
        match frame {
            Frame::Credit(credit) => {
                self.window.give_back(credit);
                return Ok(());
            }
            Frame::Close => {
                self.hang_up();
                return Ok(());
            }
            Frame::Order(part) => match &mut self.order {
                Some(order) if order.len() + part.len() <= ORDER_MAX_BYTES => order.extend(part),
                Some(_) => return Err(OrderError::TooLarge.into()),
                None => return Err(Error::OutOfTurn("Order")),
            },
            Frame::Start => {
                let order = self.order.take().ok_or(Error::OutOfTurn("Start"))?;
                self.start(&Order::decode(&order)?, line)?;
            }
            other if self.order.is_some() => return Err(Error::OutOfTurn(name_of(&other))),
            Frame::Stdin(data) => {
                // Acknowledged as it reaches the command; the header at once.
                self.acknowledge(bytes - data.len() as u32, line);
                self.pending.extend(data);
                return Ok(());
            }
            Frame::StdinEnd => self.input_ended = true,
            Frame::Signal(number) => self.signal(number),
            Frame::WindowSize { rows, columns } => {
                if let Some(terminal) = &self.terminal {
                    command::set_size(terminal, rows, columns)?;
                }
            }
            other => return Err(Error::OutOfTurn(name_of(&other))),
        }
        self.acknowledge(bytes, line);
        Ok(())
    }

    /// The host cannot be followed: the session ends.
    pub fn fail(&mut self, error: &Error, line: &mut Line) {
        let reason = format!("biv: {error}\n");
        let most = self.window.payload_room(0).min(reason.len());
        self.send(line, &Frame::Stderr(reason.as_bytes()[..most].to_vec()));
        self.hang_up();
        self.end = Some(End::Exited(STATUS_FAILED));
    }

    fn start(&mut self, order: &Order, line: &mut Line) -> Result<(), Error> {
        if order.is_adopted {
            let adopted = Some(order).filter(|_| self.adopts).map(command::adopt);
            let (running, waiting) = adopted.ok_or(Error::OutOfTurn("Start"))??;
            self.waiting = waiting;
            return self.take(running);
        }
        let held = reaper::hold();
        let started = command::start(order, self.place);
        reaper::note_start(held);
        match started {
            Ok(running) => {
                self.send(line, &Frame::Started);
                self.take(running)?;
            }
            Err(failure) => {
                self.send(line, &Frame::Stderr(format!("{failure}\n").into_bytes()));
                self.has_ended(End::Exited(failure.status));
            }
        }
        Ok(())
    }

    fn take(&mut self, running: Running) -> Result<(), Error> {
        for stream in [&running.stdin, &running.stdout].into_iter().chain(&running.stderr) {
            fcntl_setfl(stream, fcntl_getfl(stream)? | OFlags::NONBLOCK)?;
            // A terminal has no such size.
            let _ = fcntl_setpipe_size(stream, PIPE_BYTES);
        }
        self.pid = running.pid;
        self.terminal = running.terminal;
        self.stdin = Some(running.stdin);
        self.stdout = Some(running.stdout);
        self.stderr = running.stderr;
        Ok(())
    }

    /// The process that was to be adopted has its streams, and runs.
    pub fn adopted(&mut self, line: &mut Line) {
        if !std::mem::take(&mut self.waiting).is_empty() {
            self.send(line, &Frame::Started);
        }
    }

    /// The streams of a command that has been started, or is to be adopted.
    pub fn streams(&self) -> Result<Option<Streams>, Error> {
        if self.pid == 0 {
            return Ok(None);
        }
        if let Some(terminal) = &self.terminal {
            let number = command::number_of(terminal)?;
            let streams = Streams { process: self.pid, terminal: number, ..Streams::default() };
            return Ok(Some(streams));
        }
        let mut streams = Streams { process: self.pid, ..Streams::default() };
        for (pipe, stream) in
            streams.pipes.iter_mut().zip([&self.stdin, &self.stdout, &self.stderr])
        {
            *pipe = stream.as_ref().map(fstat).transpose()?.map_or(0, |status| status.st_ino);
        }
        Ok(Some(streams))
    }

    /// Asks the command to end, as whoever switches a machine off does; shells on terminals only
    /// listen to the second signal.
    pub fn terminate(&self) {
        self.signal(Signal::TERM.as_raw() as u8);
        if self.terminal.is_some() {
            self.signal(Signal::HUP.as_raw() as u8);
        }
    }

    /// Nobody listens any more.
    fn hang_up(&mut self) {
        self.signal(Signal::HUP.as_raw() as u8);
        (self.stdin, self.stdout, self.stderr, self.terminal) = (None, None, None, None);
        self.pending.clear();
        if self.order.take().is_some() {
            self.end = Some(End::Signaled(Signal::HUP.as_raw() as u8));
        }
    }

    /// Signals the command's process group. A number that Linux does not have, and a group that
    /// has just ended, are nobody's fault.
    fn signal(&self, number: u8) {
        let group = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        if let (Some(group), Some(signal)) = (group, Signal::from_named_raw(number.into()))
            && self.end.is_none()
        {
            let _ = kill_process_group(group, signal);
        }
    }

    fn send(&mut self, line: &mut Line, frame: &Frame) {
        self.window.take(frame.wire_bytes());
        line.send(self.number, frame);
    }

    /// Acknowledges `bytes` of the host's.
    fn acknowledge(&mut self, bytes: u32, line: &mut Line) {
        if let Some(credit) = self.receipts.add(bytes) {
            line.send(self.number, &Frame::Credit(credit));
        }
    }

    /// Writes pending input to the command, and closes its input at the end.
    fn feed_command(&mut self, line: &mut Line) -> Result<(), Error> {
        let Some(stdin) = &self.stdin else {
            // The command has closed its input: what still comes is dropped, as a pipe would.
            let dropped = std::mem::take(&mut self.pending).len();
            self.acknowledge(dropped as u32, line);
            return Ok(());
        };
        match write_some(stdin, &mut self.pending) {
            Ok(count) => {
                self.pace.note_input();
                self.acknowledge(count as u32, line);
            }
            Err(rustix::io::Errno::PIPE | rustix::io::Errno::IO) => self.stdin = None,
            Err(error) => return Err(error.into()),
        }
        if self.input_ended && self.pending.is_empty() {
            if self.terminal.is_some() {
                // A terminal has no end; this key says so to who reads it (termios(3), VEOF).
                self.pending.push_back(0x04);
                self.input_ended = false;
            } else {
                self.stdin = None;
            }
        }
        Ok(())
    }

    /// Moves one piece of output to the line; says whether there was any.
    fn read_output(&mut self, stream: Stream, line: &mut Line) -> Result<bool, Error> {
        let (slot, output) = match stream {
            Stream::Stdout => (&mut self.stdout, Output::Stdout),
            _ => (&mut self.stderr, Output::Stderr),
        };
        let room = self.window.payload_room(0);
        let Some(descriptor) = slot.as_ref().filter(|_| room > 0) else {
            return Ok(false);
        };
        let read = |buffer: &mut [u8]| rustix::io::read(descriptor, buffer);
        match line.send_output((self.number, output), room, read) {
            // A terminal whose last user has gone answers with EIO.
            Ok(0) | Err(rustix::io::Errno::IO) => {
                *slot = None;
                Ok(false)
            }
            Ok(count) => {
                self.window.take((HEADER_BYTES + count) as u32);
                self.pace.note_piece(stream, count, Instant::now());
                Ok(true)
            }
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}
