//! What a disk asks of the host, which keeps its bytes.

use crate::virtio::Segment;

/// What is to be done. Ranges lie inside the disk; segments of guest memory may be anywhere, and have
/// to be checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Job {
    /// Fill guest memory with what is from `at` on, all of it.
    Read {
        /// Bytes from the start of the disk.
        at: u64,
        /// Guest memory; if it fails, part of it may have been filled.
        target: Vec<Segment>,
    },
    /// Write guest memory from `at` on, all of it.
    Write {
        /// Bytes from the start of the disk.
        at: u64,
        /// Guest memory; if it fails, part of it may have been written.
        source: Vec<Segment>,
    },
    /// Have everything whose writing has ended survive the host.
    Flush,
    /// The range reads as zeroes from now on.
    Zero {
        /// Bytes from the start of the disk.
        at: u64,
        /// How many.
        bytes: u64,
        /// Its room may be given back.
        unmap: bool,
    },
}

impl Job {
    /// Whether it changes the disk.
    pub(super) fn writes(&self) -> bool {
        matches!(self, Self::Write { .. } | Self::Zero { .. })
    }
}

/// It did not work; the backend has said why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failed;

/// Which job it is: that with this number of those that a queue has under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket {
    /// The queue's number, below [`MAX_BLOCK_QUEUES`](crate::limits::MAX_BLOCK_QUEUES).
    pub queue: usize,
    /// A number that no other job of this queue has meanwhile.
    pub number: usize,
}

/// What keeps a disk's bytes. The device calls it while the device is locked, so that no method blocks for long.
pub trait BlockBackend: Send {
    /// Bytes of the disk.
    fn bytes(&self) -> u64;

    /// Nothing may be written.
    fn is_read_only(&self) -> bool;

    /// Ranges can be made zero, and their room given back, without writing them.
    fn can_discard(&self) -> bool;

    /// Its serial number, of which the first 20 bytes are shown.
    fn serial(&self) -> &str;

    /// Begin a job. How it went if it is done; otherwise [`Self::finished`] gives its number when it is,
    /// and the thread that has done it has its queue served again.
    fn start(&mut self, ticket: Ticket, job: Job) -> Option<Result<(), Failed>>;

    /// The number of a job of this queue that has ended since it was started, and how it went; each is given
    /// once.
    fn finished(&mut self, queue: usize) -> Option<(usize, Result<(), Failed>)>;

    /// Have this queue served again, when others have been: there is more in it, and the driver will not ring.
    fn serve_again(&mut self, queue: usize);
}
