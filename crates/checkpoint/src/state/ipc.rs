//! System V IPC (sysvipc(7)). It belongs to the IPC namespace, not to a process.

use serde::{Deserialize, Serialize};

use super::Bytes;

/// All of a namespace.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Ipc {
    /// Segments of shared memory. Their pages are [`Owner::Segment`](super::Owner::Segment)'s, by their places here.
    pub segments: Vec<Segment>,
    /// Sets of semaphores.
    pub semaphores: Vec<Semaphores>,
    /// Queues of messages.
    pub queues: Vec<MessageQueue>,
}

/// What everything has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IpcName {
    /// Its number.
    pub id: u32,
    /// Its key.
    pub key: u32,
    /// Whose it is.
    pub user: u32,
    /// Whose it is.
    pub group: u32,
    /// Who may use it: the lowest nine bits.
    pub mode: u32,
}

/// A segment of shared memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Segment {
    /// Its name.
    pub name: IpcName,
    /// Its bytes.
    pub bytes: u64,
    /// Whether it ends when nobody is attached to it any more (`IPC_RMID`).
    pub removed: bool,
}

/// A set of semaphores.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Semaphores {
    /// Its name.
    pub name: IpcName,
    /// Their values.
    pub values: Vec<u16>,
}

/// A queue of messages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageQueue {
    /// Its name.
    pub name: IpcName,
    /// How many bytes it may hold.
    pub limit: u64,
    /// The messages, the oldest first.
    pub messages: Vec<Message>,
}

/// A message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// Its type.
    pub kind: i64,
    /// What it says.
    pub bytes: Bytes,
}

/// What the end of a process changes of a semaphore (`SEM_UNDO`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Undo {
    /// The set's number.
    pub id: u32,
    /// The semaphore's place in it.
    pub place: u16,
    /// What is added to its value.
    pub change: i16,
}
