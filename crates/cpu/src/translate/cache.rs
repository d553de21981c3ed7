//! The code cache: host memory that holds translated code. It only grows; when it is full it is
//! dropped whole. Code is executed in one view of it and written in another (views.rs): all addresses
//! here are those of the executable one.
//!
//! It has two parts, as DynamoRIO's may (`-separate_private_stubs`): the *bodies* of blocks, which are
//! executed, and their *exit stubs*, which as a rule are not: ways out to Rust, entries for neighbours
//! with other scratch registers, what a miss does. A busy guest executes several hundred KiB of
//! translated code, more than a processor's first cache of instructions has by far, and half of what
//! lies beside a block that is executed would otherwise be exit stubs.

use super::host_code::HostCode;
use super::views::{Changes, LARGE_BYTES, Patch, Views};
use crate::config::Error;

/// Bytes of address space for translated code. A compiler has some 50 MiB in use, and a cache that is
/// dropped again and again is the slowest there is.
pub(crate) const CACHE_BYTES: usize = 256 << 20;

/// How much of that is for exit stubs.
pub(crate) const EXIT_STUB_BYTES: usize = 112 << 20;

/// Pieces of code begin at multiples of this.
const ALIGNMENT: usize = 8;

/// Which part of the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// What is executed.
    Bodies,
    /// Ways into blocks and out of them that are seldom taken.
    ExitStubs,
}

/// A part: offsets in the cache.
#[derive(Debug)]
struct Area {
    start: usize,
    end: usize,
    used: usize,
    /// Up to here the host has been asked for large pages.
    large: usize,
}

impl Area {
    fn new(start: usize, end: usize) -> Self {
        Self { start, end, used: start, large: start }
    }

    fn has_room(&self, bytes: usize) -> bool {
        self.start == self.end || self.used + bytes + 64 <= self.end
    }
}

/// Executable memory, of which each part is filled from its start.
pub(crate) struct CodeCache {
    views: Views,
    bytes: usize,
    areas: [Area; 2],
    changes: Changes,
}

impl CodeCache {
    /// Reserve `bytes` of address space, the last `exit_stubs` of them for exit stubs, both multiples of the
    /// page size; pages are taken as they are written, large ones where the host has them: translated
    /// code is several times as long as what it is made from, and a processor has few entries for pages
    /// of code.
    ///
    /// # Errors
    ///
    /// [`Error::Host`] when the kernel does not allow files in memory to be executed.
    pub(crate) fn new(bytes: usize, exit_stubs: usize) -> Result<Self, Error> {
        let views = Views::map(bytes)?;
        let areas = [Area::new(0, bytes - exit_stubs), Area::new(bytes - exit_stubs, bytes)];
        Ok(Self { views, bytes, areas, changes: Changes::default() })
    }

    /// Address of the first byte.
    pub(crate) fn start(&self) -> HostCode {
        self.views.start()
    }

    /// Address after the last byte of the reservation.
    pub(crate) fn end(&self) -> HostCode {
        self.start() + self.bytes as u64
    }

    /// Both.
    pub(crate) fn bounds(&self) -> (HostCode, HostCode) {
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
    pub(crate) fn next(&self, part: Part) -> HostCode {
        self.start() + self.areas[part as usize].used as u64
    }

    /// Bytes in use, of both parts.
    pub(crate) fn used(&self) -> usize {
        self.areas.iter().map(|area| area.used - area.start).sum()
    }

    /// Whether `bytes` more fit into either part.
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        self.areas.iter().all(|area| area.has_room(bytes))
    }

    /// Append code; the caller has asked [`Self::has_room`].
    pub(crate) fn append(&mut self, part: Part, code: &[u8]) -> HostCode {
        let at = self.next(part);
        let area = &mut self.areas[part as usize];
        let end = area.used + code.len();
        assert!(end <= area.end, "the code cache was overrun");
        while area.large < end && area.large + LARGE_BYTES <= area.end {
            self.views.make_large(area.large);
            area.large += LARGE_BYTES;
        }
        // SAFETY: the range is inside the mapping (asserted) and executed by no vCPU yet.
        unsafe {
            let place = self.views.writable(at);
            std::ptr::copy_nonoverlapping(code.as_ptr(), place, code.len());
        }
        self.changes.note();
        area.used = end.next_multiple_of(ALIGNMENT);
        at
    }

    /// Whether code has been written in all of so many bytes.
    fn is_written(&self, at: HostCode, bytes: usize) -> bool {
        let Some(offset) = at.offset_from(self.start()) else { return false };
        let offset = offset as usize;
        let inside = |area: &Area| offset >= area.start && offset + bytes <= area.used;
        self.areas.iter().any(inside)
    }

    /// Let the jump whose displacement is at `at` lead elsewhere.
    pub(crate) fn patch(&mut self, at: HostCode, displacement: i32) {
        assert!(self.is_written(at, 4), "patch outside the code cache");
        // SAFETY: the place is a displacement in the code cache (asserted).
        unsafe { self.views.patch(at, Patch::Displacement(displacement)) };
        self.changes.note();
    }

    /// Three bytes of code, all of which must have been written.
    pub(crate) fn code_at(&self, at: HostCode) -> Option<[u8; 3]> {
        let inside = self.is_written(at, 3);
        // SAFETY: code that has been written lies there, and no other thread writes to it under the
        // translator's lock but the signal handlers, whose slots are not in the way of a value that
        // is only looked at.
        inside.then(|| unsafe { self.views.writable(at).cast::<[u8; 3]>().read_unaligned() })
    }

    /// Drop everything.
    pub(crate) fn clear(&mut self) {
        self.areas.iter_mut().for_each(|area| area.used = area.start);
    }
}

impl Drop for CodeCache {
    fn drop(&mut self) {
        // No vCPU runs code in it any more.
        self.views.unmap(self.bytes);
    }
}
