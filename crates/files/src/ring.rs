//! The rings of a share: requests from a domain's process to its file server, and replies back, in
//! memory that both map; with a notifier, by which each side wakes the other.
//!
//! A message through a socket costs both sides a system call, and waking a sleeping thread costs
//! more than most requests. So messages lie in two rings, where a thread with a core to spare sees
//! them without a system call:
//!
//! 1. *A ring has one writer and one reader.* The writer moves the ring's end when a message is
//!    whole; the reader moves its beginning when it has taken one. Each keeps its own position
//!    privately, and accepts of the other's only what is possible: the other process may be
//!    hostile.
//! 2. *A reader announces that it sleeps, and then looks once more.* A writer looks after each
//!    message whether the reader sleeps, and only then sends a byte over the socket. At least one
//!    of them sees the other (`SeqCst`). A reader that sleeps only for a moment, to leave the core
//!    to the other side, waits on the announcement itself (futex(2)).
//! 3. *The other side's end closes the socket*, which a sleeping side cannot miss.
//! 4. *An access to the memory never raises a signal:* its file can neither grow nor shrink.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::time::Duration;

use host::GuestMemory;
use rustix::fs::Timespec;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair,
};
use rustix::thread::{futex, sched_getcpu};
use vm_memory::{Bytes, GuestAddress, GuestMemoryBackend, GuestMemoryMmap, VolatileMemory};

use crate::limits::RING_DATA_BYTES;

/// What a message is padded to.
const ALIGNMENT: u64 = 8;

/// Where a ring's words and its data are, from its beginning on. Words that different sides write are in
/// different cache lines.
mod at {
    /// Where the reader is.
    pub const BEGINNING: u64 = 0;
    /// Where the writer is.
    pub const END: u64 = 64;
    /// Whether and where the reader sleeps, or is about to.
    pub const ASLEEP: u64 = 128;
    /// 1: the writer has left a core to the reader.
    pub const MAY_WATCH: u64 = 192;
    /// The core that the writer was last seen on, counted from 1.
    pub const CORE: u64 = 256;
    pub const DATA: u64 = 4096;
}

/// What [`at::ASLEEP`] says.
mod asleep {
    pub const NOWHERE: u32 = 0;
    /// At the socket.
    pub const SOCKET: u32 = 1;
    /// At the word itself (futex(2)).
    pub const WORD: u32 = 2;
}

/// Bytes of a ring.
const RING_BYTES: u64 = at::DATA + RING_DATA_BYTES;

/// Bytes of the memory that both have.
const ALL_BYTES: u64 = 2 * RING_BYTES;

/// The other side has written positions or lengths that are impossible.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the other side of a share has written an invalid ring")]
pub struct InvalidRing;

impl From<InvalidRing> for io::Error {
    fn from(invalid: InvalidRing) -> Self {
        Self::new(io::ErrorKind::InvalidData, invalid)
    }
}

/// One ring.
#[derive(Debug, Clone)]
struct Ring {
    memory: GuestMemoryMmap,
    base: u64,
}

impl Ring {
    fn load(&self, at: u64, order: Ordering) -> u64 {
        // All of the ring is in memory.
        self.memory.load(GuestAddress(self.base + at), order).unwrap_or_default()
    }

    fn store(&self, at: u64, value: u64, order: Ordering) {
        let _ = self.memory.store(value, GuestAddress(self.base + at), order);
    }

    /// Do something with the word that says whether the reader sleeps.
    fn with_asleep<T>(&self, act: impl FnOnce(&AtomicU32) -> T) -> Option<T> {
        let slice = self.memory.get_slice(GuestAddress(self.base + at::ASLEEP), 4).ok()?;
        slice.get_atomic_ref::<AtomicU32>(0).ok().map(act)
    }

    /// Do something with the two parts of which bytes from a place on consist: with each part's place in
    /// memory, and its bytes' place among them.
    fn in_parts(position: u64, length: u64, mut act: impl FnMut(u64, std::ops::Range<usize>)) {
        let start = position % RING_DATA_BYTES;
        let first = length.min(RING_DATA_BYTES - start);
        act(at::DATA + start, 0..first as usize);
        act(at::DATA, first as usize..length as usize);
    }

