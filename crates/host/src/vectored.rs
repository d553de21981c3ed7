//! Vectored I/O between files (or sockets) and guest memory, without a copy in between.
//!
//! A transfer names ranges of guest-physical addresses; all of them are looked up before any byte
//! moves. The memory belongs to a guest that may write it at the same time. So this module makes no
//! reference to it; it gives the kernel pointers and lengths.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use vm_memory::{GuestAddress, GuestMemoryBackend as _, GuestMemoryMmap, GuestMemoryRegion as _};

pub use crate::limits::MAX_PIECES;

/// A range of guest memory, looked up.
pub struct Pieces<'a> {
    vectors: Vec<libc::iovec>,
    bytes: usize,
    /// Keeps what the vectors point at mapped.
    _memory: &'a GuestMemoryMmap,
}

impl<'a> Pieces<'a> {
    /// Look up ranges: guest-physical addresses and bytes.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::InvalidInput`] when a range is not all memory, or there are more than
    /// [`MAX_PIECES`] pieces.
    pub fn new(
        memory: &'a GuestMemoryMmap,
        ranges: impl IntoIterator<Item = (u64, usize)>,
    ) -> io::Result<Self> {
        let mut pieces = Self { vectors: Vec::new(), bytes: 0, _memory: memory };
        for (address, length) in ranges {
            pieces.add(memory, address, length)?;
        }
        Ok(pieces)
    }

    /// What the pieces are, for system calls that take more than one such list.
    pub(crate) fn vectors(&self) -> &[libc::iovec] {
        &self.vectors
    }

