//! POSIX message queues (mq_overview(7)), by descriptors of them that do not block.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr;

/// What a queue may hold, and holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attributes {
    /// The most messages at once.
    pub max_messages: u64,
    /// The most bytes of one.
    pub message_bytes: u64,
    /// Messages that wait.
    pub messages: u64,
}

/// `struct mq_attr`: flags, the most messages, the most bytes of one, messages that wait; the rest is reserved.
type Raw = [i64; 8];

/// A queue's attributes.
///
/// # Errors
///
/// `EBADF`: it is no queue.
pub fn attributes(queue: impl AsFd) -> io::Result<Attributes> {
    let mut raw: Raw = [0; 8];
    let (queue, none) = (queue.as_fd().as_raw_fd(), ptr::null::<Raw>());
    // SAFETY: the kernel writes a local of that size; nothing is set.
    let result = unsafe { libc::syscall(libc::SYS_mq_getsetattr, queue, none, &raw mut raw) };
    match result {
        0 => Ok(Attributes {
            max_messages: raw[1].cast_unsigned(),
            message_bytes: raw[2].cast_unsigned(),
            messages: raw[3].cast_unsigned(),
        }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Take the first message, which has to fit: its bytes, and its priority. None if none waits.
///
/// # Errors
///
/// `EBADF`: it is no queue that may be read. `EMSGSIZE`: there is room for less than the longest message.
pub fn receive(queue: impl AsFd, room: &mut [u8]) -> io::Result<Option<(usize, u32)>> {
    let (queue, mut priority) = (queue.as_fd().as_raw_fd(), 0_u32);
    let (start, bytes, none) = (room.as_mut_ptr(), room.len(), ptr::null::<libc::timespec>());
    let call = libc::SYS_mq_timedreceive;
    // SAFETY: the kernel writes at most so many bytes of the caller's, and a local.
    let result = unsafe { libc::syscall(call, queue, start, bytes, &raw mut priority, none) };
    match usize::try_from(result) {
        Ok(count) => Ok(Some((count, priority))),
        Err(_) => match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            error => Err(error),
        },
    }
}

/// Send a message with a priority.
///
/// # Errors
///
/// `EAGAIN`: the queue is full. `EBADF`: it is no queue that may be written to. `EMSGSIZE`: it takes no message that is
/// so long. `EINVAL`: there is no such priority.
pub fn send(queue: impl AsFd, message: &[u8], priority: u32) -> io::Result<()> {
    let (queue, none) = (queue.as_fd().as_raw_fd(), ptr::null::<libc::timespec>());
    let (start, bytes) = (message.as_ptr(), message.len());
    // SAFETY: the kernel reads so many bytes of the caller's.
    match unsafe { libc::syscall(libc::SYS_mq_timedsend, queue, start, bytes, priority, none) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::{FromRawFd, OwnedFd};

    use super::*;

    /// A queue that has no name any more; none where the host has no queues.
    fn queue() -> Option<OwnedFd> {
        let name = format!("bivouac-test-{}\0", std::process::id());
        let attributes: Raw = [0, 2, 16, 0, 0, 0, 0, 0];
        let flags = libc::O_CREAT | libc::O_RDWR | libc::O_NONBLOCK | libc::O_CLOEXEC;
        let (call, name) = (libc::SYS_mq_open, name.as_ptr());
        // SAFETY: the kernel reads a string and a local.
        let made = unsafe { libc::syscall(call, name, flags, 0o600, &raw const attributes) };
        // SAFETY: the kernel reads a string.
        unsafe { libc::syscall(libc::SYS_mq_unlink, name) };
        let made = i32::try_from(made).ok().filter(|made| *made >= 0);
        if made.is_none() {
            println!("skipped: there are no message queues: {}", io::Error::last_os_error());
        }
        // SAFETY: the kernel has just made it for us.
        made.map(|made| unsafe { OwnedFd::from_raw_fd(made) })
    }

    #[test]
    fn messages_go_and_come_by_their_priority() {
        let Some(queue) = queue() else { return };
        send(&queue, b"low", 1).unwrap();
        send(&queue, b"high", 7).unwrap();
        assert_eq!(send(&queue, b"", 0).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        let expected = Attributes { max_messages: 2, message_bytes: 16, messages: 2 };
        assert_eq!(attributes(&queue).unwrap(), expected);
        let mut room = [0; 16];
        assert!(receive(&queue, &mut room[..15]).is_err());
        assert_eq!(receive(&queue, &mut room).unwrap(), Some((4, 7)));
        assert_eq!(&room[..4], b"high");
        assert_eq!(receive(&queue, &mut room).unwrap(), Some((3, 1)));
        assert_eq!(receive(&queue, &mut room).unwrap(), None);
        assert!(attributes(std::io::stdin()).is_err());
    }
}
