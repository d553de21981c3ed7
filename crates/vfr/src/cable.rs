//! A cable: a stream with frames, each after its length in four bytes, the most significant first. The stream is a
//! socket's, or lies in memory that both ends have ([`Duplex`]), as that of a domain's card does: then a frame is
//! copied by nobody else, and who is awake is not woken.
//!
//! The length is an allegation. A frame that is longer than frames are, or shorter than their header, ends the cable,
//! because nothing after it can be told apart any more.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use host::duplex::{Duplex, Side};
use host::poll::PollFlags;
use router::limits::HEAD_BYTES;
use router::{Mac, PortId};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use crate::lanes::{Lanes, PREFIX_BYTES, pieces};
use crate::limits::{BATCH_BYTES, FRAME_BYTES, READ_BYTES};

/// Bytes of its Ethernet header.
const HEADER_BYTES: usize = 14;

/// A cable's end, with what has come and what is to go.
#[derive(Debug)]
pub struct Cable {
    stream: Stream,
    input: Box<[u8]>,
    start: usize,
    end: usize,
    /// The first frame of it.
    current: Current,
    /// What waits to be written, of each sender.
    lanes: Lanes,
    /// What is written now.
    output: Vec<u8>,
    /// Bytes of it that were taken.
    taken: usize,
    /// Bytes that were put into memory where nobody sees them yet.
    unseen: usize,
}

/// A frame that was found.
#[derive(Debug, Default)]
struct Current {
    bytes: usize,
    /// The place of those of its bytes, from the first on, that are in `input`.
    copied: Range<usize>,
}

/// What frames go and come by.
#[derive(Debug)]
enum Stream {
    /// A socket, and whether it has taken no more when it was last written to.
    Socket { socket: OwnedFd, is_blocked: bool },
    /// Memory, with a socket by which each end wakes the other.
    Memory(Duplex),
}

/// What a cable has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// A whole frame of so many bytes.
    Frame(usize),
    /// Less than that.
    Part,
    /// What is no frame.
    Broken,
}

/// What a descriptor that is ready says of its cable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ready {
    /// There is something to read, if it is only the end.
    pub has_input: bool,
    /// The other end has gone.
    pub is_over: bool,
}

/// What reading has come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Came {
    /// Something.
    More,
    /// Nothing now.
    Nothing,
    /// There is nobody any more.
    Ended,
}

impl Cable {
    /// One with this socket, which need not be non-blocking.
    #[must_use]
    pub fn new(socket: OwnedFd) -> Self {
        Self::of(Stream::Socket { socket, is_blocked: false })
    }

    /// One in this memory, with this socket to wake each other by.
    ///
    /// # Errors
    ///
    /// It is no such memory ([`Duplex::memory`]).
    pub fn in_memory(memory: OwnedFd, bell: OwnedFd) -> Result<Self, host::Error> {
        Ok(Self::of(Stream::Memory(Duplex::open(memory, bell, Side::Second)?)))
    }

    fn of(stream: Stream) -> Self {
        let input = vec![0; READ_BYTES + PREFIX_BYTES + FRAME_BYTES].into();
        let lanes = Lanes::default();
        let (output, taken, unseen) = (Vec::new(), 0, 0);
        let (start, end, current) = (0, 0, Current::default());
        Self { stream, input, start, end, current, lanes, output, taken, unseen }
    }

    /// The first frame that has come; [`Self::pass`] takes it.
    ///
    /// Of one in memory the head is copied, which nobody can change any more then.
    pub fn find(&mut self) -> Next {
        match &mut self.stream {
            Stream::Socket { .. } => {
                let come = &self.input[self.start..self.end];
                let Some(prefix) = come.first_chunk() else { return Next::Part };
                let Some(bytes) = length_of(*prefix) else { return Next::Broken };
                if come.len() < PREFIX_BYTES + bytes {
                    return Next::Part;
                }
                let first = self.start + PREFIX_BYTES;
                self.current = Current { bytes, copied: first..first + bytes };
            }
            Stream::Memory(duplex) => {
                let (reader, mut prefix) = (&mut duplex.reader, [0; PREFIX_BYTES]);
                match reader.peek(0, &mut prefix) {
                    Err(_) => return Next::Broken,
                    Ok(false) => return Next::Part,
                    Ok(true) => {}
                }
                let Some(bytes) = length_of(prefix) else { return Next::Broken };
                if reader.has(PREFIX_BYTES + bytes) != Ok(true) {
                    return Next::Part;
                }
                let copied = 0..bytes.min(HEAD_BYTES);
                // They are there.
                let _ = reader.peek(PREFIX_BYTES, &mut self.input[copied.clone()]);
                self.current = Current { bytes, copied };
            }
        }
        Next::Frame(self.current.bytes)
    }

