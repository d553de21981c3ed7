//! Seccomp notifications: how a thread of a helper waits in the kernel for the domain (seccomp_unotify(2)).

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::stub::NOTIFY_SEND;

/// `SECCOMP_IOCTL_NOTIF_RECV`.
const NOTIFY_RECEIVE: libc::c_ulong = 0xc050_2100;
/// `SECCOMP_IOCTL_NOTIF_SET_FLAGS` and `SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP`: hand the core over with
/// the answer instead of waking another one (Linux 6.6; it is slower without).
const NOTIFY_SET_FLAGS: libc::c_ulong = 0x4008_2104;
const SYNC_WAKE_UP: libc::c_ulong = 1;

/// The kernel's `struct seccomp_notif`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Notification {
    /// To be given back in the answer.
    pub id: u64,
    /// The thread's number, in the domain's PID namespace.
    pub process: u32,
    flags: u32,
    number: u32,
    arch: u32,
    instruction: u64,
    /// The arguments of the held call.
    pub arguments: [u64; 6],
}

/// The kernel's `struct seccomp_notif_resp`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Answer {
    /// Which notification.
    pub id: u64,
    /// What the held call returns.
    pub value: i64,
    /// Or the error that it returns.
    pub error: i32,
    /// Unused.
    pub flags: u32,
}

/// The receiving end of one thread's notifications.
#[derive(Debug)]
pub(crate) struct Listener(pub OwnedFd);

impl Listener {
    /// Prefer handing the core over.
    pub(crate) fn prefer_hand_over(&self) {
        // SAFETY: touches no memory. An old kernel refuses it, which only costs time.
        unsafe { libc::ioctl(self.0.as_raw_fd(), NOTIFY_SET_FLAGS, SYNC_WAKE_UP) };
    }

    /// Wait until the thread stops. EINTR when a signal comes, ENOENT when the thread is gone.
    pub(crate) fn receive(&self) -> io::Result<Notification> {
        if !death_ends_receiving() {
            poll_once(self.0.as_raw_fd(), None)?;
        }
        let mut notification = Notification::default();
        let place = &raw mut notification;
        // SAFETY: the structure is the kernel's, all zero, and ours to write.
        if unsafe { libc::ioctl(self.0.as_raw_fd(), NOTIFY_RECEIVE, place) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(notification)
    }

    /// Wait until there is something to receive. ENOENT when there never will be.
    pub(crate) fn wait(&self, limit: Option<Duration>) -> io::Result<()> {
        poll(self.0.as_raw_fd(), limit)
    }

    /// Whether no thread is left that could stop.
    pub(crate) fn is_deserted(&self) -> bool {
        let now = self.wait(Some(Duration::ZERO));
        now.is_err_and(|error| error.raw_os_error() == Some(libc::ENOENT))
    }

    /// Let the held call return `value`.
    pub(crate) fn answer(&self, id: u64, value: i64) -> io::Result<()> {
        let answer = Answer { id, value, ..Answer::default() };
        let request = NOTIFY_SEND as libc::c_ulong;
        // SAFETY: the structure is the kernel's, which only reads it.
        if unsafe { libc::ioctl(self.0.as_raw_fd(), request, &raw const answer) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }
}

/// Wait until there is something to read, whatever signals come meanwhile. ENOENT when there never
/// will be.
pub(crate) fn poll(descriptor: i32, limit: Option<Duration>) -> io::Result<()> {
    let deadline = limit.map(|limit| Instant::now() + limit);
    loop {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        match poll_once(descriptor, left) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// The same; EINTR when a signal comes.
fn poll_once(descriptor: i32, limit: Option<Duration>) -> io::Result<()> {
    let limit = limit.map_or(-1, |limit| i32::try_from(limit.as_millis()).unwrap_or(i32::MAX));
    let mut poll = libc::pollfd { fd: descriptor, events: libc::POLLIN, revents: 0 };
    // SAFETY: one structure, ours.
    match unsafe { libc::poll(&raw mut poll, 1, limit) } {
        0 => Err(io::ErrorKind::TimedOut.into()),
        1 if poll.revents & libc::POLLIN != 0 => Ok(()),
        1 => Err(io::Error::from_raw_os_error(libc::ENOENT)),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Whether a blocked `NOTIFY_RECEIVE` ends when the thread dies: since Linux 6.11.
pub(crate) fn death_ends_receiving() -> bool {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    *ANSWER.get_or_init(|| {
        // SAFETY: the structure is made of characters, and uname fills it.
        let mut name: libc::utsname = unsafe { std::mem::zeroed() };
        // SAFETY: as above.
        unsafe { libc::uname(&raw mut name) };
        let release = name.release.iter().map(|&byte| byte.cast_unsigned() as char);
        version(&release.collect::<String>()) >= (6, 11)
    })
}

fn version(release: &str) -> (u32, u32) {
    let mut numbers = release.split(|character: char| !character.is_ascii_digit());
    let mut next = || numbers.next().and_then(|number| number.parse().ok()).unwrap_or(0);
    (next(), next())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_compared_as_numbers() {
        assert_eq!(version("6.1.0-28-cloud-amd64"), (6, 1));
        assert!(version("6.18.44-fc-v657") >= (6, 11));
        assert!(version("5.19") < (6, 11));
        assert_eq!(version("strange"), (0, 0));
    }
}
