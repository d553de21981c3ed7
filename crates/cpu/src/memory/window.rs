//! The host's side of the mirror: guest memory mapped where kernel addresses lead (place.rs says where that is).
//!
//! Nothing here knows what is mapped or why. What is mapped is memory of the guest, on which nothing relies; who
//! calls has made sure that the addresses are none of this process's.

use std::os::fd::AsRawFd;

use super::Linear;
use super::place::BASE;
use super::ram::populate;

/// Host address of a kernel address that has a place in the mirror.
fn host_of(at: Linear) -> *mut libc::c_void {
    at.0.wrapping_add(BASE) as *mut libc::c_void
}

/// The kernel address at a host address where translated code faulted.
pub(crate) fn linear_of(host: u64) -> Linear {
    Linear(host.wrapping_sub(BASE))
}

/// What the host may do with pages that can be read, or written as well.
pub(super) fn protection(writable: bool) -> i32 {
    if writable { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_READ }
}

/// Map so much of the guest memory's file, from `offset` on, where nothing is mapped; whether the host could.
pub(super) fn map(
    memory: &host::GuestMemory,
    at: Linear,
    length: u64,
    offset: u64,
    protection: i32,
) -> bool {
    let flags = libc::MAP_SHARED | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
    let file = memory.file().as_raw_fd();
    let host = host_of(at);
    // SAFETY: the range is below 2^47 and free (MAP_FIXED_NOREPLACE); it becomes an alias of
    // guest memory, in which nothing is relied upon.
    let got = unsafe { libc::mmap(host, length as usize, protection, flags, file, offset as i64) };
    if got != libc::MAP_FAILED && got != host {
        // A kernel without MAP_FIXED_NOREPLACE takes the address as a hint.
        // SAFETY: just mapped, and unknown to anybody.
        unsafe { libc::munmap(got, length as usize) };
    }
    got == host
}

/// Let pages of the mirror be read, or written as well.
pub(super) fn protect(at: Linear, length: u64, writable: bool) -> bool {
    change(at, length, protection(writable))
}

/// Let pages of the mirror not be accessed.
pub(super) fn close(at: Linear, length: u64) -> bool {
    change(at, length, libc::PROT_NONE)
}

fn change(at: Linear, length: u64, protection: i32) -> bool {
    // SAFETY: the range is part of the mirror, which only guest code uses.
    unsafe { libc::mprotect(host_of(at), length as usize, protection) == 0 }
}

/// Unmap pages of the mirror; whether the host could.
pub(super) fn unmap(at: Linear, length: u64) -> bool {
    // SAFETY: the range is part of the mirror, which only guest code uses.
    unsafe { libc::munmap(host_of(at), length as usize) == 0 }
}

/// Enter the chunk of so many bytes around `at` into the host's page tables.
pub(super) fn populate_around(at: Linear, bytes: u64, writable: bool) {
    populate(host_of(Linear(at.0 & !(bytes - 1))).cast(), bytes, writable);
}
