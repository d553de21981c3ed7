//! POSIX message queues (mq_overview(7)). They belong to the IPC namespace, as those of System V do.

use serde::{Deserialize, Serialize};

use super::Bytes;

/// A queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PosixQueue {
    /// Its name, without a slash; none if it has none any more.
    pub name: Option<String>,
    /// Whose it is.
    pub user: u32,
    /// Whose it is.
    pub group: u32,
    /// Who may use it: the lowest nine bits.
    pub mode: u32,
    /// The most messages at once.
    pub max_messages: u64,
    /// The most bytes of a message.
    pub message_bytes: u64,
    /// The messages with their priorities, in the order in which they are received.
    pub messages: Vec<(u32, Bytes)>,
}