    fn add(&mut self, memory: &GuestMemoryMmap, address: u64, length: usize) -> io::Result<()> {
        let (mut at, mut left) = (address, length);
        while left > 0 {
            let region = memory.find_region(GuestAddress(at)).ok_or(io::ErrorKind::InvalidInput)?;
            let within = at - region.start_addr().0;
            let here = (region.len() - within).min(left as u64) as usize;
            if self.vectors.len() == MAX_PIECES {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            // Inside the region, whose length is that of its mapping.
            let start = region.as_ptr().wrapping_add(within as usize);
            self.vectors.push(libc::iovec { iov_base: start.cast(), iov_len: here });
            self.bytes += here;
            left -= here;
            at += here as u64;
        }
        Ok(())
    }

    /// Bytes of all pieces.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Leave only the first `bytes`.
    pub fn truncate(&mut self, bytes: usize) {
        let mut left = bytes;
        self.vectors.retain_mut(|vector| {
            vector.iov_len = vector.iov_len.min(left);
            left -= vector.iov_len;
            vector.iov_len > 0
        });
        self.bytes = self.bytes.min(bytes);
    }

    /// Take the first `bytes` away.
    pub fn advance(&mut self, bytes: usize) {
        let mut left = bytes;
        self.vectors.retain_mut(|vector| {
            let gone = vector.iov_len.min(left);
            left -= gone;
            vector.iov_base = vector.iov_base.wrapping_byte_add(gone);
            vector.iov_len -= gone;
            vector.iov_len > 0
        });
        self.bytes -= bytes.min(self.bytes);
    }

    /// Fill them from a file's `offset` on; fewer bytes than there is room for at its end, and
    /// possibly before.
    ///
    /// # Errors
    ///
    /// As preadv(2).
    pub fn read_at(&self, file: BorrowedFd<'_>, offset: u64) -> io::Result<usize> {
        let count = self.vectors.len() as libc::c_int;
        let offset = i64::try_from(offset).map_err(io::Error::other)?;
        // SAFETY: the vectors name mapped memory that no reference of ours points into, and that
        // stays mapped as long as the borrow lives.
        let done = unsafe { libc::preadv(file.as_raw_fd(), self.vectors.as_ptr(), count, offset) };
        answer(done)
    }

    /// Fill them from a file's `offset` on with what the host has in memory; likewise.
    ///
    /// # Errors
    ///
    /// As preadv2(2) with `RWF_NOWAIT`; [`io::ErrorKind::WouldBlock`] when the host has none of it.
    pub fn read_at_hand(&self, file: BorrowedFd<'_>, offset: u64) -> io::Result<usize> {
        let (file, count) = (file.as_raw_fd(), self.vectors.len() as libc::c_int);
        let offset = i64::try_from(offset).map_err(io::Error::other)?;
        // SAFETY: as for reading.
        let done =
            unsafe { libc::preadv2(file, self.vectors.as_ptr(), count, offset, libc::RWF_NOWAIT) };
        answer(done)
    }

    /// Write them to a file from `offset` on; possibly fewer bytes than there are.
    ///
    /// # Errors
    ///
    /// As pwritev(2).
    pub fn write_at(&self, file: BorrowedFd<'_>, offset: u64) -> io::Result<usize> {
        let count = self.vectors.len() as libc::c_int;
        let offset = i64::try_from(offset).map_err(io::Error::other)?;
        // SAFETY: as for reading; the kernel only reads what they name.
        let done = unsafe { libc::pwritev(file.as_raw_fd(), self.vectors.as_ptr(), count, offset) };
        answer(done)
    }

    /// Write them to a file from `offset` on as far as that waits for nothing; likewise.
    ///
    /// # Errors
    ///
    /// As pwritev2(2) with `RWF_NOWAIT`; [`io::ErrorKind::WouldBlock`] when all of it would wait,
    /// [`io::ErrorKind::Unsupported`] from file systems that cannot tell.
    pub fn write_at_hand(&self, file: BorrowedFd<'_>, offset: u64) -> io::Result<usize> {
        let (file, count) = (file.as_raw_fd(), self.vectors.len() as libc::c_int);
        let offset = i64::try_from(offset).map_err(io::Error::other)?;
        // SAFETY: as for writing.
        let done =
            unsafe { libc::pwritev2(file, self.vectors.as_ptr(), count, offset, libc::RWF_NOWAIT) };
        answer(done)
    }

    /// Fill them from a stream.
    ///
    /// # Errors
    ///
    /// As readv(2).
    pub fn read(&self, file: BorrowedFd<'_>) -> io::Result<usize> {
        let count = self.vectors.len() as libc::c_int;
        // SAFETY: as for reading from a file.
        answer(unsafe { libc::readv(file.as_raw_fd(), self.vectors.as_ptr(), count) })
    }

    /// Write them to a stream.
    ///
    /// # Errors
    ///
    /// As writev(2).
    pub fn write(&self, file: BorrowedFd<'_>) -> io::Result<usize> {
        let count = self.vectors.len() as libc::c_int;
        // SAFETY: as for writing to a file.
        answer(unsafe { libc::writev(file.as_raw_fd(), self.vectors.as_ptr(), count) })
    }
}

/// What a system call that moves bytes has returned.
pub(crate) fn answer(done: isize) -> io::Result<usize> {
    usize::try_from(done).map_err(|_| io::Error::last_os_error())
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;

    use vm_memory::Bytes;

    use super::*;

    fn memory() -> GuestMemoryMmap {
        let ranges = [(GuestAddress(0), 0x2000), (GuestAddress(0x2000), 0x1000)];
        GuestMemoryMmap::from_ranges(&ranges).unwrap()
    }

    fn file() -> File {
        let flags = rustix::fs::MemfdFlags::CLOEXEC;
        rustix::fs::memfd_create("test", flags).unwrap().into()
    }

    #[test]
    fn bytes_move_both_ways_across_regions() {
        let (memory, file) = (memory(), file());
        memory.write_slice(b"abcdef", GuestAddress(0x1ffd)).unwrap();
        let pieces = Pieces::new(&memory, [(0x1ffd, 6), (0x1ffe, 1)]).unwrap();
        assert_eq!(pieces.bytes(), 7);
        assert_eq!(pieces.write_at(file.as_fd(), 10).unwrap(), 7);
        let back = Pieces::new(&memory, [(0x100, 3), (0x200, 100)]).unwrap();
        assert_eq!(back.read_at(file.as_fd(), 10).unwrap(), 7);
        assert_eq!(memory.read_obj::<[u8; 3]>(GuestAddress(0x100)).unwrap(), *b"abc");
        assert_eq!(memory.read_obj::<[u8; 4]>(GuestAddress(0x200)).unwrap(), *b"defb");
    }

    #[test]
    fn pieces_are_cut_at_both_ends() {
        let (memory, file) = (memory(), file());
        memory.write_slice(b"abcdef", GuestAddress(0)).unwrap();
        let mut pieces = Pieces::new(&memory, [(0, 2), (2, 2), (4, 2)]).unwrap();
        pieces.advance(3);
        pieces.truncate(2);
        assert_eq!(pieces.bytes(), 2);
        assert_eq!(pieces.write_at(file.as_fd(), 0).unwrap(), 2);
        let mut bytes = [0; 2];
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut bytes, 0).unwrap();
        assert_eq!(&bytes, b"de");
        pieces.advance(9);
        assert_eq!(pieces.bytes(), 0);
    }

    #[test]
    fn what_is_no_memory_is_refused() {
        let memory = memory();
        for range in [(0x3000, 1), (0x2fff, 2), (u64::MAX, 1), (u64::MAX - 5, 100)] {
            assert!(Pieces::new(&memory, [range]).is_err(), "{range:?}");
        }
        let many = std::iter::repeat_n((0, 1), MAX_PIECES + 1);
        assert!(Pieces::new(&memory, many).is_err());
        assert_eq!(Pieces::new(&memory, [(0x9000, 0)]).unwrap().bytes(), 0);
    }
}
