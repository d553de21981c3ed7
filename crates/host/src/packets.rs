//! Questions and answers on Unix sockets of packets (`SOCK_SEQPACKET`, unix(7)).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::net::{
    AddressFamily, RecvFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv, socket_with,
};

use crate::poll::{PollFlags, wait_for};
use crate::rights;

/// A socket that is connected to the one at a path.
///
/// # Errors
///
/// Nobody listens there.
pub fn connect_to(path: &Path) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

/// Send a question with descriptors, and wait for the answer, of so many bytes at most.
///
/// # Errors
///
/// `UnexpectedEof`: the other end has gone. `TimedOut`: there is no answer in time. The host's.
pub fn ask(
    socket: impl AsFd,
    (question, files): (&[u8], &[BorrowedFd<'_>]),
    (patience, most): (Duration, usize),
) -> io::Result<Vec<u8>> {
    rights::send(&socket, question, files)?;
    if wait_for(&socket, PollFlags::IN, Instant::now().checked_add(patience))?.is_empty() {
        return Err(io::ErrorKind::TimedOut.into());
    }
    let mut answer = vec![0; most];
    let (count, _) = recv(&socket, &mut answer[..], RecvFlags::empty())?;
    if count == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    answer.truncate(count);
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use rustix::net::{SendFlags, send, socketpair};

    use super::*;

    #[test]
    fn a_question_is_answered_or_it_is_said_why_not() {
        let flags = SocketFlags::CLOEXEC;
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        send(&theirs, b"answer", SendFlags::empty()).unwrap();
        let answer = ask(&ours, (b"question", &[]), (Duration::from_secs(60), 9)).unwrap();
        assert_eq!(answer, b"answer");
        let late = ask(&ours, (b"question", &[]), (Duration::ZERO, 9)).unwrap_err();
        assert_eq!(late.kind(), io::ErrorKind::TimedOut);
        drop(theirs);
        assert!(ask(&ours, (b"question", &[]), (Duration::from_secs(60), 9)).is_err());
        assert!(connect_to(Path::new("/no/such/socket")).is_err());
    }
}
