//! Memory of a process whose pages can be protected until they are written.
//!
//! A userfaultfd(2) that the process itself has made, and that nobody ever reads: faults of protected pages end the
//! protection at once, in the kernel (`UFFD_FEATURE_WP_ASYNC`, Linux 6.7). Which pages are protected says
//! [`PageMap`](super::pagemap::PageMap). Children inherit nothing of it, and mappings that are made later or moved are
//! not watched. When this is dropped, nothing is protected any more.

use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};

/// `UFFD_API`.
const VERSION: u64 = 0xaa;
/// `UFFD_FEATURE_PAGEFAULT_FLAG_WP`, `UFFD_FEATURE_WP_UNPOPULATED` (a scan protects only where that is on) and
/// `UFFD_FEATURE_WP_ASYNC`.
const FEATURES: u64 = 1 | 1 << 13 | 1 << 15;
/// `UFFDIO_API`: `_IOWR(0xaa, 0x3f, struct uffdio_api)`.
const BEGIN: libc::Ioctl = 0xc018_aa3f;
/// `UFFDIO_REGISTER`: `_IOWR(0xaa, 0, struct uffdio_register)`.
const REGISTER: libc::Ioctl = 0xc020_aa00;
/// `UFFDIO_REGISTER_MODE_WP`.
const FOR_WRITES: u64 = 1 << 1;

/// The kernel's `struct uffdio_api` (linux/userfaultfd.h).
#[repr(C)]
struct Api {
    api: u64,
    features: u64,
    ioctls: u64,
}

/// The kernel's `struct uffdio_register`.
#[repr(C)]
struct Register {
    start: u64,
    length: u64,
    mode: u64,
    ioctls: u64,
}

/// A userfaultfd.
#[derive(Debug)]
pub struct WriteWatch(OwnedFd);

impl WriteWatch {
    /// With which flags userfaultfd(2) must be called: `O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY`, which needs no
    /// privilege. Faults of the kernel end the protection all the same.
    pub const FLAGS: u64 = 0o2_000_000 | 0o4_000 | 1;

    /// Of a userfaultfd of the process that is to be watched.
    ///
    /// # Errors
    ///
    /// Where the kernel cannot do so.
    pub fn new(descriptor: OwnedFd) -> io::Result<Self> {
        let mut api = Api { api: VERSION, features: FEATURES, ioctls: 0 };
        // SAFETY: the kernel reads and writes the structure, a local.
        match unsafe { libc::ioctl(descriptor.as_raw_fd(), BEGIN, &raw mut api) } {
            0 => Ok(Self(descriptor)),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Watch what is mapped at these addresses, which is private memory without a file.
    ///
    /// # Errors
    ///
    /// Where that cannot be watched, or is by another.
    pub fn add(&self, range: Range<u64>) -> io::Result<()> {
        let length = range.end.saturating_sub(range.start);
        let mut register = Register { start: range.start, length, mode: FOR_WRITES, ioctls: 0 };
        // SAFETY: the kernel reads and writes the structure, a local. What it protects is another process's memory, or
        // nothing until a scan does.
        match unsafe { libc::ioctl(self.0.as_raw_fd(), REGISTER, &raw mut register) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}
