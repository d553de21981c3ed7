//! The code cache: host memory that holds blocks and stubs. It only grows; when it is full it is
//! dropped whole.

use std::io;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use crate::vcpu::Error;

/// Bytes of address space for translated code. A compiler has some 50 MiB in use, and a cache that is
/// dropped again and again is the slowest there is.
pub(crate) const CACHE_BYTES: usize = 256 << 20;

/// A large page.
const LARGE_BYTES: usize = 2 << 20;

/// An executable mapping that is filled from the start.
pub(crate) struct CodeCache {
    start: *mut u8,
    bytes: usize,
    used: usize,
}

// SAFETY: the mapping is owned by the cache and moves with it.
unsafe impl Send for CodeCache {}

impl CodeCache {
    /// Reserve `bytes` of address space, a multiple of [`LARGE_BYTES`]; pages are taken as they are
    /// written, large ones where the host has them: translated code is several times as long as what
    /// it is made from, and a processor has few entries for pages of code.
    ///
    /// # Errors
    ///
    /// [`Error::Host`] when the kernel does not allow memory that is writable and executable.
    pub(crate) fn new(bytes: usize) -> Result<Self, Error> {
        // SAFETY: a fresh anonymous mapping.
        let whole = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes + LARGE_BYTES,
                libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if whole == libc::MAP_FAILED {
            let source = io::Error::last_os_error();
            return Err(Error::Host { action: "map writable and executable memory", source });
        }
        let before = whole.cast::<u8>().align_offset(LARGE_BYTES);
        let start = whole.wrapping_byte_add(before);
        // SAFETY: what is beside the aligned part belongs to the new mapping, and nobody uses it. A
        // host without large pages refuses the advice, which does no harm.
        unsafe {
            if before != 0 {
                libc::munmap(whole, before);
            }
            libc::munmap(start.wrapping_byte_add(bytes), LARGE_BYTES - before);
            libc::madvise(start, bytes, libc::MADV_HUGEPAGE);
        }
        Ok(Self { start: start.cast(), bytes, used: 0 })
    }

    /// Address of the first byte.
    pub(crate) fn start(&self) -> u64 {
        self.start as u64
    }

    /// Address after the last byte of the reservation.
    pub(crate) fn end(&self) -> u64 {
        self.start as u64 + self.bytes as u64
    }

    /// Both.
    pub(crate) fn bounds(&self) -> (u64, u64) {
        (self.start(), self.end())
    }

    /// Where the next piece of code will be put.
    pub(crate) fn next(&self) -> u64 {
        self.start as u64 + self.used as u64
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
        // SAFETY: the range is inside the mapping (asserted) and not executed by anybody yet.
        unsafe {
            std::ptr::copy_nonoverlapping(code.as_ptr(), at as *mut u8, code.len());
        }
        self.used = (self.used + code.len() + 15) & !15;
        at
    }

    /// Let the jump whose displacement is at `at` lead elsewhere.
    pub(crate) fn patch(&mut self, at: u64, displacement: i32) {
        assert!(at >= self.start() && at + 4 <= self.next(), "patch outside the code cache");
        // SAFETY: the place is a displacement in the code cache (asserted).
        unsafe { patch_displacement(at, displacement) };
    }

    /// Three bytes of code, all of which must have been written.
    pub(crate) fn code_at(&self, at: u64) -> Option<[u8; 3]> {
        let inside = at >= self.start() && at.checked_add(3)? <= self.next();
        // SAFETY: code that has been written lies there, and nobody else writes to it under the
        // translator's lock but the signal handlers, whose gates are not in the way of a value that
        // is only looked at.
        inside.then(|| unsafe { (at as *const [u8; 3]).read_unaligned() })
    }

    /// Drop everything.
    pub(crate) fn clear(&mut self) {
        self.used = 0;
    }
}

/// Overwrite the displacement of a jump that a processor may be executing. It is aligned, so that
/// every processor fetches either the old one or the new one.
///
/// # Safety
///
/// `at` must be the four-byte aligned displacement of a jump in a code cache.
pub(super) unsafe fn patch_displacement(at: u64, displacement: i32) {
    debug_assert!(at.is_multiple_of(4), "displacement at {at:#x} is not aligned");
    // SAFETY: the caller vouches for the place; the mapping is writable.
    unsafe { (*(at as *const AtomicI32)).store(displacement, Ordering::SeqCst) };
}

/// Overwrite a five-byte instruction that a processor may be executing. It lies in one aligned
/// word, so that every processor fetches either the old one or the new one.
///
/// # Safety
///
/// `at` must be a five-byte instruction in a code cache that does not cross a multiple of eight.
pub(super) unsafe fn patch_five(at: u64, bytes: [u8; 5]) {
    let shift = at % 8 * 8;
    debug_assert!(shift <= 24, "instruction at {at:#x} crosses a word");
    let mut new = [0; 8];
    new[..5].copy_from_slice(&bytes);
    let (new, mask) = (u64::from_le_bytes(new) << shift, 0xff_ffff_ffff << shift);
    // SAFETY: the caller vouches for the place; the mapping is writable.
    let word = unsafe { &*((at & !7) as *const AtomicU64) };
    let mut old = word.load(Ordering::SeqCst);
    while let Err(now) =
        word.compare_exchange(old, old & !mask | new, Ordering::SeqCst, Ordering::SeqCst)
    {
        old = now;
    }
}

impl Drop for CodeCache {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nobody runs code in it any more.
        unsafe { libc::munmap(self.start.cast(), self.bytes) };
    }
}
