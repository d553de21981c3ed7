//! What a tracker can do.

use std::io;
use std::ops::Range;

use host::processes::pagemap::{Found, PageMap};

/// Who knows which pages of a process have been written.
pub(crate) trait Watch: std::fmt::Debug {
    /// Protect pages, while the process stands still; which of them have been written since that was done last. What
    /// cannot be protected is not told.
    fn protect(&mut self, map: &PageMap, ranges: &[Range<u64>]) -> io::Result<Vec<Range<u64>>>;

    /// The process's own pages in a range, and which of them may have been written since they were protected.
    fn look(&self, map: &PageMap, range: Range<u64>) -> io::Result<Vec<Found>>;

    /// The process has other memory than the one that is watched.
    fn is_over(&self) -> bool {
        false
    }
}