    /// The first bytes of the frame that [`Self::find`] has found.
    #[must_use]
    pub fn head(&self) -> &[u8] {
        let Range { start, end } = self.current.copied;
        &self.input[start..end.min(start + HEAD_BYTES)]
    }

    /// All of its bytes.
    fn whole(&mut self) -> &[u8] {
        let Current { bytes, copied } = &mut self.current;
        if let Stream::Memory(duplex) = &mut self.stream
            && copied.len() < *bytes
        {
            let rest = &mut self.input[copied.end..copied.start + *bytes];
            // They are there.
            let _ = duplex.reader.peek(PREFIX_BYTES + copied.len(), rest);
            copied.end = copied.start + *bytes;
        }
        &self.input[copied.clone()]
    }

    /// That frame has been dealt with.
    pub fn pass(&mut self) {
        let bytes = PREFIX_BYTES + std::mem::take(&mut self.current).bytes;
        match &mut self.stream {
            Stream::Socket { .. } => self.start += bytes,
            Stream::Memory(duplex) => duplex.reader.consume(bytes),
        }
    }

    /// Read what there is, behind what has come: what is not whole is moved to the front.
    pub fn read(&mut self) -> Came {
        let Stream::Socket { socket, .. } = &self.stream else { return Came::Nothing };
        self.input.copy_within(self.start..self.end, 0);
        self.end -= std::mem::take(&mut self.start);
        // There is room for a frame behind any part of one.
        let room = &mut self.input[self.end..];
        match recv(socket, room, RecvFlags::DONTWAIT) {
            Ok((0, _)) => Came::Ended,
            Ok((count, _)) => {
                self.end += count;
                Came::More
            }
            Err(Errno::AGAIN | Errno::INTR) => Came::Nothing,
            Err(_) => Came::Ended,
        }
    }

    /// Put the frame that a port's cable has found behind what is to go, for this address if that is another than the
    /// frame's; whether there was room, where so many bytes may wait.
    ///
    /// Where nothing waits it is put straight into memory that has room for it; [`Self::write`] lets it be seen.
    pub fn put(
        &mut self,
        (from, source): (PortId, &mut Self),
        mac: Option<Mac>,
        room: usize,
    ) -> bool {
        if !self.has_output()
            && let Stream::Memory(duplex) = &mut self.stream
            && let Ok(length) = u32::try_from(source.current.bytes)
        {
            let Current { bytes, copied } = &source.current;
            let (prefix, copy) = (length.to_be_bytes(), &source.input[copied.clone()]);
            let pieces = pieces(&prefix, copy, mac.as_ref());
            // What is wrong with it is found when it is written to.
            let is_put = match &source.stream {
                Stream::Memory(Duplex { reader, .. }) => {
                    let rest = (reader, PREFIX_BYTES + copied.len(), bytes - copied.len());
                    duplex.writer.append_from(&pieces, rest)
                }
                Stream::Socket { .. } => duplex.writer.append(&pieces),
            };
            if is_put == Ok(true) {
                self.unseen += PREFIX_BYTES + bytes;
                return true;
            }
        }
        self.lanes.put(from, source.whole(), mac, room)
    }

    /// Whether enough waits to be written, and can be.
    #[must_use]
    pub fn is_batch(&self) -> bool {
        let waits = self.output.len() - self.taken + self.lanes.bytes();
        self.unseen >= BATCH_BYTES || (waits >= BATCH_BYTES && !self.is_blocked())
    }

    /// Whether there is something to write that may be taken.
    #[must_use]
    pub fn can_write(&self) -> bool {
        self.unseen > 0 || (self.has_output() && !self.is_blocked())
    }

    fn is_blocked(&self) -> bool {
        match &self.stream {
            Stream::Socket { is_blocked, .. } => *is_blocked,
            // What is wrong is found when it is written to.
            Stream::Memory(duplex) => duplex.writer.room() == Ok(0),
        }
    }

