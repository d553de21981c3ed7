//! What a block device asks of whoever keeps the bytes.

use super::Segment;

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

/// It did not work; the store has said why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failed;

/// What keeps a disk's bytes. Called with the device locked, so that nothing here waits for long.
pub trait Store: Send {
    /// Bytes of the disk.
    fn bytes(&self) -> u64;

    /// Nothing may be written.
    fn is_read_only(&self) -> bool;

    /// Ranges can be made zero, and their room given back, without writing them.
    fn can_discard(&self) -> bool;

    /// Its serial number, of which the first 20 bytes are shown.
    fn serial(&self) -> &str;

    /// Begin a job. How it went if it is done; otherwise [`Self::finished`] gives its number when it is,
    /// and whoever has done it has the device served again.
    fn start(&mut self, number: usize, job: Job) -> Option<Result<(), Failed>>;

    /// A job that has ended since it was started, and how it went; each is given once.
    fn finished(&mut self) -> Option<(usize, Result<(), Failed>)>;
}
