//! Where the seed has what it opens, and how.

use std::os::fd::OwnedFd;

use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::Errno;
use rustix::pipe::fcntl_setpipe_size;

use super::plan::Plan;
use crate::error::Error;
use crate::limits::MAX_PIPE_BYTES;
use crate::state::Descriptor;

/// Flags of an open file that F_GETFL says and that openat(2) would take for something else.
const NOT_OPENED_WITH: i32 = libc::O_CREAT | libc::O_EXCL | libc::O_TRUNC | libc::O_CLOEXEC;
/// Where the descriptions are: the first at `base`, the others behind it, the objects behind these.
#[derive(Debug, Clone, Copy)]
pub(super) struct Opened {
    pub base: u64,
    pub count: u64,
    /// How many objects there are behind them.
    pub objects: u64,
}

impl Opened {
    /// The descriptor of a description.
    pub fn description(self, index: usize) -> u64 {
        self.base + index as u64
    }

    /// The descriptor of a slave of a terminal, by its place; these are behind the objects.
    pub fn terminal(self, place: usize) -> u64 {
        self.base + self.count + self.objects + place as u64
    }

    /// The descriptor of an object, which is behind the descriptions.
    pub fn object(self, index: usize) -> u64 {
        self.base + self.count + index as u64
    }
}

/// Flags to open a file with that has these.
pub(super) fn opened_with(flags: u32) -> u32 {
    flags & !NOT_OPENED_WITH.cast_unsigned()
}

/// Give a descriptor another number.
pub(super) fn move_to(plan: &mut Plan<'_>, low: u64, number: u64) {
    // It may be there already, where the lowest free number is that very one.
    if low != number {
        plan.must("place a file", libc::SYS_dup2, [low, number]);
        plan.must("place a file", libc::SYS_close, [low]);
    }
}

/// Make one that a process has just opened its descriptor.
pub(super) fn move_exactly(plan: &mut Plan<'_>, low: u64, descriptor: &Descriptor) {
    let number = u64::from(descriptor.number);
    if low == number {
        let flags = if descriptor.close_on_exec { libc::FD_CLOEXEC } else { 0 };
        let set = libc::F_SETFD.cast_unsigned().into();
        let arguments = [number, set, flags.cast_unsigned().into()];
        plan.must("take a descriptor", libc::SYS_fcntl, arguments);
        return;
    }
    let flags = if descriptor.close_on_exec { libc::O_CLOEXEC } else { 0 };
    let arguments = [low, number, flags.cast_unsigned().into()];
    plan.must("take a descriptor", libc::SYS_dup3, arguments);
    plan.must("take a descriptor", libc::SYS_close, [low]);
}

/// Put into a pipe what was in it.
pub(super) fn fill(write: OwnedFd, capacity: u64, content: &[u8]) -> Result<(), Error> {
    let io = |error: Errno| Error::io("make a pipe as it was")(error);
    let capacity = usize::try_from(capacity).unwrap_or(usize::MAX).min(MAX_PIPE_BYTES);
    if rustix::pipe::fcntl_getpipe_size(&write).map_err(io)? != capacity {
        fcntl_setpipe_size(&write, capacity).map_err(io)?;
    }
    fcntl_setfl(&write, OFlags::NONBLOCK).map_err(io)?;
    let mut rest = content;
    while !rest.is_empty() {
        let written = rustix::io::write(&write, rest).map_err(io)?;
        rest = rest.get(written..).unwrap_or_default();
    }
    fcntl_setfl(&write, OFlags::empty()).map_err(io)
}
