//! Leaving namespaces for new ones (unshare(2)).

use rustix::io::Errno;
use rustix::thread::UnshareFlags;

/// Enters new namespaces of these kinds.
#[expect(unsafe_code, reason = "a system call that no safe crate has")]
pub fn unshare(flags: UnshareFlags) -> Result<(), Errno> {
    // SAFETY: it is not the table of descriptors that is unshared, and this process has one thread.
    unsafe { rustix::thread::unshare_unsafe(flags) }
}
