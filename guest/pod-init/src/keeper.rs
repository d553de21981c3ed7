//! What is said to the keeper before process 1 speaks the protocol of a guest's init (`guest/pod-protocol`).

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

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
