//! A stream in both directions between two processes, in memory that both have mapped: what a stream socket does,
//! without a copy to the host's kernel and back, and without a system call where the other side is awake.
//!
//! Each direction is a ring of bytes, with one writer and one reader:
//!
//! 1. *Each side keeps its own position*, and accepts of the other's only what is possible: the process at the other
//!    end may be hostile. Bytes are copied out before anybody looks at them.
//! 2. *Who has to wait says so, and then looks once more* ([`Reader::sleeps`], [`Writer::sleeps`]); the other side
//!    moves its position, and then looks who waits. At least one of them sees the other (`SeqCst`).
//! 3. *Who waits is rung for*: a byte on a socket, the bell, which is the same for all reasons; who hears it looks at
//!    everything. It is rung once for each time that somebody says that he waits. A writer is called when half of the
//!    ring is free, so that he does not wake for crumbs.
//! 4. *A side's end closes the bell's socket*, which who sleeps at it cannot miss.
//! 5. *An access never raises a signal*: the file of the memory is sealed against shrinking, which is looked at.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering, fence};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use vm_memory::{Bytes, GuestAddress, GuestMemoryBackend as _, GuestMemoryMmap, VolatileMemory};

use crate::limits::DUPLEX_BYTES;
use crate::memory::attach;

/// Where the words and the bytes of a direction are, from its beginning on. Words that different sides write are in
/// different cache lines.
mod at {
    /// How much the reader has read.
    pub const READ: u64 = 0;
    /// How much the writer has written.
    pub const WRITTEN: u64 = 128;
    /// 1: the reader waits for bytes.
    pub const READER_SLEEPS: u64 = 256;
    /// 1: the writer waits for room.
    pub const WRITER_SLEEPS: u64 = 384;
    /// The core that the writer was last seen on, counted from 1.
    pub const CORE: u64 = 512;
    pub const BYTES: u64 = 4096;
}

/// Bytes of a direction.
const WAY_BYTES: u64 = at::BYTES + DUPLEX_BYTES;

/// Bytes of the memory.
const ALL_BYTES: u64 = 2 * WAY_BYTES;

/// The other side has written a position that is impossible.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the other side of shared memory has written an invalid position")]
pub struct InvalidPosition;

/// Which end of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The one.
    First,
    /// The other.
    Second,
}

/// One direction.
#[derive(Debug)]
struct Way {
    memory: GuestMemoryMmap,
    base: u64,
    bell: Arc<OwnedFd>,
}

impl Way {
    fn load(&self, at: u64) -> u64 {
        // All of it is in memory.
        self.memory.load(GuestAddress(self.base + at), Ordering::Acquire).unwrap_or_default()
    }

    fn store(&self, at: u64, value: u64) {
        let _ = self.memory.store(value, GuestAddress(self.base + at), Ordering::Release);
    }

    fn with_word<T>(&self, at: u64, act: impl FnOnce(&AtomicU32) -> T) -> Option<T> {
        let slice = self.memory.get_slice(GuestAddress(self.base + at), 4).ok()?;
        slice.get_atomic_ref::<AtomicU32>(0).ok().map(act)
    }

    /// Somebody is about to sleep, or is not.
    fn say(&self, at: u64, sleeps: bool) {
        self.with_word(at, |word| word.store(sleeps.into(), Ordering::SeqCst));
        fence(Ordering::SeqCst);
    }

    /// Ring for who sleeps there.
    fn wake(&self, at: u64) {
        fence(Ordering::SeqCst);
        let sleeps = self.with_word(at, |word| {
            word.load(Ordering::SeqCst) != 0 && word.swap(0, Ordering::SeqCst) != 0
        });
        if sleeps == Some(true) {
            // Where so many bytes wait that there is no room for one, it wakes without.
            let _ = send(&self.bell, &[1], SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
        }
    }

    /// The two parts of the ring in which bytes from a position on are: where, and which of the bytes.
    fn parts(&self, position: u64, length: usize) -> [(GuestAddress, std::ops::Range<usize>); 2] {
        let start = position % DUPLEX_BYTES;
        let first = length.min((DUPLEX_BYTES - start) as usize);
        let place = |at| GuestAddress(self.base + at::BYTES + at);
        [(place(start), 0..first), (place(0), first..length)]
    }
}

/// What comes.
#[derive(Debug)]
pub struct Reader {
    way: Way,
    position: u64,
    /// How much had been written when there was less than was wanted: what comes then is news.
    known: u64,
}

impl Reader {
    fn waiting(&self) -> Result<u64, InvalidPosition> {
        let waiting = self.way.load(at::WRITTEN).wrapping_sub(self.position);
        if waiting <= DUPLEX_BYTES { Ok(waiting) } else { Err(InvalidPosition) }
    }

