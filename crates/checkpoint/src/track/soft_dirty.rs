//! The tracker of older kernels that have a bit for each page that was written (`CONFIG_MEM_SOFT_DIRTY`, as Debian's).
//!
//! The bits are the process's as a whole, and are there for anybody who may look into it: a process that clears its
//! own (/proc/PID/clear_refs) deceives itself. What was mapped since they were cleared has them set.

use std::io;
use std::ops::Range;

use host::processes::pagemap::{Found, PageMap, forget_writes, has_soft_dirty};

use super::watch::Watch;

/// See [`Watch`].
#[derive(Debug)]
pub(super) struct SoftDirty {
    pid: u32,
    /// Bits have been cleared by us. Somebody may have done so before.
    has_begun: bool,
}

impl SoftDirty {
    /// Begin to watch a process; none where the kernel has no such bits.
    pub fn begin(pid: u32) -> Option<Self> {
        has_soft_dirty().then_some(Self { pid, has_begun: false })
    }
}

impl Watch for SoftDirty {
    fn protect(&mut self, map: &PageMap, ranges: &[Range<u64>]) -> io::Result<Vec<Range<u64>>> {
        let mut written = Vec::new();
        for range in ranges {
            let found = map.find_soft_dirty(range.clone())?;
            let found = found.into_iter().filter(|found| found.is_written || !self.has_begun);
            written.extend(found.map(|found| found.range));
        }
        forget_writes(self.pid)?;
        self.has_begun = true;
        Ok(written)
    }

    fn look(&self, map: &PageMap, range: Range<u64>) -> io::Result<Vec<Found>> {
        map.find_soft_dirty(range)
    }
}
