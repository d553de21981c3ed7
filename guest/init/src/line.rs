//! The serial line to the host: raw, not blocking, with what waits to be sent.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use protocol::{Decoder, Encoder, Frame, LINE, PAYLOAD_MAX_BYTES, Receipts, WINDOW_OF_LINE_BYTES};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags, open};
use rustix::termios::{ControlModes, OptionalActions, tcdrain, tcgetattr, tcsetattr};

use crate::service::Error;

/// While so much waits, no more is read from commands.
const WAITING_MAX_BYTES: usize = 64 * 1024;

/// The serial line.
pub struct Line {
    device: OwnedFd,
    encoder: Encoder,
    decoder: Decoder,
    outgoing: VecDeque<u8>,
    /// What was read of the host's, and is to be acknowledged for the line as a whole.
    receipts: Receipts,
}

impl Line {
    /// Opens the line at `path` and greets the host.
    pub fn open(path: &Path) -> Result<Line, Error> {
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
            receipts: Receipts::new(WINDOW_OF_LINE_BYTES),
        };
        let mut greeting = Vec::new();
        protocol::hello(&mut line.encoder, &mut greeting);
        line.outgoing.extend(greeting);
        Ok(line)
    }

    /// Queues `frame`. Data is cut to its session's window by whoever calls; the few other frames are
    /// small, and the host keeps far more than a window of room.
    pub fn send(&mut self, session: u16, frame: &Frame) {
        let mut bytes = Vec::new();
        self.encoder.put_to(session, frame, &mut bytes);
        self.outgoing.extend(bytes);
    }

    /// The next frame of the host's and its session.
    pub fn next_frame(&mut self) -> Result<Option<(u16, Frame)>, Error> {
        let next = self.decoder.next_of_any()?;
        if let Some((_, frame)) = &next
            && !matches!(frame, Frame::Credit(_))
            && let Some(credit) = self.receipts.add(frame.wire_bytes())
        {
            self.send(LINE, &Frame::Credit(credit));
        }
        Ok(next)
    }

    /// Whether commands are to wait with what they write.
    pub fn is_full(&self) -> bool {
        self.outgoing.len() > WAITING_MAX_BYTES
    }

    /// What to poll.
    pub fn device(&self) -> &OwnedFd {
        &self.device
    }

    /// For what.
    pub fn interest(&self) -> PollFlags {
        if self.outgoing.is_empty() { PollFlags::IN } else { PollFlags::IN | PollFlags::OUT }
    }

    /// Sends and receives what the line takes and has.
    pub fn exchange(&mut self) -> Result<(), Error> {
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

    /// Sends what is queued and waits until it has left the machine.
    pub fn finish(mut self) -> Result<(), Error> {
        while !self.outgoing.is_empty() {
            match poll(&mut [PollFd::new(&self.device, self.interest())], None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            self.exchange()?;
        }
        tcdrain(&self.device)?;
        Ok(())
    }
}

/// Writes from the front of `bytes` what a stream that does not block takes.
pub fn write_some(stream: &OwnedFd, bytes: &mut VecDeque<u8>) -> rustix::io::Result<usize> {
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
