//! Addresses that neither the seed nor any process of the image uses.

use crate::error::Error;
use crate::holes;
use crate::proc::maps;
use crate::state::State;

/// An address for an area where neither `task` nor any process of the image has anything.
pub(super) fn find(task: u32, state: &State) -> Result<u64, Error> {
    let mut used = maps::taken(task)?;
    for process in &state.processes {
        used.extend(process.memory.mappings.iter().map(|mapping| (mapping.start, mapping.end)));
    }
    let none = || Error::Host("its processes leave no address free".to_owned());
    holes::find(used).ok_or_else(none)
}
