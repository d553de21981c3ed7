//! Descriptors that this process has inherited, and how many descriptors it may have.
//!
//! Many inherited descriptors were left open by mistake, and a guest that comes to own a process
//! has all of them. So each process marks them when it starts ([`mark`]), passes none on, and
//! closes them before there is a guest ([`close_marked`]).

use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::sync::Mutex;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use locks::Unpoisoned;

use crate::limits::MAX_LISTED_DESCRIPTORS;

/// Those that were taken.
static TAKEN: Mutex<Vec<RawFd>> = Mutex::new(Vec::new());

/// Take the descriptor with this number, which is one that this process was started with; it is closed in
/// what this process starts.
///
/// # Errors
///
/// There is none, it was taken before, or it is one of the standard streams.
pub fn take(number: RawFd) -> io::Result<OwnedFd> {
    let mut taken = TAKEN.lock().unpoisoned();
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

/// Those that nobody has asked for.
static MARKED: Mutex<Vec<RawFd>> = Mutex::new(Vec::new());

/// Mark what this process was started with, but for the standard streams and these: it is closed in what this
/// process starts, and here by [`close_marked`]. Until then it can be named as `/dev/fd/N`.
pub fn mark(kept: &[RawFd]) {
    let list = std::fs::read_dir("/proc/self/fd").map(|entries| {
        let names = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        names.collect::<Vec<RawFd>>()
    });
    let numbers = list.unwrap_or_else(|_| (0..MAX_LISTED_DESCRIPTORS).collect());
    let mut marked = MARKED.lock().unpoisoned();
    for number in numbers.into_iter().filter(|number| *number > 2 && !kept.contains(number)) {
        // SAFETY: the calls look at a number, and set a flag of a descriptor that is nobody's here: all that
        // this program opens by itself has it.
        unsafe {
            let flags = libc::fcntl(number, libc::F_GETFD);
            if flags != -1 && flags & libc::FD_CLOEXEC == 0 {
                libc::fcntl(number, libc::F_SETFD, flags | libc::FD_CLOEXEC);
                marked.push(number);
            }
        }
    }
}

/// Take one that was marked, such as a socket of a service manager's (sd_listen_fds(3)).
///
/// # Errors
///
/// It was not, or was taken or closed since.
pub fn take_marked(number: RawFd) -> io::Result<OwnedFd> {
    let mut marked = MARKED.lock().unpoisoned();
    let place = marked.iter().position(|marked| *marked == number);
    marked.swap_remove(place.ok_or(io::ErrorKind::InvalidInput)?);
    // SAFETY: it was inherited and is nobody's here: [`take`] takes none that is closed in what is started, and
    // [`close_marked`] none that is not in the list.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Close what was marked.
pub fn close_marked() {
    let mut marked = MARKED.lock().unpoisoned();
    for number in marked.drain(..) {
        // SAFETY: it was inherited and is nobody's here: [`take`] takes none that is closed in what is started,
        // and it has been open since, so that its number is no other's.
        unsafe { libc::close(number) };
    }
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

    /// [`mark`] marks the descriptors of other tests as well.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

    #[test]
    fn as_many_are_allowed_as_may_be() {
        let most = getrlimit(Resource::Nofile).maximum.unwrap_or(1 << 20);
        assert_eq!(raise_descriptor_limit() as u64, most);
    }

    #[test]
    fn what_is_marked_is_closed_and_what_is_kept_is_not() {
        let _alone = ONE_AT_A_TIME.lock().unpoisoned();
        let inherited = || {
            let file = std::fs::File::open("/dev/null").unwrap();
            rustix::io::fcntl_setfd(&file, rustix::io::FdFlags::empty()).unwrap();
            file.into_raw_fd()
        };
        let (marked, kept) = (inherited(), inherited());
        // SAFETY: the call looks at a number.
        let is_open = |number| unsafe { libc::fcntl(number, libc::F_GETFD) } != -1;
        let ours = std::fs::File::open("/dev/null").unwrap();
        mark(&[kept]);
        assert!(take(marked).is_err(), "it is not for this process");
        assert!(is_open(marked), "it can be named until the guest runs");
        let wanted = inherited();
        mark(&[kept]);
        let taken = take_marked(wanted).unwrap();
        assert!(take_marked(wanted).is_err(), "it was taken before");
        close_marked();
        assert!(is_open(wanted), "it is not closed: somebody has taken it");
        drop(taken);
        assert!(!is_open(wanted) && take_marked(marked).is_err(), "both are closed");
        assert!(!is_open(marked) && is_open(kept));
        assert!(ours.metadata().is_ok(), "what this process has opened stays");
        drop(take(kept).unwrap());
    }

    #[test]
    fn what_is_open_is_taken_once() {
        let _alone = ONE_AT_A_TIME.lock().unpoisoned();
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
