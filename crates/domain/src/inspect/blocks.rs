//! The list of blocks: one line for each translated block and, for the blocks that the user has
//! named, the guest's instructions and the host's.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use vmm::inspect::{BlockId, BlockRanges, CodePiece, CodeWatcher, GuestCode, Origin, disassemble};

use super::{Error, Symbols, create};

/// The file does not grow beyond this.
const MAX_FILE_BYTES: usize = 256 << 20;

/// The names of the blocks in a list, sorted, each once.
pub fn names(list: &str) -> Vec<BlockId> {
    let lines = list.lines().filter_map(|line| line.strip_prefix(BLOCK));
    let mut names: Vec<BlockId> =
        lines.filter_map(|rest| rest.split(' ').next()?.parse().ok()).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// The word that a block's line begins with; its name is the next one.
pub const BLOCK: &str = "block ";

/// The file, and what goes there.
pub(super) struct BlockList {
    file: File,
    show: BlockRanges,
    symbols: Arc<Symbols>,
    written: usize,
}

impl BlockList {
    /// Makes the file.
    pub(super) fn create(
        path: &Path,
        show: BlockRanges,
        symbols: Arc<Symbols>,
    ) -> Result<Self, Error> {
        Ok(Self { file: create(path)?, show, symbols, written: 0 })
    }

    fn head(&self, guest: &GuestCode<'_>) -> String {
        let how = if guest.interpreted { "interpreted" } else { "translated" };
        let name = self.symbols.name(guest.linear).unwrap_or_default();
        format!(
            "{BLOCK}{} at {:#018x} physical {:#x} cpl {} {} bytes {how} {name}",
            guest.id,
            guest.linear,
            guest.physical,
            guest.cpl,
            guest.bytes.len(),
        )
    }
}

impl CodeWatcher for BlockList {
    fn added(&mut self, code: &CodePiece<'_>) {
        let Origin::Block(guest) = code.origin else { return };
        let mut text = self.head(&guest).trim_end().to_owned() + "\n";
        if self.show.contains(guest.id) {
            text.push_str(" the guest's code:\n");
            text.push_str(&disassemble(guest.bytes, guest.linear, guest.bits));
            text.push_str(" the host's code:\n");
            text.push_str(&disassemble(code.bytes, code.start, 64));
        } else if !self.show.is_empty() {
            return;
        }
        if self.written + text.len() <= MAX_FILE_BYTES {
            self.written += text.len();
            // A full disk costs lines, not the machine.
            let _ = self.file.write_all(text.as_bytes());
        }
    }

    fn dropped(&mut self) {}
}
