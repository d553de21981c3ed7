//! Descriptors: those that whoever started this process has left open for it, and how many there may be.
//!
//! Rust's library opens `/dev/null` for standard streams that are closed when a process starts, so that no other
//! file gets their numbers. What is written there then seems to be written, although whoever closed the stream
//! (`>&-` in a shell) wants to be told that it cannot be. So it is looked before the library does that.

use std::fs::File;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU8, Ordering};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Which of the standard streams were closed when this process was started: a bit for each.
static CLOSED: AtomicU8 = AtomicU8::new(0);

/// What the C library calls before `main`, and so before Rust's library opens anything (the System V ABI's
/// "Initialization and Termination Functions").
#[used]
// SAFETY: the section is an array of pointers to functions without arguments, which this is.
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;

extern "C" fn look() {
    for number in 0..3 {
        // SAFETY: the call looks at a number.
        if unsafe { libc::fcntl(number, libc::F_GETFD) } == -1 {
            CLOSED.fetch_or(1 << number, Ordering::Relaxed);
        }
    }
}

/// Makes the standard streams that this process was started without fail as closed ones do (EBADF), also in
/// what it starts: each is a file that is open for the other direction.
///
/// # Errors
///
/// The host's.
pub fn keep_closed() -> io::Result<()> {
    let closed = CLOSED.load(Ordering::Relaxed);
    let nothing =
        |writable: bool| File::options().read(!writable).write(writable).open("/dev/null");
    if closed & 1 != 0 {
        rustix::stdio::dup2_stdin(nothing(true)?)?;
    }
    if closed & 2 != 0 {
        rustix::stdio::dup2_stdout(nothing(false)?)?;
    }
    if closed & 4 != 0 {
        rustix::stdio::dup2_stderr(nothing(false)?)?;
    }
    Ok(())
}

/// Those that were taken.
static TAKEN: Mutex<Vec<RawFd>> = Mutex::new(Vec::new());

/// Take the descriptor with this number, which is one that this process was started with; it is closed in
/// what this process starts.
///
/// # Errors
///
/// There is none, it was taken before, or it is one of the standard streams.
pub fn take(number: RawFd) -> io::Result<OwnedFd> {
    let mut taken = TAKEN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    // One that is closed in what is started is not inherited: it is somebody's here.
    // SAFETY: the call looks at a number.
    let flags = unsafe { libc::fcntl(number, libc::F_GETFD) };
    if flags == -1 {
        return Err(io::Error::last_os_error());
    }
    if number <= 2 || taken.contains(&number) || flags & libc::FD_CLOEXEC != 0 {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    taken.push(number);
    // SAFETY: the descriptor is open. All that this program opens by itself is closed in what it
    // starts, so that this one was inherited; it was not taken before. So nobody else owns it.
    let owned = unsafe { OwnedFd::from_raw_fd(number) };
    rustix::io::fcntl_setfd(&owned, rustix::io::FdFlags::CLOEXEC)?;
    Ok(owned)
}

/// Allow this process as many descriptors as it may have; how many that are.
pub fn raise_descriptor_limit() -> usize {
    let limit = getrlimit(Resource::Nofile);
    // What is refused leaves what there was.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    let now = getrlimit(Resource::Nofile).current;
    // Without a limit, the kernel has one of its own (fs.nr_open).
    now.map_or(1 << 20, |now| usize::try_from(now).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::IntoRawFd;

    #[test]
    fn as_many_are_allowed_as_may_be() {
        let most = getrlimit(Resource::Nofile).maximum.unwrap_or(1 << 20);
        assert_eq!(raise_descriptor_limit() as u64, most);
    }

    #[test]
    fn what_is_open_is_taken_once() {
        let file = std::fs::File::open("/dev/null").unwrap();
        rustix::io::fcntl_setfd(&file, rustix::io::FdFlags::empty()).unwrap();
        let number = file.into_raw_fd();
        let taken = take(number).unwrap();
        assert!(take(number).is_err(), "it was taken before");
        drop(taken);
        assert!(take(0).is_err() && take(-1).is_err());
        let ours = std::fs::File::open("/dev/null").unwrap();
        assert!(take(std::os::fd::AsRawFd::as_raw_fd(&ours)).is_err(), "it is ours");
    }
}
