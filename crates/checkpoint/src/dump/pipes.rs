//! What is in a pipe, and whether it has another end.

use std::io::Read;
use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, tee};
use rustix::time::Timespec;

use crate::error::Error;

/// What is in a pipe that can hold so much, by an end of it to read from.
pub(super) fn copy(source: &OwnedFd, capacity: usize) -> Result<Vec<u8>, Error> {
    let mut content = Vec::new();
    let (read, write) = pipe_with(PipeFlags::CLOEXEC).map_err(Error::io("make a pipe"))?;
    fcntl_setpipe_size(&write, capacity).map_err(Error::io("make a pipe as large"))?;
    fcntl_setfl(&read, OFlags::NONBLOCK).map_err(Error::io("make a pipe"))?;
    match tee(source, &write, capacity, SpliceFlags::NONBLOCK) {
        Ok(_) | Err(Errno::AGAIN) => {}
        Err(error) => return Err(Error::io("copy what is in a pipe")(error)),
    }
    drop(write);
    std::fs::File::from(read).read_to_end(&mut content).map_err(Error::io("read a pipe"))?;
    Ok(content)
}

/// Whether an end of a pipe says that nobody has the other.
pub(super) fn has_ended(end: &OwnedFd) -> Result<bool, Error> {
    let mut polled = [PollFd::new(end, PollFlags::empty())];
    let polling = poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
    polling.map_err(Error::io("look at a pipe"))?;
    Ok(polled[0].revents().intersects(PollFlags::HUP | PollFlags::ERR))
}
