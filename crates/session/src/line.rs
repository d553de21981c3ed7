//! The host's end of a serial line: two pipes.
//!
//! They are pipes and not a socket because the guest sends byte by byte. A pipe coalesces the
//! bytes; a socket would keep a buffer for each.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;

/// One end of a line.
#[derive(Debug)]
pub struct Line {
    from: OwnedFd,
    to: OwnedFd,
}

impl Line {
    /// Both ends of a new line.
    pub fn pair() -> io::Result<(Line, Line)> {
        let (our_from, their_to) = io::pipe()?;
        let (their_from, our_to) = io::pipe()?;
        let ours = Line { from: our_from.into(), to: our_to.into() };
        let theirs = Line { from: their_from.into(), to: their_to.into() };
        Ok((ours, theirs))
    }

    /// A line over a stream that goes both ways: a socket.
    pub fn of(stream: impl Into<OwnedFd>) -> io::Result<Line> {
        let to = stream.into();
        Ok(Line { from: to.try_clone()?, to })
    }

    /// What the machine reads from and writes to.
    #[must_use]
    pub fn into_parts(self) -> (OwnedFd, File) {
        (self.from, File::from(self.to))
    }

    /// Lets neither end make us wait.
    pub fn set_nonblocking(&self) -> io::Result<()> {
        for end in [&self.from, &self.to] {
            fcntl_setfl(end, fcntl_getfl(end)? | OFlags::NONBLOCK)?;
        }
        Ok(())
    }

    /// What to poll for input.
    #[must_use]
    pub fn from(&self) -> BorrowedFd<'_> {
        self.from.as_fd()
    }

    /// What to poll for room.
    #[must_use]
    pub fn to(&self) -> BorrowedFd<'_> {
        self.to.as_fd()
    }

    /// Reads what there is: `None` when there is nothing now, 0 at the end.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match rustix::io::read(&self.from, buffer) {
            Ok(count) => Ok(Some(count)),
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(Errno::CONNRESET) => Ok(Some(0)),
            Err(error) => Err(error.into()),
        }
    }

    /// Writes from the front of `bytes` what there is room for; all of it, if the other end has
    /// gone.
    pub fn send(&self, bytes: &mut VecDeque<u8>) -> io::Result<()> {
        while !bytes.is_empty() {
            match rustix::io::write(&self.to, bytes.as_slices().0) {
                Ok(count) => drop(bytes.drain(..count)),
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(Errno::PIPE | Errno::CONNRESET) => bytes.clear(),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}