    /// Copy bytes from a place behind what was read on, without reading them; whether there are so many.
    ///
    /// # Errors
    ///
    /// [`InvalidPosition`]: nothing can be read any more.
    pub fn peek(&mut self, behind: usize, bytes: &mut [u8]) -> Result<bool, InvalidPosition> {
        let has = self.has(behind + bytes.len())?;
        if has {
            let position = self.position.wrapping_add(behind as u64);
            for (place, part) in self.way.parts(position, bytes.len()) {
                let _ = self.way.memory.read_slice(&mut bytes[part], place);
            }
        }
        Ok(has)
    }

    /// Whether there are so many bytes.
    ///
    /// # Errors
    ///
    /// As [`Self::peek`].
    pub fn has(&mut self, count: usize) -> Result<bool, InvalidPosition> {
        let waiting = self.waiting()?;
        let has = waiting >= count as u64;
        if !has {
            self.known = self.position.wrapping_add(waiting);
        }
        Ok(has)
    }

    /// Have read so many bytes, which are there.
    pub fn consume(&mut self, count: usize) {
        self.position = self.position.wrapping_add(count as u64);
        self.known = self.position;
        self.way.store(at::READ, self.position);
        let left = self.waiting().unwrap_or(DUPLEX_BYTES);
        if left <= DUPLEX_BYTES / 2 {
            self.way.wake(at::WRITER_SLEEPS);
        }
    }

    /// Read what there is, as far as it fits: 0 bytes if there is nothing.
    ///
    /// # Errors
    ///
    /// As [`Self::peek`].
    pub fn read(&mut self, bytes: &mut [u8]) -> Result<usize, InvalidPosition> {
        let count = self.waiting()?.min(bytes.len() as u64) as usize;
        if count > 0 && self.peek(0, &mut bytes[..count])? {
            self.consume(count);
        }
        Ok(count)
    }

    /// Whether there is something, or something more where there was less than was wanted.
    #[must_use]
    pub fn has_bytes(&self) -> bool {
        self.way.load(at::WRITTEN) != self.known
    }

    /// Say that the bell is to be rung for what comes next. False: there is something by now.
    #[must_use]
    pub fn sleeps(&self) -> bool {
        self.way.say(at::READER_SLEEPS, true);
        let has_bytes = self.has_bytes();
        if has_bytes {
            self.wakes();
        }
        !has_bytes
    }

    /// Say that the bell need not be rung: we look by ourselves.
    pub fn wakes(&self) {
        self.way.say(at::READER_SLEEPS, false);
    }

    /// Whether the writer was last seen on the core that this thread is on. Then nothing comes as long as this thread
    /// watches for it.
    #[must_use]
    pub fn shares_core(&self) -> bool {
        self.way.load(at::CORE) == core()
    }
}

/// What goes.
#[derive(Debug)]
pub struct Writer {
    way: Way,
    position: u64,
}

impl Writer {
    /// Bytes that can be written now.
    ///
    /// # Errors
    ///
    /// [`InvalidPosition`]: nothing can be written any more.
    pub fn room(&self) -> Result<usize, InvalidPosition> {
        let used = self.position.wrapping_sub(self.way.load(at::READ));
        DUPLEX_BYTES.checked_sub(used).map(|room| room as usize).ok_or(InvalidPosition)
    }

    /// Write as much as there is room for; how many bytes that were.
    ///
    /// # Errors
    ///
    /// As [`Self::room`].
    pub fn write(&mut self, bytes: &[u8]) -> Result<usize, InvalidPosition> {
        let count = self.room()?.min(bytes.len());
        if count > 0 {
            self.put(&bytes[..count]);
            self.publish();
        }
        Ok(count)
    }

    /// Put all of these bytes behind each other, or none where there is no room for all; whether there was. The reader
    /// sees them when [`Self::publish`] is called.
    ///
    /// # Errors
    ///
    /// As [`Self::room`].
    pub fn append(&mut self, pieces: &[&[u8]]) -> Result<bool, InvalidPosition> {
        let count: usize = pieces.iter().map(|piece| piece.len()).sum();
        let has_room = self.room()? >= count;
        if has_room {
            pieces.iter().for_each(|piece| self.put(piece));
        }
        Ok(has_room)
    }

