//! Selection of blocks, and the environment variables for it where a description is out of reach.

use std::str::FromStr;

use spec::{ListBlocks, Watch};
use vmm::inspect::{BlockId, BlockRanges};

use super::Error;

/// Stands for `--interpret-blocks`.
pub const INTERPRET_BLOCKS: &str = "BIVOUAC_INTERPRET_BLOCKS";

/// Stands for `--list-blocks`.
pub const LIST_BLOCKS: &str = "BIVOUAC_LIST_BLOCKS";

/// Whether anything is to be seen, or changed, of what the engine does.
pub fn is_used(watch: &Watch) -> bool {
    let mut variables = [INTERPRET_BLOCKS, LIST_BLOCKS].into_iter();
    watch.looks_into_engine() || variables.any(|name| std::env::var_os(name).is_some())
}

/// Which blocks are interpreted: those with these names, or those in a file, because a command line is short.
pub(super) fn interpreted(watch: &Watch) -> Result<BlockRanges, Error> {
    let Some(text) = said(watch.interpret_blocks.as_ref(), INTERPRET_BLOCKS)? else {
        return Ok(BlockRanges::default());
    };
    let ranges = match text.strip_prefix('@') {
        None => text.parse(),
        Some(path) => match std::fs::read_to_string(path) {
            Ok(ranges) => ranges.trim().parse(),
            Err(error) => Err(format!("{path}: {error}")),
        },
    };
    ranges.map_err(|reason| Error::Blocks { name: "--interpret-blocks", reason })
}

/// The list of blocks that is wanted, and those that are shown whole in it.
pub(super) fn list(watch: &Watch) -> Result<Option<(ListBlocks, BlockRanges)>, Error> {
    let Some(list) = said(watch.list_blocks.as_ref(), LIST_BLOCKS)? else { return Ok(None) };
    let show = list.show.as_deref().map_or_else(|| Ok(BlockRanges::default()), str::parse);
    let show = show.map_err(|reason| Error::Blocks { name: "--list-blocks", reason })?;
    Ok(Some((list, show)))
}

/// The block that is translated wrongly.
pub(super) fn planted(watch: &Watch) -> Result<Option<BlockId>, Error> {
    let block = watch.plant_fault.as_deref().map(str::parse).transpose();
    block.map_err(|reason| Error::Blocks { name: "--plant-fault", reason })
}

/// What is said, or what a variable says.
fn said<T>(said: Option<&T>, name: &'static str) -> Result<Option<T>, Error>
where
    T: FromStr<Err: std::fmt::Display> + Clone,
{
    if let Some(said) = said {
        return Ok(Some(said.clone()));
    }
    let Some(text) = std::env::var_os(name).filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    let read = text.to_string_lossy().parse().map(Some);
    read.map_err(|reason: T::Err| Error::Variable { name, reason: reason.to_string() })
}
