//! Files whose changes are told (inotify(7)).

use serde::{Deserialize, Serialize};

/// A file, or a directory, whose changes are told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathWatch {
    /// Its number.
    pub number: u32,
    /// Its path.
    pub path: String,
    /// What is told (`IN_*`).
    pub events: u32,
}
