//! Serves the host over the channel: takes the order, carries the command's streams, reports its
//! end.
//!
//! One loop polls everything and blocks on nothing: the line, the command's streams and the reaper.
//! What the host sent is acknowledged when it has reached the command, what the command wrote is
//! read only while the host's window has room; so at most two windows of bytes are held here.

use std::collections::VecDeque;

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use protocol::{
    Decoder, Encoder, Frame, ORDER_MAX_BYTES, Order, PAYLOAD_MAX_BYTES, Receipts,
    WINDOW_TO_GUEST_BYTES, WINDOW_TO_HOST_BYTES, Window,
};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags, fcntl_getfl, fcntl_setfl, open};
use rustix::process::{Pid, Signal, kill_process_group};
use rustix::termios::{ControlModes, OptionalActions, tcdrain, tcgetattr, tcsetattr};

use crate::command::{self, Running};
use crate::reaper::{End, Reaper};

/// Status of a machine without a root: that of what `biv` fails at.
const STATUS_NO_ROOT: u8 = 125;

/// Why the channel came to an end before the command did.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The line or a stream failed.
    #[error("guest channel: {0}")]
    Line(#[from] io::Error),
    /// The host sent what is no conversation.
    #[error(transparent)]
    Protocol(#[from] protocol::Error),
    /// The host's order makes no sense.
    #[error(transparent)]
    Order(#[from] protocol::OrderError),
    /// The host sent a frame that only a guest sends, or at the wrong time.
    #[error("the host sent a {0} frame out of turn")]
    OutOfTurn(&'static str),
}

impl From<rustix::io::Errno> for Error {
    fn from(error: rustix::io::Errno) -> Error {
        Error::Line(error.into())
    }
}

/// Serves the host over `/dev/DEVICE` until the command has ended and all is said.
pub fn run(device: &str) -> io::Result<()> {
    serve(&Path::new("/dev").join(device)).map_err(io::Error::other)
}

/// Says over `/dev/DEVICE` why there is nothing to run the command in.
pub fn refuse(device: &str, trouble: &[String]) -> io::Result<()> {
    let refuse = || {
        let mut line = Line::open(&Path::new("/dev").join(device))?;
        line.receive_order()?;
        let text = trouble.iter().map(|line| format!("biv: {line}\n")).collect::<String>();
        line.send(&Frame::Stderr(text.into_bytes()));
        line.send(&Frame::Exited(STATUS_NO_ROOT));
        line.finish()
    };
    refuse().map_err(|error: Error| io::Error::other(error))
}

/// Serves the host over the line at `path`.
pub fn serve(path: &Path) -> Result<(), Error> {
    let mut line = Line::open(path)?;
    let order = line.receive_order()?;
    match command::start(&order) {
        Ok(running) => {
            line.send(&Frame::Started);
            let reaper = Reaper::start(running.pid)?;
            Session::new(line, running, reaper)?.run()
        }
        Err(failure) => {
            line.send(&Frame::Stderr(format!("{failure}\n").into_bytes()));
            line.send(&Frame::Exited(failure.status));
            line.finish()
        }
    }
}

/// The serial line: raw, not blocking, with what waits to be sent and what it may still send.
struct Line {
    device: OwnedFd,
    encoder: Encoder,
    decoder: Decoder,
    outgoing: VecDeque<u8>,
    window: Window,
    receipts: Receipts,
}

impl Line {
    fn open(path: &Path) -> Result<Line, Error> {
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let device = open(path, flags, Mode::empty())?;
        let mut terminal = tcgetattr(&device)?;
        terminal.make_raw();
        terminal.control_modes |= ControlModes::CLOCAL | ControlModes::CREAD;
        terminal.set_speed(115_200)?;
        tcsetattr(&device, OptionalActions::Flush, &terminal)?;
        let mut line = Line {
            device,
            encoder: Encoder::default(),
            decoder: Decoder::new(),
            outgoing: VecDeque::new(),
            window: Window::new(WINDOW_TO_HOST_BYTES),
            receipts: Receipts::new(WINDOW_TO_GUEST_BYTES),
        };
        let mut greeting = Vec::new();
        protocol::hello(&mut line.encoder, &mut greeting);
        line.outgoing.extend(greeting);
        Ok(line)
    }

    /// Queues `frame`. Data is cut to the window by whoever calls; the few other frames are small,
    /// and the host keeps far more than a window of room.
    fn send(&mut self, frame: &Frame) {
        if !matches!(frame, Frame::Credit(_)) {
            self.window.take(frame.wire_bytes());
        }
        let mut bytes = Vec::new();
        self.encoder.put(frame, &mut bytes);
        self.outgoing.extend(bytes);
    }

    /// Acknowledges `bytes` of the host's.
    fn acknowledge(&mut self, bytes: u32) {
        if let Some(credit) = self.receipts.add(bytes) {
            self.send(&Frame::Credit(credit));
        }
    }

    fn interest(&self) -> PollFlags {
        if self.outgoing.is_empty() { PollFlags::IN } else { PollFlags::IN | PollFlags::OUT }
    }

    /// Sends and receives what the line takes and has.
    fn exchange(&mut self) -> Result<(), Error> {
        write_some(&self.device, &mut self.outgoing)?;
        let mut buffer = [0; PAYLOAD_MAX_BYTES];
        match rustix::io::read(&self.device, &mut buffer) {
            Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            Ok(count) => self.decoder.feed(&buffer[..count]),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    fn wait(&self) -> Result<(), Error> {
        let mut fds = [PollFd::new(&self.device, self.interest())];
        match poll(&mut fds, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn receive_order(&mut self) -> Result<Order, Error> {
        let mut encoded = Vec::new();
        loop {
            while let Some(frame) = self.decoder.next_frame()? {
                let bytes = frame.wire_bytes();
                match frame {
                    Frame::Order(part) if encoded.len() + part.len() <= ORDER_MAX_BYTES => {
                        encoded.extend(part);
                        self.acknowledge(bytes);
                    }
                    Frame::Order(_) => return Err(protocol::OrderError::TooLarge.into()),
                    Frame::Start => {
                        self.acknowledge(bytes);
                        return Ok(Order::decode(&encoded)?);
                    }
                    Frame::Credit(credit) => self.window.give_back(credit),
                    other => return Err(Error::OutOfTurn(name_of(&other))),
                }
            }
            self.wait()?;
            self.exchange()?;
        }
    }

    /// Sends what is queued and waits until it has left the machine.
    fn finish(mut self) -> Result<(), Error> {
        while !self.outgoing.is_empty() {
            self.wait()?;
            self.exchange()?;
        }
        tcdrain(&self.device)?;
        Ok(())
    }
}

/// A command that runs, between its streams and the line.
struct Session {
    line: Line,
    group: Option<Pid>,
    reaper: Reaper,
    terminal: Option<OwnedFd>,
    stdin: Option<OwnedFd>,
    stdout: Option<OwnedFd>,
    stderr: Option<OwnedFd>,
    /// Bytes for the command, and the sizes of the frames that they came in.
    pending: VecDeque<u8>,
    /// The host has sent the end of standard input.
    ended: bool,
}

/// What a poll watches, in the order in which it does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    Line,
    Reaper,
    Stdin,
    Stdout,
    Stderr,
}

impl Session {
    fn new(line: Line, running: Running, reaper: Reaper) -> Result<Session, Error> {
        for stream in [&running.stdin, &running.stdout].into_iter().chain(&running.stderr) {
            fcntl_setfl(stream, fcntl_getfl(stream)? | OFlags::NONBLOCK)?;
        }
        Ok(Session {
            line,
            group: i32::try_from(running.pid).ok().and_then(Pid::from_raw),
            reaper,
            terminal: running.terminal,
            stdin: Some(running.stdin),
            stdout: Some(running.stdout),
            stderr: running.stderr,
            pending: VecDeque::new(),
            ended: false,
        })
    }

    fn run(mut self) -> Result<(), Error> {
        loop {
            let ready = self.wait()?;
            if ready.contains(&Source::Line) {
                self.line.exchange()?;
                self.obey()?;
            }
            if ready.contains(&Source::Stdin) || !self.pending.is_empty() || self.ended {
                self.feed_command()?;
            }
            for source in [Source::Stdout, Source::Stderr] {
                if ready.contains(&source) {
                    self.read_output(source)?;
                }
            }
            if ready.contains(&Source::Reaper) {
                return self.report();
            }
        }
    }

    /// Waits until something can be done, and says what.
    fn wait(&self) -> Result<Vec<Source>, Error> {
        let mut fds = vec![
            PollFd::new(&self.line.device, self.line.interest()),
            PollFd::new(&self.reaper, PollFlags::IN),
        ];
        let mut sources = vec![Source::Line, Source::Reaper];
        if let Some(stdin) = self.stdin.as_ref().filter(|_| !self.pending.is_empty()) {
            fds.push(PollFd::new(stdin, PollFlags::OUT));
            sources.push(Source::Stdin);
        }
        if self.line.window.payload_room(0) > 0 {
            for (stream, source) in [(&self.stdout, Source::Stdout), (&self.stderr, Source::Stderr)]
            {
                if let Some(stream) = stream {
                    fds.push(PollFd::new(stream, PollFlags::IN));
                    sources.push(source);
                }
            }
        }
        match poll(&mut fds, None) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok(Vec::new()),
            Err(error) => return Err(error.into()),
        }
        let ready = fds.iter().zip(sources).filter(|(fd, _)| !fd.revents().is_empty());
        Ok(ready.map(|(_, source)| source).collect())
    }

    /// Does what the host's frames say.
    fn obey(&mut self) -> Result<(), Error> {
        while let Some(frame) = self.line.decoder.next_frame()? {
            let bytes = frame.wire_bytes();
            match frame {
                Frame::Stdin(data) => {
                    // Acknowledged as it reaches the command; the header at once.
                    self.line.acknowledge(bytes - data.len() as u32);
                    self.pending.extend(data);
                    continue;
                }
                Frame::StdinEnd => self.ended = true,
                Frame::Signal(number) => self.signal(number),
                Frame::WindowSize { rows, columns } => {
                    if let Some(terminal) = &self.terminal {
                        command::set_size(terminal, rows, columns)?;
                    }
                }
                Frame::Credit(credit) => {
                    self.line.window.give_back(credit);
                    continue;
                }
                other => return Err(Error::OutOfTurn(name_of(&other))),
            }
            self.line.acknowledge(bytes);
        }
        Ok(())
    }

    /// Signals the command's process group. A number that Linux does not have, and a group that
    /// has just ended, are nobody's fault.
    fn signal(&self, number: u8) {
        if let (Some(group), Some(signal)) = (self.group, Signal::from_named_raw(number.into())) {
            let _ = kill_process_group(group, signal);
        }
    }

    /// Writes pending input to the command, and closes its input at the end.
    fn feed_command(&mut self) -> Result<(), Error> {
        let Some(stdin) = &self.stdin else {
            // The command has closed its input: what still comes is dropped, as a pipe would.
            let dropped = std::mem::take(&mut self.pending).len();
            self.line.acknowledge(dropped as u32);
            return Ok(());
        };
        match write_some(stdin, &mut self.pending) {
            Ok(count) => self.line.acknowledge(count as u32),
            Err(rustix::io::Errno::PIPE | rustix::io::Errno::IO) => self.stdin = None,
            Err(error) => return Err(error.into()),
        }
        if self.ended && self.pending.is_empty() {
            if self.terminal.is_some() {
                // A terminal has no end; this key says so to who reads it (termios(3), VEOF).
                self.pending.push_back(0x04);
                self.ended = false;
            } else {
                self.stdin = None;
            }
        }
        Ok(())
    }

    /// Moves one piece of output to the line; says whether there was any.
    fn read_output(&mut self, source: Source) -> Result<bool, Error> {
        let slot = if source == Source::Stdout { &mut self.stdout } else { &mut self.stderr };
        let room = self.line.window.payload_room(0);
        let Some(stream) = slot.as_ref().filter(|_| room > 0) else {
            return Ok(false);
        };
        let mut data = vec![0; room];
        match rustix::io::read(stream, &mut data) {
            // A terminal whose last user has gone answers with EIO.
            Ok(0) | Err(rustix::io::Errno::IO) => {
                *slot = None;
                Ok(false)
            }
            Ok(count) => {
                data.truncate(count);
                let frame = if source == Source::Stdout {
                    Frame::Stdout(data)
                } else {
                    Frame::Stderr(data)
                };
                self.line.send(&frame);
                Ok(true)
            }
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// The command has ended: passes on what it had written, then how it ended. What children of
    /// it write later is not waited for.
    fn report(mut self) -> Result<(), Error> {
        let end = self.reaper.end()?;
        for source in [Source::Stdout, Source::Stderr] {
            loop {
                if self.line.window.payload_room(0) == 0 {
                    self.line.wait()?;
                    self.line.exchange()?;
                    self.obey()?;
                } else if !self.read_output(source)? {
                    break;
                }
            }
        }
        self.line.send(&match end {
            End::Exited(status) => Frame::Exited(status),
            End::Signaled(signal) => Frame::Signaled(signal),
        });
        self.line.finish()
    }
}

/// Writes from the front of `bytes` what a stream that does not block takes.
fn write_some(stream: &OwnedFd, bytes: &mut VecDeque<u8>) -> rustix::io::Result<usize> {
    let mut written = 0;
    while !bytes.is_empty() {
        match rustix::io::write(stream, bytes.as_slices().0) {
            Ok(count) => {
                bytes.drain(..count);
                written += count;
            }
            Err(rustix::io::Errno::AGAIN) => break,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(written)
}

fn name_of(frame: &Frame) -> &'static str {
    match frame {
        Frame::Order(_) => "Order",
        Frame::Start => "Start",
        Frame::Stdin(_) => "Stdin",
        Frame::StdinEnd => "StdinEnd",
        Frame::Signal(_) => "Signal",
        Frame::WindowSize { .. } => "WindowSize",
        _ => "guest's",
    }
}
