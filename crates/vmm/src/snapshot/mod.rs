//! A machine as a file: its processors, devices and memory, from which any number of machines can start.
//!
//! ```text
//! header | chunks of memory that are not zero ... | table of chunks | state | note | label
//! ```
//!
//! 1. *Memory is fetched when it is touched* ([`host::backing`]): to start from a snapshot costs what its
//!    state costs, whatever its size, and what several machines have not written is in the host's page
//!    cache once. A chunk is stored as it is, or compressed; either can be fetched alone.
//! 2. *The header is written last.* A file that is not whole has none.
//! 3. *Everything is an allegation.* The header, the table, the state, the note and the label have a checksum,
//!    and each chunk has a digest in the table, which is looked at when it is fetched, or before the machine
//!    starts ([`Snapshot::verify`]). What has the right checksum is still checked by whoever uses it.
//! 4. *Memory is copied while the machine runs.* It stands still while the copy is compared with it
//!    ([`draft`]).
//! 5. *The guest's time stands still.* Its time-stamp counter and monotonic clock go on where they were;
//!    the wall clock is the host's, and whoever restores a guest tells it to look.
//!
//! 6. *The label says what others vouch for.* The machine's own process writes table, state and note; whoever
//!    asked for the snapshot may add a label ([`label`]), such as a signature of its [`Digest`], which is that
//!    of all the rest: a label that is good for one file is good for no other. What it says is nothing to us.
//!
//! 7. *State is a list of parts* ([`machine::saved::Parts`]), each with a kind, an instance and a version. What a
//!    device says may change without the format: only that part has another version.
//!
//! The format is described in docs/snapshots.md; [`VERSION`] changes with it.

mod draft;
mod format;
mod reader;
mod state;
#[cfg(test)]
mod tests;
mod writer;

use std::time::Duration;

pub use draft::Draft;
pub use format::{Digest, VERSION};
pub use reader::{Snapshot, label};
pub(crate) use state::State;
pub use writer::Taken;

/// How memory is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Compression {
    /// As it is: machines share what is in the host's page cache.
    #[default]
    None,
    /// With Zstandard, for files that are kept or sent.
    Zstandard,
}

/// Why there is no snapshot, or why a machine cannot start from one.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No snapshot at all.
    #[error("it is no snapshot of a machine, or was not written to its end")]
    Foreign,
    /// Of another version.
    #[error("it has format {found}, and this program knows format {VERSION}; make it again")]
    Version {
        /// What the file says.
        found: u32,
    },
    /// The file has been cut or changed.
    #[error("it is damaged: {0}")]
    Damaged(&'static str),
    /// More memory than a snapshot can have.
    #[error("the machine has more memory than a snapshot can have, which is 1 TiB")]
    TooLarge,
    /// The host cannot read or write.
    #[error(transparent)]
    Host(#[from] std::io::Error),
    /// The guest's memory cannot be read.
    #[error(transparent)]
    Memory(#[from] host::Error),
    /// The machine's state is not of a machine like the one that is to go on.
    #[error(transparent)]
    Unfit(#[from] machine::saved::Unfit),
    /// The host counts time at another pace.
    #[error(
        "it is of a host whose time-stamp counter has {then} kHz; here it has {now}, which a guest \
         cannot be told while it runs"
    )]
    Pace {
        /// There.
        then: u32,
        /// Here.
        now: u32,
    },
    /// A device does not come to rest.
    #[error(transparent)]
    Busy(#[from] machine::saved::Busy),
    /// The processors do not, or have ended.
    #[error("the machine does not stand still; it may have ended")]
    Moving,
}

/// What it took to write a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Written {
    /// For how long the guest stood still.
    pub paused: Duration,
    /// Bytes of memory that are not zero, by the chunk.
    pub memory: u64,
    /// Bytes of the file.
    pub file: u64,
}

impl From<rustix::io::Errno> for Error {
    fn from(errno: rustix::io::Errno) -> Self {
        Self::Host(errno.into())
    }
}