    /// Whether something waits.
    #[must_use]
    pub fn has_output(&self) -> bool {
        self.output.len() > self.taken || self.lanes.bytes() > 0
    }

    /// What its descriptor is to be polled for, where it is known whether it has something to read.
    #[must_use]
    pub fn interest(&self, knows_of_input: bool) -> PollFlags {
        let mut interest = PollFlags::empty();
        match &self.stream {
            Stream::Socket { .. } => {
                interest.set(PollFlags::IN, !knows_of_input);
                interest.set(PollFlags::OUT, self.has_output());
            }
            Stream::Memory(_) => {
                interest.set(PollFlags::IN, !knows_of_input || self.has_output());
            }
        }
        interest
    }

    /// Have the other end wake us for what is polled for. False: that is so by now.
    #[must_use]
    pub fn sleeps(&self, knows_of_input: bool) -> bool {
        match &self.stream {
            Stream::Socket { .. } => true,
            Stream::Memory(Duplex { reader, writer, .. }) => {
                let reads = knows_of_input || reader.sleeps();
                reads && (!self.has_output() || writer.sleeps())
            }
        }
    }

    /// The other end need not wake us. Whether its descriptor need not be ready for there to be something to read.
    pub fn wakes(&self) -> bool {
        match &self.stream {
            Stream::Socket { .. } => false,
            Stream::Memory(duplex) => {
                duplex.reader.wakes();
                duplex.reader.has_bytes()
            }
        }
    }

    /// Whether something has come that it would be woken for; to watch for it.
    #[must_use]
    pub fn has_come(&self) -> bool {
        matches!(&self.stream, Stream::Memory(duplex) if duplex.reader.has_bytes())
    }

    /// Whether it is worth to watch for what comes: whoever writes has another core.
    #[must_use]
    pub fn can_be_watched(&self) -> bool {
        matches!(&self.stream, Stream::Memory(duplex) if !duplex.reader.shares_core())
    }

    /// Its descriptor is ready for this.
    pub fn note(&mut self, ready: PollFlags) -> Ready {
        let mut is_over = ready.intersects(PollFlags::HUP | PollFlags::ERR);
        let has_input = match &mut self.stream {
            Stream::Socket { is_blocked, .. } => {
                *is_blocked = false;
                // Its end is found by reading.
                ready.intersects(PollFlags::IN) || is_over
            }
            Stream::Memory(duplex) => {
                is_over |= ready.intersects(PollFlags::IN) && !duplex.bell.hush();
                duplex.reader.has_bytes()
            }
        };
        Ready { has_input, is_over }
    }

    /// Write what waits, as far as it is taken.
    ///
    /// # Errors
    ///
    /// There is nobody to take it.
    pub fn write(&mut self) -> io::Result<()> {
        if self.unseen > 0
            && let Stream::Memory(duplex) = &self.stream
        {
            duplex.writer.publish();
            self.unseen = 0;
        }
        loop {
            if self.taken == self.output.len() {
                self.output.clear();
                self.taken = 0;
                self.lanes.take(&mut self.output);
            }
            if self.output.is_empty() {
                return Ok(());
            }
            match self.stream.write(&self.output[self.taken..])? {
                0 => return Ok(()),
                count => self.taken += count,
            }
        }
    }
}

/// The length of a frame, if it is one's.
fn length_of(prefix: [u8; PREFIX_BYTES]) -> Option<usize> {
    let length = u32::from_be_bytes(prefix) as usize;
    (HEADER_BYTES..=FRAME_BYTES).contains(&length).then_some(length)
}

impl Stream {
    /// Write as much as is taken: nothing, if it takes no more now.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Socket { socket, is_blocked } => loop {
                match send(&*socket, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                    Err(Errno::INTR) => {}
                    Err(Errno::AGAIN) => {
                        *is_blocked = true;
                        return Ok(0);
                    }
                    sent => return Ok(sent?),
                }
            },
            Self::Memory(duplex) => duplex.writer.write(bytes).map_err(io::Error::other),
        }
    }
}

impl AsFd for Cable {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.stream {
            Stream::Socket { socket, .. } => socket.as_fd(),
            Stream::Memory(duplex) => duplex.bell.as_fd(),
        }
    }
}
