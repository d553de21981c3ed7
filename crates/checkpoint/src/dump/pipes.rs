//! What is in a pipe.

use std::io::Read;
use std::os::fd::OwnedFd;

use rustix::fs::{OFlags, fcntl_setfl};
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, tee};

use crate::error::Error;

/// What is in a pipe that can hold so much, by an end of it to read from.
pub(super) fn copy(source: &OwnedFd, capacity: usize) -> Result<Vec<u8>, Error> {
    let io = |what: &'static str| {
        move |error: rustix::io::Errno| Error::Io { what: what.to_owned(), source: error.into() }
    };
    let mut content = Vec::new();
    let (read, write) = pipe_with(PipeFlags::CLOEXEC).map_err(io("make a pipe"))?;
    fcntl_setpipe_size(&write, capacity).map_err(io("make a pipe as large"))?;
    fcntl_setfl(&read, OFlags::NONBLOCK).map_err(io("make a pipe"))?;
    match tee(source, &write, capacity, SpliceFlags::NONBLOCK) {
        Ok(_) | Err(rustix::io::Errno::AGAIN) => {}
        Err(error) => return Err(io("copy what is in a pipe")(error)),
    }
    drop(write);
    std::fs::File::from(read).read_to_end(&mut content).map_err(Error::io("read a pipe"))?;
    Ok(content)
}
