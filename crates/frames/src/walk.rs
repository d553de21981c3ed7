//! Where the L1 entry of a linear address is, in the tables as they are now.

use crate::entry::{Entry, Level};
use crate::machine::Memory;
use crate::record::{FrameType, Frames};
use xen_abi::Mfn;

/// The L1 and the index in it that hold the entry of a linear address.
///
/// `None` if the address is not canonical or in the hypervisor's part, if a table on the way is not present, or if
/// what is found at the end is no L1 (a linear entry leads to an L2 there).
pub fn walk(
    frames: Frames<'_>,
    memory: &impl Memory,
    root: Mfn,
    address: u64,
) -> Option<(Mfn, usize)> {
    let is_canonical = (address as i64) << 16 >> 16 == address as i64;
    if !is_canonical || Level::L4.reserves(Level::L4.index(address)) {
        return None;
    }
    let mut table = root;
    for level in [Level::L4, Level::L3, Level::L2] {
        // Only what is validated is followed: nothing but the domain's own frames is read.
        Level::of_type(frames.frame_type(table))?;
        let entry = Entry(memory.load(table, level.index(address)));
        if !entry.is_present() {
            return None;
        }
        table = entry.mfn();
    }
    (frames.frame_type(table) == FrameType::L1).then(|| (table, Level::L1.index(address)))
}
