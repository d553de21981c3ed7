//! System V IPC.

use std::collections::{BTreeMap, BTreeSet};

use super::words::require;
use crate::error::Error;
use crate::limits::{
    END_OF_MEMORY, MAX_IPC, MAX_MESSAGE_BYTES, MAX_MESSAGES, MAX_SEMAPHORES, PAGE_BYTES,
};
use crate::state::{Ipc, IpcName, Mapping, Source, State, Undo};

/// The highest value of a semaphore.
const MAX_VALUE: u16 = 32_767;

pub(super) fn check(state: &State) -> Result<(), Error> {
    let mut bytes = BTreeMap::new();
    if let Some(ipc) = &state.ipc {
        check_all(ipc)?;
        bytes.extend(ipc.segments.iter().map(|segment| (segment.name.id, segment.bytes)));
    }
    for process in &state.processes {
        check_undo(&process.undo, state.ipc.as_ref())?;
    }
    for mapping in state.processes.iter().flat_map(|process| &process.memory.mappings) {
        check_mapping(mapping, &bytes)?;
    }
    Ok(())
}

fn check_all(ipc: &Ipc) -> Result<(), Error> {
    require(ipc.segments.len() <= MAX_IPC, "it has too much System V memory")?;
    require(ipc.semaphores.len() <= MAX_IPC, "it has too many semaphores")?;
    require(ipc.queues.len() <= MAX_IPC, "it has too many message queues")?;
    for segment in &ipc.segments {
        let is_fine = is_name(&segment.name) && (1..=END_OF_MEMORY).contains(&segment.bytes);
        require(is_fine, "System V memory is wrong")?;
    }
    for set in &ipc.semaphores {
        let is_fine = is_name(&set.name)
            && (1..=MAX_SEMAPHORES).contains(&set.values.len())
            && set.values.iter().all(|value| *value <= MAX_VALUE);
        require(is_fine, "semaphores are wrong")?;
    }
    for queue in &ipc.queues {
        let is_fine = is_name(&queue.name)
            && queue.messages.len() <= MAX_MESSAGES
            && queue
                .messages
                .iter()
                .all(|message| message.kind > 0 && message.bytes.len() <= MAX_MESSAGE_BYTES);
        require(is_fine, "a message queue is wrong")?;
    }
    Ok(())
}

/// What is undone is done to semaphores that there are, each once.
fn check_undo(undo: &[Undo], ipc: Option<&Ipc>) -> Result<(), Error> {
    let mut places = BTreeSet::new();
    for Undo { id, place, change } in undo {
        let mut sets = ipc.into_iter().flat_map(|ipc| &ipc.semaphores);
        let set = sets.find(|set| set.name.id == *id);
        let value = set.and_then(|set| set.values.get(usize::from(*place)));
        let after = value.map(|value| i32::from(*value) + i32::from(*change));
        let is_fine = after.is_some_and(|after| (0..=i32::from(MAX_VALUE)).contains(&after))
            && *change != i16::MIN
            && places.insert((*id, *place));
        require(is_fine, "what is undone of semaphores is wrong")?;
    }
    Ok(())
}

fn is_name(name: &IpcName) -> bool {
    name.id <= i32::MAX.cast_unsigned() && name.mode <= 0o777
}

/// A part of a segment that there is.
fn check_mapping(mapping: &Mapping, bytes: &BTreeMap<u32, u64>) -> Result<(), Error> {
    let Source::Segment { id, offset, .. } = mapping.source else { return Ok(()) };
    let all = bytes.get(&id).map_or(0, |bytes| bytes.next_multiple_of(PAGE_BYTES));
    let is_fine = mapping.shared
        && offset % PAGE_BYTES == 0
        && offset <= mapping.start
        && offset.checked_add(mapping.end - mapping.start).is_some_and(|end| end <= all);
    require(is_fine, "System V memory is mapped wrongly")
}
