//! A bare serial console: bytes both ways.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use rustix::event::PollFlags;

use super::{Ending, Error, Link, Outputs};

/// What is kept of input that the guest does not take, and of output that the user does not.
const QUEUE_MAX_BYTES: usize = 64 * 1024;

/// The host's end of a console line.
#[derive(Debug)]
pub struct Console {
    line: UnixStream,
    outgoing: VecDeque<u8>,
    /// Bytes on their way to the user.
    undelivered: usize,
}

impl Console {
    /// A console over `line`.
    pub fn new(line: UnixStream) -> io::Result<Console> {
        line.set_nonblocking(true)?;
        Ok(Console { line, outgoing: VecDeque::new(), undelivered: 0 })
    }
}

/// Writes from the front of `bytes` what `line` takes.
pub(super) fn send_some(line: &mut UnixStream, bytes: &mut VecDeque<u8>) -> io::Result<()> {
    while !bytes.is_empty() {
        match line.write(bytes.as_slices().0) {
            Ok(count) => drop(bytes.drain(..count)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Reads what `line` has; `None` when there is nothing now, 0 at the end.
pub(super) fn receive_some(line: &mut UnixStream, buffer: &mut [u8]) -> io::Result<Option<usize>> {
    match line.read(buffer) {
        Ok(count) => Ok(Some(count)),
        Err(error) => match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::Interrupted => Ok(None),
            ErrorKind::ConnectionReset => Ok(Some(0)),
            _ => Err(error),
        },
    }
}

/// Whether a failed write only means that the machine has gone.
pub(super) fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset)
}

impl Link for Console {
    const HAS_COMMAND: bool = false;

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.line.as_fd()
    }

    fn interest(&self) -> PollFlags {
        let mut interest = PollFlags::empty();
        if self.undelivered < QUEUE_MAX_BYTES {
            interest |= PollFlags::IN;
        }
        if !self.outgoing.is_empty() {
            interest |= PollFlags::OUT;
        }
        interest
    }

    fn exchange(&mut self, outputs: &mut Outputs) -> Result<bool, Error> {
        match send_some(&mut self.line, &mut self.outgoing) {
            Err(error) if is_gone(&error) => self.outgoing.clear(),
            other => other?,
        }
        let mut buffer = [0; 4096];
        match receive_some(&mut self.line, &mut buffer)? {
            None => Ok(true),
            Some(0) => Ok(false),
            Some(count) => {
                outputs.stdout.queue(&buffer[..count]);
                self.undelivered += count;
                Ok(true)
            }
        }
    }

    fn room(&self) -> usize {
        QUEUE_MAX_BYTES - self.outgoing.len()
    }

    fn input(&mut self, bytes: &[u8]) {
        self.outgoing.extend(bytes);
    }

    fn end_of_input(&mut self) {
        // A serial line has no end.
    }

    fn signal(&mut self, _number: u8) -> bool {
        false
    }

    fn resize(&mut self, _rows: u16, _columns: u16) {
        // Nor a size.
    }

    fn delivered(&mut self, bytes: usize) {
        self.undelivered = self.undelivered.saturating_sub(bytes);
    }

    fn ending(&self) -> Option<Ending> {
        None
    }
}
