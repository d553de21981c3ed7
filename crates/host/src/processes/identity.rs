//! What two tasks share, and descriptors of other processes.

use std::cmp::Ordering;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

/// Something that tasks may share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shared {
    /// The address space.
    Memory = 1,
    /// The table of descriptors.
    Descriptors = 2,
    /// Root, working directory and umask.
    Directories = 3,
    /// Actions of signals.
    Actions = 4,
}

/// How the kernel orders two tasks' objects; equal if they are the same one.
///
/// # Errors
///
/// As kcmp(2).
pub fn compare(one: u32, other: u32, what: Shared) -> io::Result<Ordering> {
    kcmp(one, other, what as u64, 0, 0)
}

/// How the kernel orders two descriptors' open file descriptions; equal if they are the same one.
///
/// # Errors
///
/// As kcmp(2).
pub fn compare_files(one: (u32, u32), other: (u32, u32)) -> io::Result<Ordering> {
    kcmp(one.0, other.0, 0, one.1.into(), other.1.into())
}

/// How the kernel orders a descriptor's open file description and what an epoll set watches as `watched`; equal if they
/// are the same one. `set` is a task and its descriptor of the set.
///
/// # Errors
///
/// As kcmp(2); `ENOENT` if the set does not watch it.
pub fn compare_watched(file: (u32, u32), set: (u32, u32), watched: u32) -> io::Result<Ordering> {
    const WATCHED: u64 = 7;
    // `struct kcmp_epoll_slot`: the set, the number, and which of several with that number.
    let slot = [set.1, watched, 0];
    kcmp(file.0, set.0, WATCHED, file.1.into(), (&raw const slot).addr() as u64)
}

fn kcmp(one: u32, other: u32, what: u64, first: u64, second: u64) -> io::Result<Ordering> {
    // SAFETY: the kernel reads a slot that `second` names, if `what` has one: a local of the caller.
    let result = unsafe { libc::syscall(libc::SYS_kcmp, one, other, what, first, second) };
    match result {
        0 => Ok(Ordering::Equal),
        1 => Ok(Ordering::Less),
        2 => Ok(Ordering::Greater),
        3 => Err(io::ErrorKind::Unsupported.into()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A process, by a descriptor.
///
/// # Errors
///
/// As pidfd_open(2).
pub fn open_process(process: u32) -> io::Result<OwnedFd> {
    // SAFETY: the call has no pointers.
    descriptor(unsafe { libc::syscall(libc::SYS_pidfd_open, process, 0) })
}

/// A descriptor of ours for what `number` is in another process: the same open file description.
///
/// # Errors
///
/// As pidfd_getfd(2).
pub fn descriptor_of(process: &OwnedFd, number: u32) -> io::Result<OwnedFd> {
    use std::os::fd::AsRawFd;
    // SAFETY: the call has no pointers.
    let result = unsafe { libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), number, 0) };
    descriptor(result)
}

fn descriptor(result: i64) -> io::Result<OwnedFd> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    let number = RawFd::try_from(result).map_err(|_| io::ErrorKind::InvalidData)?;
    // SAFETY: the kernel has just made it for us.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Address and bytes of a task's list of robust futexes; address 0 if it has none.
///
/// # Errors
///
/// As get_robust_list(2).
pub fn robust_list(task: u32) -> io::Result<(u64, u64)> {
    let (mut head, mut bytes) = (0_u64, 0_u64);
    let call = libc::SYS_get_robust_list;
    // SAFETY: the kernel writes two locals.
    match unsafe { libc::syscall(call, task, &raw mut head, &raw mut bytes) } {
        0 => Ok((head, bytes)),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Soft and hard limit of a process for one resource (`RLIMIT_*`).
///
/// # Errors
///
/// As prlimit(2).
pub fn limit(process: u32, resource: u32) -> io::Result<(u64, u64)> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    let process = process.cast_signed();
    // SAFETY: the kernel writes a local; nothing is set.
    match unsafe { libc::prlimit(process, resource, std::ptr::null(), &raw mut limit) } {
        0 => Ok((limit.rlim_cur, limit.rlim_max)),
        _ => Err(io::Error::last_os_error()),
    }
}
