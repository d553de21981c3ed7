//! An image that is the disk's bytes and nothing else: a file, or a block device of the host.
//!
//! *A guest could write the header of another format to the beginning of its disk.* The next machine would open the
//! disk as that format, with the backing file that it names. So where the format was probed, because the user has not
//! said that the file is raw, a first sector that looks like another format is not written (QEMU does the same). The
//! check is made on a copy, which the guest cannot change afterwards.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{Advice, FallocateFlags};
use rustix::io::Errno;
use vm_memory::{Bytes, GuestAddress};

use super::{Buffers, Image, SECTOR_BYTES};

/// What a qcow2 image starts with (qemu, docs/interop/qcow2.txt).
pub const QCOW2_MAGIC: [u8; 4] = *b"QFI\xfb";

/// Zeroes are written in pieces of so many bytes.
static ZEROES: [u8; 64 << 10] = [0; 64 << 10];

/// What the host reads ahead by itself, mostly (`read_ahead_kb`).
const LARGE_BYTES: u64 = 128 << 10;

/// See above.
pub struct Raw {
    file: File,
    bytes: u64,
    can_discard: bool,
    is_guessed: bool,
    /// The file system does not say what a write would wait for (ext4's buffered ones, for one).
    cannot_tell: AtomicBool,
}

impl Raw {
    /// An open file with so many bytes, of which the whole sectors are the disk; `is_guessed` if nobody
    /// has said that it is raw.
    #[must_use]
    pub fn new(file: File, bytes: u64, is_guessed: bool) -> Self {
        let bytes = bytes - bytes % SECTOR_BYTES;
        // Behind the end nothing is lost; a block device, which has nothing there, can do it.
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let tried = rustix::fs::fallocate(&file, hole, bytes.next_multiple_of(1 << 20), 4096);
        let can_discard = !matches!(tried, Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::BADF));
        Self { file, bytes, can_discard, is_guessed, cannot_tell: AtomicBool::new(false) }
    }

    /// A first sector that is not to be written; how many bytes of `from` were dealt with otherwise.
    fn write_first(&self, from: &Buffers<'_>) -> io::Result<usize> {
        let mut sector = [0; SECTOR_BYTES as usize];
        let mut filled = 0;
        for segment in from.part(0, sector.len()).segments() {
            let part = &mut sector[filled..filled + segment.length as usize];
            let read = from.memory().read_slice(part, GuestAddress(segment.address));
            read.map_err(|_| io::ErrorKind::InvalidInput)?;
            filled += segment.length as usize;
        }
        if sector.starts_with(&QCOW2_MAGIC) {
            let text = "the guest makes a qcow2 image of a disk that was only taken for raw; give \
                        format=raw if it may";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
        }
        self.file.write_all_at(&sector[..filled], 0)?;
        Ok(filled)
    }

    fn write_zeroes(&self, at: u64, bytes: u64) -> io::Result<()> {
        let mut done = 0;
        while done < bytes {
            let now = (bytes - done).min(ZEROES.len() as u64);
            self.file.write_all_at(&ZEROES[..now as usize], at + done)?;
            done += now;
        }
        Ok(())
    }
}

impl Image for Raw {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn can_discard(&self) -> bool {
        self.can_discard
    }

    fn read(&self, at: u64, into: &Buffers<'_>) -> io::Result<()> {
        into.each(|pieces, done| pieces.read_at(self.file.as_fd(), at + done)).map_err(shorter)
    }

    fn read_at_hand(&self, at: u64, into: &Buffers<'_>) -> usize {
        let mut all = 0;
        // Whatever is wrong is found again by who waits for it.
        let _ = into.each(|pieces, done| {
            let moved = pieces.read_at_hand(self.file.as_fd(), at + done)?;
            all = done as usize + moved;
            Ok(moved)
        });
        // The host begins with its usual window; the rest of a large one is to be under way, too.
        let (rest, start) = ((into.bytes() - all) as u64, at + all as u64);
        if let Some(rest) = std::num::NonZeroU64::new(rest).filter(|rest| rest.get() >= LARGE_BYTES)
        {
            let _ = rustix::fs::fadvise(&self.file, start, Some(rest), Advice::WillNeed);
        }
        all
    }

    /// `RWF_NOWAIT` reads ahead since Linux 5.10.
    fn starts_reading(&self) -> bool {
        true
    }

    fn write(&self, at: u64, from: &Buffers<'_>) -> io::Result<()> {
        if at == 0 && self.is_guessed {
            let first = self.write_first(from)?;
            let rest = from.part(first, from.bytes() - first);
            return rest
                .each(|pieces, done| pieces.write_at(self.file.as_fd(), first as u64 + done));
        }
        from.each(|pieces, done| pieces.write_at(self.file.as_fd(), at + done))
    }

    fn write_at_hand(&self, at: u64, from: &Buffers<'_>) -> Option<usize> {
        let is_checked = at == 0 && self.is_guessed;
        if is_checked || self.cannot_tell.load(Ordering::Relaxed) {
            return None;
        }
        let mut all = 0;
        // Whatever is wrong is found again by who waits for it.
        let result = from.each(|pieces, done| {
            let moved = pieces.write_at_hand(self.file.as_fd(), at + done)?;
            all = done as usize + moved;
            Ok(moved)
        });
        if result.is_err_and(|error| error.kind() == io::ErrorKind::Unsupported) {
            self.cannot_tell.store(true, Ordering::Relaxed);
            return None;
        }
        Some(all)
    }

    fn writes_to_cache(&self) -> bool {
        true
    }

    fn flush(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn zero(&self, at: u64, bytes: u64, unmap: bool) -> io::Result<()> {
        let how = if unmap { FallocateFlags::PUNCH_HOLE } else { FallocateFlags::ZERO_RANGE };
        match rustix::fs::fallocate(&self.file, how | FallocateFlags::KEEP_SIZE, at, bytes) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => self.write_zeroes(at, bytes),
            other => Ok(other?),
        }
    }
}

/// Why there is nothing to read inside the disk.
fn shorter(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => {
            io::Error::new(error.kind(), "the file has become shorter while the machine uses it")
        }
        _ => error,
    }
}