    fn write(&self, position: u64, bytes: &[u8]) {
        Self::in_parts(position, bytes.len() as u64, |place, part| {
            let _ = self.memory.write_slice(&bytes[part], GuestAddress(self.base + place));
        });
    }

    fn read(&self, position: u64, bytes: &mut [u8]) {
        Self::in_parts(position, bytes.len() as u64, |place, part| {
            let _ = self.memory.read_slice(&mut bytes[part], GuestAddress(self.base + place));
        });
    }
}

/// A ring's writer.
#[derive(Debug)]
pub struct Writer {
    ring: Ring,
    end: u64,
}

impl Writer {
    /// Append a message; false if there is no room for it now.
    ///
    /// # Errors
    ///
    /// [`InvalidRing`].
    pub fn put(&mut self, message: &[u8]) -> Result<bool, InvalidRing> {
        let beginning = self.ring.load(at::BEGINNING, Ordering::Acquire);
        let used = self.end.wrapping_sub(beginning);
        let length = ALIGNMENT + message.len() as u64;
        let room = RING_DATA_BYTES.checked_sub(used).ok_or(InvalidRing)?;
        if room < length.next_multiple_of(ALIGNMENT) {
            return Ok(false);
        }
        self.ring.write(self.end, &(message.len() as u64).to_ne_bytes());
        self.ring.write(self.end.wrapping_add(ALIGNMENT), message);
        self.end = self.end.wrapping_add(length.next_multiple_of(ALIGNMENT));
        self.ring.store(at::END, self.end, Ordering::Release);
        Ok(true)
    }
}

/// A ring's reader.
#[derive(Debug)]
pub struct Reader {
    ring: Ring,
    beginning: u64,
}

impl Reader {
    /// Whether there is a message.
    #[inline]
    pub fn has_message(&self) -> bool {
        self.ring.load(at::END, Ordering::Acquire) != self.beginning
    }

    /// Take the next message, if there is one.
    ///
    /// # Errors
    ///
    /// [`InvalidRing`].
    pub fn take(&mut self, message: &mut Vec<u8>) -> Result<bool, InvalidRing> {
        let there = self.ring.load(at::END, Ordering::Acquire).wrapping_sub(self.beginning);
        if there == 0 {
            return Ok(false);
        }
        let mut length = [0; ALIGNMENT as usize];
        self.ring.read(self.beginning, &mut length);
        let length = u64::from_ne_bytes(length);
        let after =
            ALIGNMENT.checked_add(length).and_then(|all| all.checked_next_multiple_of(ALIGNMENT));
        let after =
            after.filter(|&after| after <= there && there <= RING_DATA_BYTES).ok_or(InvalidRing)?;
        message.resize(length as usize, 0);
        self.ring.read(self.beginning.wrapping_add(ALIGNMENT), message);
        self.beginning = self.beginning.wrapping_add(after);
        self.ring.store(at::BEGINNING, self.beginning, Ordering::Release);
        Ok(true)
    }
}

/// How one side wakes the other, and sleeps itself.
#[derive(Debug)]
pub struct Notifier {
    socket: OwnedFd,
    /// What we read.
    ours: Ring,
    /// What the other side reads.
    theirs: Ring,
}

