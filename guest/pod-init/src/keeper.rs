//! What is said between the keeper and this process before process 1 speaks the protocol of a guest's init
//! (`guest/pod-protocol`).

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// Descriptors that go with one word, at the most.
const FILES_MAX: usize = 3;

/// Sends a word, and descriptors with it, over the line, which is standard input.
pub fn tell(word: u8, files: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_MAX))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !ancillary.push(SendAncillaryMessage::ScmRights(files)) {
        return Err(Errno::TOOBIG);
    }
    let line = rustix::stdio::stdin();
    sendmsg(line, &[IoSlice::new(&[word])], &mut ancillary, SendFlags::NOSIGNAL).map(drop)
}

/// Waits for a word of the keeper's; with the descriptor that comes with it, if one does.
pub fn hear(line: impl AsFd) -> Result<([u8; 1], Option<OwnedFd>), Errno> {
    let mut word = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut room = [IoSliceMut::new(&mut word)];
    let received = recvmsg(line, &mut room, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    if received.bytes == 0 {
        return Err(Errno::CONNRESET);
    }
    let file = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    });
    Ok((word, file))
}
