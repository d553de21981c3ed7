//! The tracker of newer kernels (Linux 6.7): the first write to a protected page is a fault that the kernel notes.
//!
//! The process makes a userfaultfd itself, because it must be its own; the tracer takes it, and the process has none
//! again before it goes on. It never waits for anybody: such a fault ends by itself.

use std::io;
use std::ops::Range;

use host::processes::WriteWatch;
use host::processes::identity::{descriptor_of, open_process};
use host::processes::pagemap::{Found, PageMap};

use super::watch::Watch;
use crate::borrow::borrow;
use crate::error::Error;

/// See [`Watch`].
#[derive(Debug)]
pub(super) struct Faults {
    watch: WriteWatch,
    is_over: bool,
}

impl Faults {
    /// Begin to watch a process that stands still; none where the host has or allows no such thing.
    pub fn begin(pid: u32) -> Result<Option<Self>, Error> {
        let process = open_process(pid).map_err(Error::io("open a process"))?;
        let taken = borrow(pid, |seat, area| {
            let mut script = area.script();
            script.call(libc::SYS_userfaultfd, [WriteWatch::FLAGS]);
            let made = seat.run(area, &script)?.results.first().copied();
            let Some(number) = made.and_then(|made| u32::try_from(made).ok()) else {
                return Ok(None);
            };
            let taken = descriptor_of(&process, number);
            let mut script = area.script();
            script.call(libc::SYS_close, [number.into()]);
            seat.run(area, &script)?;
            Ok(taken.ok())
        })?;
        let watch = taken.and_then(|descriptor| WriteWatch::new(descriptor).ok());
        Ok(watch.map(|watch| Self { watch, is_over: false }))
    }
}

impl Watch for Faults {
    fn protect(&mut self, map: &PageMap, ranges: &[Range<u64>]) -> io::Result<Vec<Range<u64>>> {
        let mut written = Vec::new();
        for range in ranges {
            match self.watch.add(range.clone()) {
                Ok(()) => written.extend(map.protect(range.clone())?),
                Err(error) => self.is_over |= error.raw_os_error() == Some(libc::ESRCH),
            }
        }
        Ok(written)
    }

    fn look(&self, map: &PageMap, range: Range<u64>) -> io::Result<Vec<Found>> {
        map.find_watched(range)
    }

    fn is_over(&self) -> bool {
        self.is_over
    }
}
