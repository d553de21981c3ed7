//! The code cache: host memory that holds blocks and stubs. It only grows; when it is full it is
//! dropped whole.

use std::io;

use crate::vcpu::Error;

/// Bytes of address space for translated code.
pub(crate) const CACHE_BYTES: usize = 64 << 20;

/// An executable mapping that is filled from the start.
pub(crate) struct CodeCache {
    start: *mut u8,
    used: usize,
}

// SAFETY: the mapping is owned by the cache and moves with it.
unsafe impl Send for CodeCache {}

impl CodeCache {
    /// Reserve the address space; pages are taken as they are written.
    ///
    /// # Errors
    ///
    /// [`Error::Host`] when the kernel does not allow memory that is writable and executable.
    pub(crate) fn new() -> Result<Self, Error> {
        // SAFETY: a fresh anonymous mapping.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                CACHE_BYTES,
                libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            let source = io::Error::last_os_error();
            return Err(Error::Host { action: "map writable and executable memory", source });
        }
        Ok(Self { start: start.cast(), used: 0 })
    }

    /// Address of the first byte.
    pub(crate) fn start(&self) -> u64 {
        self.start as u64
    }

    /// Address after the last byte of the reservation.
    pub(crate) fn end(&self) -> u64 {
        self.start as u64 + CACHE_BYTES as u64
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
        self.used + bytes + 64 <= CACHE_BYTES
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

    /// Overwrite four bytes of code in place: the displacement of a jump.
    pub(crate) fn patch(&mut self, at: u64, displacement: i32) {
        self.patch_bytes(at, &displacement.to_le_bytes());
    }

    /// Overwrite a few bytes of code in place.
    pub(crate) fn patch_bytes(&mut self, at: u64, bytes: &[u8]) {
        let last = at + bytes.len() as u64;
        assert!(at >= self.start() && last <= self.next(), "patch outside the code cache");
        // SAFETY: the range is inside the mapping (asserted).
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), at as *mut u8, bytes.len()) }
    }

    /// Drop everything.
    pub(crate) fn clear(&mut self) {
        self.used = 0;
    }
}

impl Drop for CodeCache {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nobody runs code in it any more.
        unsafe { libc::munmap(self.start.cast(), CACHE_BYTES) };
    }
}
