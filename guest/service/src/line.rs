//! The line to the host: a virtio port, a raw serial line, or a socket. It does not block, and keeps
//! what waits to be sent.
//!
//! Linux's driver gives a port's reader one buffer of a page for each segment of a `readv`, and
//! goes on with the next segment only if that page was full. So one read takes as many pages as the
//! host has filled.

use std::collections::VecDeque;
use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use protocol::{
    Decoder, Encoder, FIRST, Frame, LINE, Output, Receipts, WINDOW_OF_PORT_BYTES,
    WINDOW_OF_SERIAL_BYTES,
};
use rustix::event::PollFlags;
use rustix::fs::{Mode, OFlags, open};
use rustix::termios::{ControlModes, OptionalActions, isatty, tcdrain, tcgetattr, tcsetattr};

use crate::error::Error;
use crate::poller::wait_for;

/// While so much waits, no more is read from commands.
const WAITING_MAX_BYTES: usize = 256 * 1024;

/// How long the host may take to hear that the first command has ended.
const HEARING_PATIENCE: Duration = Duration::from_secs(10);

/// What Linux's driver reads at once of a port.
const PORT_PIECE_BYTES: usize = 4096;

/// What is read at once.
const READ_BYTES: usize = 16 * PORT_PIECE_BYTES;

/// Opens a device that may be the line.
pub fn open_device(path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    open(path, flags, Mode::empty())
}

/// The line.
pub struct Line {
    device: OwnedFd,
    /// Whether it is a serial line and no port.
    is_serial: bool,
    encoder: Encoder,
    decoder: Decoder,
    outgoing: Vec<u8>,
    /// How much of it has been sent.
    sent: usize,
    /// What was read of the host's, and is to be acknowledged for the line as a whole.
    receipts: Receipts,
    buffer: Box<[u8]>,
}

impl Line {
    /// Takes the line that is this device, and greets the host, which greets back, or not: before that, there may be
    /// something on the line that was said to others.
    pub fn over(device: OwnedFd, is_greeted_back: bool) -> Result<Line, Error> {
        let is_serial = isatty(&device);
        if is_serial {
            let mut terminal = tcgetattr(&device)?;
            terminal.make_raw();
            terminal.control_modes |= ControlModes::CLOCAL | ControlModes::CREAD;
            terminal.set_speed(115_200)?;
            tcsetattr(&device, OptionalActions::Flush, &terminal)?;
        }
        let window = if is_serial { WINDOW_OF_SERIAL_BYTES } else { WINDOW_OF_PORT_BYTES };
        let (mut encoder, mut greeting) = (Encoder::default(), Vec::new());
        protocol::hello(window, &mut encoder, &mut greeting);
        Ok(Line {
            device,
            is_serial,
            encoder,
            decoder: if is_greeted_back { Decoder::after_greeting() } else { Decoder::new() },
            outgoing: greeting,
            sent: 0,
            receipts: Receipts::new(window),
            buffer: vec![0; READ_BYTES].into(),
        })
    }

    /// Queues `frame`. Data is cut to its session's window by whoever calls; the few other frames are
    /// small, and the host keeps far more than a window of room.
    pub fn send(&mut self, session: u16, frame: &Frame) {
        self.encoder.put_to(session, frame, &mut self.outgoing);
    }

    /// Queues a frame with what `read` puts into a buffer of at most `most` bytes; returns how much it was.
    pub fn send_output(
        &mut self,
        whose: (u16, Output),
        most: usize,
        read: impl FnOnce(&mut [u8]) -> rustix::io::Result<usize>,
    ) -> rustix::io::Result<usize> {
        self.encoder.read_to(whose, &mut self.outgoing, most, read)
    }

    /// Bytes that are queued.
    fn waiting(&self) -> usize {
        self.outgoing.len() - self.sent
    }

    /// Writes what is queued as far as the line takes it.
    fn flush(&mut self) -> rustix::io::Result<()> {
        while self.waiting() > 0 {
            match rustix::io::write(&self.device, &self.outgoing[self.sent..]) {
                Ok(count) => self.sent += count,
                Err(rustix::io::Errno::AGAIN) => break,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
        self.outgoing.drain(..std::mem::take(&mut self.sent));
        Ok(())
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
        self.waiting() > WAITING_MAX_BYTES
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
        self.flush()?;
        let mut pieces: Vec<_> =
            self.buffer.chunks_mut(PORT_PIECE_BYTES).map(IoSliceMut::new).collect();
        match rustix::io::readv(&self.device, &mut pieces) {
            Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            Ok(count) => self.decoder.feed(&self.buffer[..count]),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Sends what is queued and waits until it has left the machine. What was written to a port may still
    /// be in its queue: it has left when the host says that it has heard the end of the first command.
    pub fn finish(mut self) -> Result<(), Error> {
        while !self.outgoing.is_empty() {
            self.wait(None)?;
            self.exchange()?;
        }
        if self.is_serial {
            tcdrain(&self.device)?;
            return Ok(());
        }
        loop {
            while let Some(heard) = self.next_frame()? {
                if heard == (FIRST, Frame::Close) {
                    return Ok(());
                }
            }
            if !self.wait(Some(Instant::now() + HEARING_PATIENCE))? {
                return Ok(());
            }
            self.exchange()?;
        }
    }

    /// Sends what is queued, as far as the host takes it in time, and leaves the device to whoever has it open besides.
    pub fn hand_over(mut self) -> Result<(), Error> {
        let deadline = Instant::now() + HEARING_PATIENCE;
        self.flush()?;
        while self.waiting() > 0 && wait_for(self.device.as_fd(), PollFlags::OUT, Some(deadline))? {
            self.flush()?;
        }
        Ok(())
    }

    /// Waits until the line can be used; `false` if that is not so by the deadline.
    fn wait(&self, deadline: Option<Instant>) -> Result<bool, Error> {
        Ok(wait_for(self.device.as_fd(), self.interest(), deadline)?)
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
