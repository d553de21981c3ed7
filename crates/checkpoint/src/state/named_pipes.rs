//! Named pipes (fifo(7)) that are open. Their files are the file system's.

use serde::{Deserialize, Serialize};

use super::Bytes;

/// A named pipe.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedPipe {
    /// Its path.
    pub path: String,
    /// How many bytes it can hold.
    pub capacity: u64,
    /// What is in it.
    pub content: Bytes,
}