impl Notifier {
    /// Wake the other side, if it sleeps: there is something for it.
    pub fn notify(&self) {
        fence(Ordering::SeqCst);
        self.theirs.with_asleep(|word| {
            if word.load(Ordering::SeqCst) == asleep::NOWHERE {
                return;
            }
            if word.swap(asleep::NOWHERE, Ordering::SeqCst) == asleep::WORD {
                let _ = futex::wake(word, futex::Flags::empty(), u32::MAX >> 1);
            } else {
                // Where so many bytes wait that there is no room for one, it wakes without.
                let _ = send(&self.socket, &[1], SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
            }
        });
    }

    /// Whether we are to be woken. Who is about to sleep says so, looks into the ring once more, and then
    /// waits.
    pub fn set_asleep(&self, is_asleep: bool) {
        self.say_asleep(if is_asleep { asleep::SOCKET } else { asleep::NOWHERE });
    }

    fn say_asleep(&self, place: u32) {
        self.ours.with_asleep(|word| word.store(place, Ordering::SeqCst));
        fence(Ordering::SeqCst);
    }

    /// Sleep until the other side has something for us, for so long at most, unless there `is_something`
    /// already. A signal ends it too.
    pub fn rest(&self, span: Duration, is_something: impl FnOnce() -> bool) {
        self.say_asleep(asleep::WORD);
        if is_something() {
            return;
        }
        let timeout = Timespec::try_from(span).ok();
        self.ours.with_asleep(|word| {
            // Whatever it says, the caller looks.
            let _ = futex::wait(word, futex::Flags::empty(), asleep::WORD, timeout.as_ref());
        });
    }

    /// Wait until we are woken; false when the other side has ended.
    pub fn wait(&self) -> bool {
        let mut byte = [0];
        loop {
            match recv(&self.socket, &mut byte[..], RecvFlags::empty()) {
                Ok((length, _)) => return length > 0,
                Err(Errno::INTR) => {}
                Err(_) => return false,
            }
        }
    }

    /// Whether there is a core for the other side to watch for what comes.
    pub fn let_watch(&self, may_watch: bool) {
        self.theirs.store(at::MAY_WATCH, may_watch.into(), Ordering::Relaxed);
    }

    /// Whether there is one for us.
    pub fn may_watch(&self) -> bool {
        self.ours.load(at::MAY_WATCH, Ordering::Relaxed) != 0
    }

    /// Tell the other side which core this thread is on.
    pub fn say_core(&self) {
        self.theirs.store(at::CORE, core(), Ordering::Relaxed);
    }

    /// Whether the other side was last seen on the core that this thread is on. Then it cannot do anything as long
    /// as this thread watches for it.
    pub fn shares_core(&self) -> bool {
        self.ours.load(at::CORE, Ordering::Relaxed) == core()
    }

    /// Closes the socket: both sides' waiting threads wake.
    pub fn shut(&self) {
        // That it has ended before is as good.
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
    }
}

/// The core that this thread is on, counted from 1.
fn core() -> u64 {
    sched_getcpu() as u64 + 1
}

/// Two ends of a line for messages.
///
/// # Errors
///
/// The host's.
pub fn socket_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

/// One side's end: what it writes and reads, and how it sleeps.
pub type End = (Writer, Reader, Notifier);

/// A domain's end, with what its server needs for the other: the memory's file, and a socket.
///
/// # Errors
///
/// The host's.
pub fn pair() -> io::Result<(End, Arc<File>, OwnedFd)> {
    let memory = GuestMemory::new(&[(0, ALL_BYTES)]).map_err(io::Error::other)?;
    let (ours, theirs) = socket_pair()?;
    Ok((end(memory.map(), ours, (0, RING_BYTES)), Arc::clone(memory.file()), theirs))
}

/// The server's end.
///
/// # Errors
///
/// [`host::Error`] when the file is not what [`pair`] makes.
pub fn other_end(file: File, socket: OwnedFd) -> Result<End, host::Error> {
    let memory = host::memory::attach(file, &[(0, ALL_BYTES, 0)])?;
    Ok(end(&memory, socket, (RING_BYTES, 0)))
}

/// The end that writes to one ring and reads the other.
fn end(memory: &GuestMemoryMmap, socket: OwnedFd, (written, read): (u64, u64)) -> End {
    let ring = |base| Ring { memory: memory.clone(), base };
    let notifier = Notifier { socket, ours: ring(read), theirs: ring(written) };
    (Writer { ring: ring(written), end: 0 }, Reader { ring: ring(read), beginning: 0 }, notifier)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends() -> (End, End) {
        let (ours, file, socket) = pair().unwrap();
        let file = file.try_clone().unwrap();
        (ours, other_end(file, socket).unwrap())
    }

    #[test]
    fn messages_come_as_they_went() {
        let ((mut writer, ..), (_, mut reader, _)) = ends();
        let mut message = Vec::new();
        assert!(!reader.has_message() && !reader.take(&mut message).unwrap());
        // Several times around.
        for number in 0..300_usize {
            let bytes = |number: usize| vec![number as u8; number * 31 % 5000];
            assert!(writer.put(&bytes(number)).unwrap());
            assert!(writer.put(&bytes(number + 1)).unwrap());
            for number in [number, number + 1] {
                assert!(reader.has_message() && reader.take(&mut message).unwrap());
                assert_eq!(message, bytes(number));
            }
        }
        assert!(!reader.take(&mut message).unwrap());
    }

    #[test]
    fn a_ring_is_full_until_something_is_taken() {
        let ((mut writer, ..), (_, mut reader, _)) = ends();
        let mut count = 0;
        while writer.put(&[7; 1000]).unwrap() {
            count += 1;
        }
        assert_eq!(count, RING_DATA_BYTES / 1008);
        assert!(reader.take(&mut Vec::new()).unwrap() && writer.put(&[7; 1000]).unwrap());
        assert!(!writer.put(&[7; 1000]).unwrap());
        assert!(!writer.put(&vec![7; RING_DATA_BYTES as usize]).unwrap());
    }

    #[test]
    fn what_makes_no_sense_is_found() {
        let ((mut writer, ..), (_, mut reader, _)) = ends();
        writer.put(&[7; 16]).unwrap();
        let ring = writer.ring.clone();
        for length in [17, 1 << 20, u64::MAX, u64::MAX - 7] {
            ring.write(0, &length.to_ne_bytes());
            assert_eq!(reader.take(&mut Vec::new()), Err(InvalidRing), "{length:#x}");
        }
        ring.store(at::END, RING_DATA_BYTES + 8, Ordering::SeqCst);
        ring.write(0, &16_u64.to_ne_bytes());
        assert_eq!(reader.take(&mut Vec::new()), Err(InvalidRing));
        ring.store(at::BEGINNING, 32, Ordering::SeqCst);
        assert_eq!(writer.put(&[7; 16]), Err(InvalidRing));
    }

    /// Say a thousand numbers, and now and then let the other side go to sleep.
    fn say_a_thousand(writer: &mut Writer, notifier: &Notifier) {
        for number in 0..1000_u64 {
            while !writer.put(&number.to_ne_bytes()).unwrap() {
                std::thread::yield_now();
            }
            notifier.notify();
            if number % 10 == 0 {
                std::thread::yield_now();
            }
        }
    }

    #[test]
    fn who_is_on_the_same_core_is_known() {
        let ((.., notifier), (.., other)) = ends();
        assert!(!notifier.shares_core(), "nothing has been said");
        // A thread may be moved between two looks, but not each time.
        let is_seen = |_| {
            other.say_core();
            notifier.shares_core()
        };
        assert!((0..1000).any(is_seen));
        notifier.ours.store(at::CORE, u64::MAX, Ordering::Relaxed);
        assert!(!notifier.shares_core());
    }

    #[test]
    fn who_sleeps_is_woken_and_nobody_else() {
        let ((mut writer, _, notifier), (_, mut reader, other)) = ends();
        let sleeper = std::thread::spawn(move || {
            let mut message = Vec::new();
            for expected in 0..1000_u64 {
                while !reader.take(&mut message).unwrap() {
                    other.set_asleep(true);
                    if !reader.has_message() {
                        assert!(other.wait());
                    }
                }
                assert_eq!(message, expected.to_ne_bytes());
            }
            // Bytes of wake-ups that were not waited for may be left.
            while other.wait() {}
        });
        say_a_thousand(&mut writer, &notifier);
        notifier.shut();
        sleeper.join().unwrap();
    }

    #[test]
    fn who_rests_is_woken_or_wakes_by_himself() {
        let ((mut writer, _, notifier), (_, mut reader, other)) = ends();
        let long = Duration::from_secs(60);
        other.rest(Duration::from_millis(1), || false);
        other.rest(long, || true);
        let sleeper = std::thread::spawn(move || {
            let mut message = Vec::new();
            for _ in 0..1000 {
                while !reader.take(&mut message).unwrap() {
                    other.rest(long, || reader.has_message());
                }
            }
        });
        let start = std::time::Instant::now();
        say_a_thousand(&mut writer, &notifier);
        sleeper.join().unwrap();
        assert!(start.elapsed() < long, "somebody was not woken");
    }

    #[test]
    fn a_file_that_could_shrink_is_refused() {
        let plain = rustix::fs::memfd_create("ring", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&plain, 2 * ALL_BYTES).unwrap();
        let (_, socket) = socket_pair().unwrap();
        assert!(other_end(plain.into(), socket).is_err());
    }
}
