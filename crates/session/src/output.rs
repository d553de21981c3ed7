//! One of the user's output streams: the bytes that could not be written yet, and whether the
//! stream has a reader.
//!
//! Other programs may share the stream, so the session does not make it non-blocking. The session
//! writes only when poll(2) has reported the stream ready, and then at most PIPE_BUF bytes, which a
//! ready pipe takes without blocking (pipe(7)).

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use host::poll::{PollFlags, look_at};
use locks::Unpoisoned;
use rustix::io::Errno;

use super::Error;
use api::log::{self, Stream};

/// What a pipe that is ready for writing takes without blocking.
const PIECE_BYTES: usize = 4096;

#[derive(Debug)]
enum Descriptor {
    /// It was there before us.
    Standard(BorrowedFd<'static>),
    /// It is closed when all is written.
    Own(OwnedFd),
}

impl AsFd for Descriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Descriptor::Standard(descriptor) => *descriptor,
            Descriptor::Own(descriptor) => descriptor.as_fd(),
        }
    }
}

/// A queue in front of a descriptor.
#[derive(Debug)]
pub struct Output {
    name: &'static str,
    descriptor: Descriptor,
    queue: VecDeque<u8>,
    closed: bool,
    /// The log that takes the output when the descriptor's other end is closed.
    log: Option<(log::Shared, Stream)>,
    /// Bytes that are in the log, and not reported to the domain yet.
    logged: usize,
}

impl Output {
    /// To a descriptor that there always is. Nothing is queued.
    pub fn new(name: &'static str, descriptor: BorrowedFd<'static>) -> Output {
        Self::to(name, Descriptor::Standard(descriptor))
    }

    /// To a descriptor whose other end a process of ours has.
    pub fn own(name: &'static str, descriptor: OwnedFd) -> Output {
        Self::to(name, Descriptor::Own(descriptor))
    }

    fn to(name: &'static str, descriptor: Descriptor) -> Output {
        Output { name, descriptor, queue: VecDeque::new(), closed: false, log: None, logged: 0 }
    }

    /// From here on it goes to a log.
    pub fn keep_in(&mut self, log: &log::Shared, stream: Stream) {
        self.log = Some((Arc::clone(log), stream));
    }

    /// Queues bytes. The caller limits how many. A log has them at once, in the order in which they come on
    /// this and other streams.
    pub fn queue(&mut self, bytes: &[u8]) {
        match &self.log {
            Some((log, stream)) if self.queue.is_empty() => {
                log.lock().unpoisoned().add(*stream, bytes);
                self.logged += bytes.len();
            }
            _ => self.queue.extend(bytes),
        }
    }

    /// How many bytes wait.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.queue.len()
    }

    /// Whether any do.
    #[must_use]
    pub fn is_pending(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Whether the reader has gone; what is queued is then dropped.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Writes what goes without blocking; returns how many bytes are dealt with.
    pub fn give(&mut self) -> Result<usize, Error> {
        let mut given = std::mem::take(&mut self.logged);
        if let Some((log, stream)) = self.log.as_ref().filter(|_| !self.queue.is_empty()) {
            let bytes = self.queue.make_contiguous();
            log.lock().unpoisoned().add(*stream, bytes);
            given += bytes.len();
            self.queue.clear();
        }
        while self.is_pending() && !self.closed && self.is_ready() {
            let (front, _) = self.queue.as_slices();
            match rustix::io::write(&self.descriptor, &front[..front.len().min(PIECE_BYTES)]) {
                Ok(count) => {
                    self.queue.drain(..count);
                    given += count;
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                // EIO is a terminal that has gone.
                Err(Errno::PIPE | Errno::IO) => self.closed = true,
                Err(error) => return Err(Error::Output { name: self.name, error: error.into() }),
            }
        }
        if self.closed {
            given += std::mem::take(&mut self.queue).len();
        }
        Ok(given)
    }

    fn is_ready(&self) -> bool {
        look_at(&self.descriptor, PollFlags::OUT).is_ok_and(|ready| !ready.is_empty())
    }
}

impl AsFd for Output {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}
