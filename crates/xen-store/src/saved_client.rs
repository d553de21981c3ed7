//! The saved state of a client: what it has asked for and not had yet.

use serde::{Deserialize, Serialize};

/// See above.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SavedClient {
    /// The beginning of a message.
    pub input: Vec<u8>,
    pub is_broken: bool,
    /// Bytes that wait for it.
    pub output: Vec<u8>,
    /// What it watches, as it says it, and the tokens.
    pub watches: Vec<(String, String)>,
    pub transactions: Vec<u32>,
    pub last_transaction: u32,
}
