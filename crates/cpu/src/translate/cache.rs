//! The code cache: host memory that holds blocks and stubs. It only grows; when it is full it is
//! dropped whole. Code is executed in one view of it and written in another (views.rs): all addresses
//! here are those of the executable one.

use super::views::{Changes, LARGE_BYTES, Views};
use crate::vcpu::Error;

/// Bytes of address space for translated code. A compiler has some 50 MiB in use, and a cache that is
/// dropped again and again is the slowest there is.
pub(crate) const CACHE_BYTES: usize = 256 << 20;

/// Executable memory that is filled from the start.
pub(crate) struct CodeCache {
    views: Views,
    bytes: usize,
    used: usize,
    /// Up to here the host has been asked for large pages.
    large: usize,
    changes: Changes,
}

impl CodeCache {
    /// Reserve `bytes` of address space, a multiple of the page size; pages are taken as they are
    /// written, large ones where the host has them: translated code is several times as long as what
    /// it is made from, and a processor has few entries for pages of code.
    ///
    /// # Errors
    ///
    /// [`Error::Host`] when the kernel does not allow files in memory to be executed.
    pub(crate) fn new(bytes: usize) -> Result<Self, Error> {
        let views = Views::map(bytes)?;
        Ok(Self { views, bytes, used: 0, large: 0, changes: Changes::default() })
    }

    /// Address of the first byte.
    pub(crate) fn start(&self) -> u64 {
        self.views.start()
    }

    /// Address after the last byte of the reservation.
    pub(crate) fn end(&self) -> u64 {
        self.start() + self.bytes as u64
    }

    /// Both.
    pub(crate) fn bounds(&self) -> (u64, u64) {
        (self.start(), self.end())
    }

    /// Where it is executed and where it is written.
    pub(crate) fn views(&self) -> Views {
        self.views
    }

    /// How often it was written.
    pub(crate) fn changes(&self) -> Changes {
        self.changes.clone()
    }

    /// Where the next piece of code will be put.
    pub(crate) fn next(&self) -> u64 {
        self.start() + self.used as u64
    }

    /// Bytes in use.
    pub(crate) fn used(&self) -> usize {
        self.used
    }

    /// Whether `bytes` more fit.
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        self.used + bytes + 64 <= self.bytes
    }

    /// Append code; the caller has asked [`Self::has_room`].
    pub(crate) fn append(&mut self, code: &[u8]) -> u64 {
        assert!(self.has_room(code.len()), "the code cache was overrun");
        let at = self.next();
        let end = self.used + code.len();
        while self.large < end && self.large + LARGE_BYTES <= self.bytes {
            self.views.make_large(self.large);
            self.large += LARGE_BYTES;
        }
        // SAFETY: the range is inside the mapping (asserted) and not executed by anybody yet.
        unsafe {
            let place = self.views.writable(at) as *mut u8;
            std::ptr::copy_nonoverlapping(code.as_ptr(), place, code.len());
        }
        self.changes.note();
        self.used = (end + 15) & !15;
        at
    }

    /// Let the jump whose displacement is at `at` lead elsewhere.
    pub(crate) fn patch(&mut self, at: u64, displacement: i32) {
        assert!(at >= self.start() && at + 4 <= self.next(), "patch outside the code cache");
        // SAFETY: the place is a displacement in the code cache (asserted).
        unsafe { self.views.patch_displacement(at, displacement) };
        self.changes.note();
    }

    /// Three bytes of code, all of which must have been written.
    pub(crate) fn code_at(&self, at: u64) -> Option<[u8; 3]> {
        let inside = at >= self.start() && at.checked_add(3)? <= self.next();
        // SAFETY: code that has been written lies there, and nobody else writes to it under the
        // translator's lock but the signal handlers, whose gates are not in the way of a value that
        // is only looked at.
        inside.then(|| unsafe { (self.views.writable(at) as *const [u8; 3]).read_unaligned() })
    }

    /// Drop everything.
    pub(crate) fn clear(&mut self) {
        self.used = 0;
    }
}

impl Drop for CodeCache {
    fn drop(&mut self) {
        // Nobody runs code in it any more.
        self.views.unmap(self.bytes);
    }
}
