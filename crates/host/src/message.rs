//! Messages on stream sockets that are partly guest memory and partly our own bytes. No call
//! blocks.

use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd};

use vm_memory::GuestMemoryMmap;

use crate::vectored::{MAX_PIECES, Pieces, answer};

/// What is to be sent, in order.
pub struct Outgoing<'a> {
    vectors: Vec<libc::iovec>,
    bytes: usize,
    memory: &'a GuestMemoryMmap,
    /// Borrows what the vectors point at.
    _bytes: PhantomData<&'a [u8]>,
}

impl<'a> Outgoing<'a> {
    /// Nothing yet.
    #[must_use]
    pub fn new(memory: &'a GuestMemoryMmap) -> Self {
        Self { vectors: Vec::new(), bytes: 0, memory, _bytes: PhantomData }
    }

    /// Bytes of ours.
    pub fn add_bytes(&mut self, bytes: &'a [u8]) {
        let start = bytes.as_ptr().cast_mut().cast();
        self.vectors.push(libc::iovec { iov_base: start, iov_len: bytes.len() });
        self.bytes += bytes.len();
    }

    /// Ranges of guest memory (addresses and bytes), without the first `skip` bytes of them.
    ///
    /// # Errors
    ///
    /// As [`Pieces::new`]; nothing is added.
    pub fn add_memory(
        &mut self,
        ranges: impl IntoIterator<Item = (u64, usize)>,
        skip: usize,
    ) -> io::Result<()> {
        let mut pieces = Pieces::new(self.memory, ranges)?;
        pieces.advance(skip);
        self.vectors.extend_from_slice(pieces.vectors());
        self.bytes += pieces.bytes();
        Ok(())
    }

    /// Bytes of all of it.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Pieces of all of it; only the first [`MAX_PIECES`] are sent at once.
    #[must_use]
    pub fn pieces(&self) -> usize {
        self.vectors.len()
    }

    /// Send from the beginning; possibly fewer bytes than there are.
    ///
    /// # Errors
    ///
    /// As sendmsg(2); [`io::ErrorKind::WouldBlock`] when the other end has to read first.
    pub fn send(&self, socket: BorrowedFd<'_>) -> io::Result<usize> {
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        let message = header(self.vectors.as_ptr(), self.vectors.len());
        // SAFETY: the vectors name bytes that are borrowed, and guest memory that stays mapped as long
        // as its borrow lives; the kernel reads them.
        answer(unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, flags) })
    }
}

/// Receive into guest memory, and what comes after that into `rest`. Zero bytes are the end.
///
/// # Errors
///
/// As recvmsg(2); [`io::ErrorKind::WouldBlock`] when there is nothing.
pub fn receive(socket: BorrowedFd<'_>, pieces: &Pieces<'_>, rest: &mut [u8]) -> io::Result<usize> {
    let mut vectors = pieces.vectors().to_vec();
    let (start, iov_len) = (rest.as_mut_ptr().cast(), rest.len());
    vectors.push(libc::iovec { iov_base: start, iov_len });
    let mut message = header(vectors.as_ptr(), vectors.len());
    // SAFETY: the vectors name guest memory, to which there are no references and which stays mapped
    // as long as its borrow lives, and bytes that are borrowed mutably.
    answer(unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_DONTWAIT) })
}

fn header(vectors: *const libc::iovec, count: usize) -> libc::msghdr {
    // SAFETY: all zeros are a message without address, data and ancillary data.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = vectors.cast_mut();
    message.msg_iovlen = count.min(MAX_PIECES);
    message
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use vm_memory::{Bytes, GuestAddress};

    use super::*;

    fn memory() -> GuestMemoryMmap {
        GuestMemoryMmap::from_ranges(&[(GuestAddress(0), 0x1000)]).unwrap()
    }

    #[test]
    fn our_bytes_and_the_guests_are_sent_in_order() {
        let (memory, (one, mut other)) = (memory(), UnixStream::pair().unwrap());
        memory.write_slice(b"abcdef", GuestAddress(0x10)).unwrap();
        let mut message = Outgoing::new(&memory);
        message.add_bytes(b"<");
        message.add_memory([(0x10, 2), (0x12, 4)], 1).unwrap();
        message.add_bytes(b">");
        assert!(message.add_memory([(0xfff, 2)], 0).is_err());
        assert_eq!((message.bytes(), message.pieces()), (7, 4));
        assert_eq!(message.send(one.as_fd()).unwrap(), 7);
        let mut bytes = [0; 7];
        other.read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes, b"<bcdef>");
    }

    #[test]
    fn what_comes_fills_guest_memory_first() {
        let (memory, (one, mut other)) = (memory(), UnixStream::pair().unwrap());
        let pieces = Pieces::new(&memory, [(0x10, 2), (0x20, 2)]).unwrap();
        let mut rest = [0; 4];
        let nothing = receive(one.as_fd(), &pieces, &mut rest).unwrap_err();
        assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
        other.write_all(b"abcde").unwrap();
        assert_eq!(receive(one.as_fd(), &pieces, &mut rest).unwrap(), 5);
        assert_eq!(memory.read_obj::<[u8; 2]>(GuestAddress(0x20)).unwrap(), *b"cd");
        assert_eq!(&rest, b"e\0\0\0");
        drop(other);
        assert_eq!(receive(one.as_fd(), &pieces, &mut rest).unwrap(), 0);
    }
}
