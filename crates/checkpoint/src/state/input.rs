//! Signals about input and output (fcntl(2), `O_ASYNC`).

use serde::{Deserialize, Serialize};

/// Who is told by a signal that there is something to be read or written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputSignal {
    /// Of which description: a place in [`State::descriptions`](super::State::descriptions).
    pub description: usize,
    /// A process that has it, and asks for it again.
    pub holder: u32,
    /// `F_OWNER_TID`, `F_OWNER_PID` or `F_OWNER_PGRP`.
    pub kind: u32,
    /// The number of that thread, process or group; 0 if there is none any more.
    pub owner: u32,
    /// Whether it is told of input and output (`O_ASYNC`), or only of urgent data.
    #[serde(default = "is_told")]
    pub is_told: bool,
    /// Which signal; 0 for SIGIO without information (`F_SETSIG`).
    pub signal: u32,
}

/// What older images say of all.
fn is_told() -> bool {
    true
}
