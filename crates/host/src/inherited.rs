//! Descriptors: those that whoever started this process has left open for it, and how many there may be.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::sync::Mutex;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

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
