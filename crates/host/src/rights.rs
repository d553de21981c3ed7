//! Descriptors that go with bytes on Unix sockets (`SCM_RIGHTS`, unix(7)).

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// Send bytes, of which there is at least one, and descriptors with the first of them. A stream socket may take only
/// some of the bytes.
///
/// # Errors
///
/// As sendmsg(2).
pub fn send(socket: impl AsFd, bytes: &[u8], files: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(files.len()))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() {
        // There is room for just these.
        ancillary.push(SendAncillaryMessage::ScmRights(files));
    }
    sendmsg(socket, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// What was received.
#[derive(Debug)]
pub struct Received {
    /// How many bytes; none is the end.
    pub bytes: usize,
    /// The descriptors that came with them, which are closed in what this process starts.
    pub files: Vec<OwnedFd>,
    /// What else the host says of it: that something did not fit, for one.
    pub flags: ReturnFlags,
}

/// Receive bytes, and so many descriptors at most. Those beyond are closed.
///
/// # Errors
///
/// As recvmsg(2).
pub fn receive(
    socket: impl AsFd,
    bytes: &mut [u8],
    most: usize,
    flags: RecvFlags,
) -> Result<Received, Errno> {
    let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(most))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let pieces = &mut [IoSliceMut::new(bytes)];
    let received = recvmsg(socket, pieces, &mut ancillary, flags | RecvFlags::CMSG_CLOEXEC)?;
    let mut files = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(some) = message {
            files.extend(some);
        }
    }
    let mut flags = received.flags;
    // The host rounds the room for them up.
    if files.len() > most {
        files.truncate(most);
        flags |= ReturnFlags::CTRUNC;
    }
    Ok(Received { bytes: received.bytes, files, flags })
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn descriptors_come_with_bytes_and_no_more_than_are_wanted() {
        let (one, other) = UnixStream::pair().unwrap();
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        send(&one, b"two", &[theirs.as_fd(), one.as_fd()]).unwrap();
        let mut bytes = [0; 8];
        let received = receive(&other, &mut bytes, 1, RecvFlags::DONTWAIT).unwrap();
        assert_eq!((received.bytes, received.files.len()), (3, 1));
        assert!(received.flags.contains(ReturnFlags::CTRUNC));
        send(&one, b"none", &[]).unwrap();
        let plain = receive(&other, &mut bytes, 1, RecvFlags::DONTWAIT).unwrap();
        assert_eq!((plain.bytes, plain.files.len()), (4, 0));
        // It is the one that was sent, which ends when all have closed it.
        drop(theirs);
        ours.set_nonblocking(true).unwrap();
        assert_eq!(ours.read(&mut bytes).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop(received);
        assert_eq!(ours.read(&mut bytes).unwrap(), 0);
        let nothing = receive(&other, &mut bytes, 1, RecvFlags::DONTWAIT);
        assert_eq!(nothing.unwrap_err(), Errno::AGAIN);
    }
}
