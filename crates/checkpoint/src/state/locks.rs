//! Locks on files. They are advice: they hold among those who ask for them.

use serde::{Deserialize, Serialize};

/// A lock on a file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Lock {
    /// The description that it was taken by: a place in [`State::descriptions`](super::State::descriptions).
    pub description: usize,
    /// Whose it is, and of which bytes.
    pub owner: LockOwner,
    /// Whether it is the only one there (a lock to write).
    pub exclusive: bool,
}

/// Whose a lock is, and of which bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum LockOwner {
    /// The description's, of the whole file (flock(2)).
    Whole,
    /// The description's (`F_OFD_SETLK`).
    Description {
        /// The bytes.
        bytes: LockedBytes,
    },
    /// A process's (`F_SETLK`).
    Process {
        /// Its number.
        pid: u32,
        /// The bytes.
        bytes: LockedBytes,
    },
}

/// Which bytes of a file are locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LockedBytes {
    /// The first.
    pub start: u64,
    /// The last; none if there is no end.
    pub last: Option<u64>,
}
