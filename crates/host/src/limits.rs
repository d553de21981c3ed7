//! Every limit of this crate in one place.

use std::os::fd::RawFd;
use std::time::Duration;

/// Regions of a guest's memory.
pub const MAX_REGIONS: usize = 64;

/// Pages of the memory's file behind the guest's memory ([`crate::memory`], 4).
pub const SPARE_PAGES: usize = 1024;

/// Bytes of guest memory that are fetched at once: what is near a byte that is needed is mostly needed too, and what
/// is not needed costs memory.
pub const CHUNK_BYTES: u64 = 32 << 10;

/// Pieces of one transfer (`UIO_MAXIOV`, readv(2)).
pub const MAX_PIECES: usize = 1024;

/// Bytes that are read from a file which does not know its length, whatever the caller would take.
pub const MAX_STREAM_BYTES: u64 = 1 << 30;

/// Descriptors that this process looks at where the host has no list of them.
pub const MAX_LISTED_DESCRIPTORS: RawFd = 1 << 16;

/// Polls of [`fn@crate::watch`] between two readings of the clock.
pub const POLLS_PER_READING: u32 = 16;

/// Bytes of each direction of a [`crate::duplex`], a power of two: several of the largest frames of a network.
pub const DUPLEX_BYTES: u64 = 1 << 20;

/// The shortest and the longest time that [`crate::watch::Patience`] has: what sleeping and waking cost, and several
/// times that.
pub const LEAST_WATCH: Duration = Duration::from_micros(10);
/// See above.
pub const MOST_WATCH: Duration = Duration::from_micros(80);

/// Bytes of the extended state of a task, AMX tiles included (Intel SDM volume 1, chapter 13: 11 KiB today).
pub const EXTENDED_STATE_MAX_BYTES: usize = 64 << 10;

/// How long a process may take to enter a user namespace.
pub const ADMISSION_PATIENCE: Duration = Duration::from_secs(20);
