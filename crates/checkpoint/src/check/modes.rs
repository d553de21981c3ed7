//! What an image may say about how threads run.

use super::words::require;
use crate::error::Error;
use crate::modes::{FLAGS, FORBIDDEN, MAX_PROCESSORS_BYTES, POLICIES, SPECULATIONS};
use crate::state::modes::Modes;

/// The highest priority of a policy in real time.
const MAX_PRIORITY: u32 = 99;

/// Check how a thread runs.
pub(super) fn check(modes: &Modes) -> Result<(), Error> {
    let is_fine = POLICIES.contains(&modes.policy)
        && modes.priority <= MAX_PRIORITY
        && modes.flags & !FLAGS == 0
        && modes.processors.len() <= MAX_PROCESSORS_BYTES
        && modes.input_priority <= u16::MAX.into();
    require(is_fine, "a thread is scheduled in an impossible way")?;
    let is_kind =
        |(which, how): &(u32, u32)| *which < SPECULATIONS && *how != 0 && how & !FORBIDDEN == 0;
    let is_fine =
        modes.speculation.len() <= SPECULATIONS as usize && modes.speculation.iter().all(is_kind);
    require(is_fine, "a thread speculates in an impossible way")
}
