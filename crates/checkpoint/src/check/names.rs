//! Things that have names in the file system.

use super::words::{is_path, require};
use crate::error::Error;
use crate::limits::{MAX_DESCRIPTIONS, MAX_PIPE_BYTES};
use crate::state::NamedPipe;

pub(super) fn check_named_pipes(pipes: &[NamedPipe]) -> Result<(), Error> {
    require(pipes.len() <= MAX_DESCRIPTIONS, "it has too many named pipes")?;
    for pipe in pipes {
        let is_fine = pipe.capacity <= MAX_PIPE_BYTES as u64
            && pipe.content.len() as u64 <= pipe.capacity
            && is_path(&pipe.path);
        require(is_fine, "a named pipe is wrong")?;
    }
    Ok(())
}