    /// The same with bytes of another's that are there, from a place behind what he has read on, last.
    ///
    /// # Errors
    ///
    /// As [`Self::room`].
    pub fn append_from(
        &mut self,
        pieces: &[&[u8]],
        (from, behind, count): (&Reader, usize, usize),
    ) -> Result<bool, InvalidPosition> {
        let before: usize = pieces.iter().map(|piece| piece.len()).sum();
        if self.room()? < before + count || !self.append(pieces)? {
            return Ok(false);
        }
        let start = from.position.wrapping_add(behind as u64);
        for (place, part) in from.way.parts(start, count) {
            self.copy(&from.way, place, part.len());
        }
        Ok(true)
    }

    /// Put bytes that are in one piece in memory.
    fn copy(&mut self, from: &Way, place: GuestAddress, count: usize) {
        for (to, part) in self.way.parts(self.position, count) {
            let place = GuestAddress(place.0 + part.start as u64);
            if let Ok(from) = from.memory.get_slice(place, part.len())
                && let Ok(to) = self.way.memory.get_slice(to, part.len())
            {
                from.copy_to_volatile_slice(to);
            }
        }
        self.position = self.position.wrapping_add(count as u64);
    }

    /// Write bytes for which there is room; [`Self::publish`] lets the reader see them.
    fn put(&mut self, bytes: &[u8]) {
        for (place, part) in self.way.parts(self.position, bytes.len()) {
            let _ = self.way.memory.write_slice(&bytes[part], place);
        }
        self.position = self.position.wrapping_add(bytes.len() as u64);
    }

    /// Let the reader see what was put, and wake him for it.
    pub fn publish(&self) {
        self.way.store(at::CORE, core());
        self.way.store(at::WRITTEN, self.position);
        self.way.wake(at::READER_SLEEPS);
    }

    /// Say that the bell is to be rung when there is much room. False: there is by now.
    #[must_use]
    pub fn sleeps(&self) -> bool {
        self.way.say(at::WRITER_SLEEPS, true);
        let has_room = self.room().map_or(true, |room| room as u64 >= DUPLEX_BYTES / 2);
        if has_room {
            self.way.say(at::WRITER_SLEEPS, false);
        }
        !has_room
    }
}

/// The core that this thread is on, counted from 1; 0 if the host does not say.
fn core() -> u64 {
    // SAFETY: it takes nothing. (That of rustix asks for what a confined process may not have when it is first called.)
    let core = unsafe { libc::sched_getcpu() };
    u64::try_from(core.saturating_add(1)).unwrap_or(0)
}

/// What a side is rung for by.
#[derive(Debug, Clone)]
pub struct Bell(Arc<OwnedFd>);

impl Bell {
    /// It has been heard; whether there is somebody at the other end.
    #[must_use]
    pub fn hush(&self) -> bool {
        let mut rung = [0; 64];
        match recv(&self.0, &mut rung[..], RecvFlags::DONTWAIT) {
            Ok((0, _)) => false,
            Ok(_) | Err(Errno::AGAIN | Errno::INTR) => true,
            Err(_) => false,
        }
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// One side of it.
#[derive(Debug)]
pub struct Duplex {
    /// What comes.
    pub reader: Reader,
    /// What goes.
    pub writer: Writer,
    /// What is rung.
    pub bell: Bell,
}

impl Duplex {
    /// Where the first side says in the memory how many bytes it has written.
    pub const WRITTEN_OF_FIRST: u64 = WAY_BYTES + at::WRITTEN;

    /// Memory for one, in which nothing was written yet.
    ///
    /// # Errors
    ///
    /// The host's.
    pub fn memory() -> io::Result<OwnedFd> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let memory = memfd_create("bivouac-duplex", flags)?;
        ftruncate(&memory, ALL_BYTES)?;
        fcntl_add_seals(&memory, SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL)?;
        Ok(memory)
    }

    /// A side of the one in this memory, of which the other end of the bell's socket is the other side. Each side is
    /// opened once.
    ///
    /// # Errors
    ///
    /// It is not what [`Self::memory`] makes, or cannot be mapped.
    pub fn open(memory: OwnedFd, bell: OwnedFd, side: Side) -> Result<Self, crate::Error> {
        let memory = attach(File::from(memory), &[(0, ALL_BYTES, 0)])?;
        let bell = Arc::new(bell);
        let way = |base| Way { memory: memory.clone(), base, bell: Arc::clone(&bell) };
        let (read, written) = match side {
            Side::First => (0, WAY_BYTES),
            Side::Second => (WAY_BYTES, 0),
        };
        Ok(Self {
            reader: Reader { way: way(read), position: 0, known: 0 },
            writer: Writer { way: way(written), position: 0 },
            bell: Bell(bell),
        })
    }
}

#[cfg(test)]
mod tests;
