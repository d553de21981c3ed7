//! POSIX message queues.

use std::collections::BTreeSet;

use super::words::require;
use crate::error::Error;
use crate::limits::{
    MAX_MESSAGES, MAX_POSIX_QUEUES, MAX_PRIORITY, MAX_QUEUE_MESSAGE_BYTES, MAX_QUEUE_NAME_BYTES,
    MAX_SOCKET_BYTES,
};
use crate::state::{PosixQueue, State};

pub(super) fn check(state: &State) -> Result<(), Error> {
    require(state.posix_queues.len() <= MAX_POSIX_QUEUES, "it has too many message queues")?;
    let mut names = BTreeSet::new();
    for queue in &state.posix_queues {
        let is_new = queue.name.as_ref().is_none_or(|name| names.insert(name));
        require(is_new, "two message queues have one name")?;
        require(is_fine(queue), "a POSIX message queue is wrong")?;
    }
    Ok(())
}

fn is_fine(queue: &PosixQueue) -> bool {
    let is_name = |name: &String| {
        (1..=MAX_QUEUE_NAME_BYTES).contains(&name.len())
            && !name.bytes().any(|byte| byte == b'/' || byte == 0)
            && name != "."
            && name != ".."
    };
    let bytes: usize = queue.messages.iter().map(|(_, message)| message.len()).sum();
    queue.name.as_ref().is_none_or(is_name)
        && queue.mode <= 0o777
        && (1..=MAX_MESSAGES as u64).contains(&queue.max_messages)
        && (1..=MAX_QUEUE_MESSAGE_BYTES as u64).contains(&queue.message_bytes)
        && queue.messages.len() as u64 <= queue.max_messages
        && bytes <= MAX_SOCKET_BYTES
        && queue.messages.iter().all(|(priority, message)| {
            *priority < MAX_PRIORITY && message.len() as u64 <= queue.message_bytes
        })
}
