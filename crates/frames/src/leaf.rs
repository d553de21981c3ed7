//! Entries of L1s that operations on grants replace, by linear address or by their own machine address.

use xen_abi::Mfn;

use crate::abi::Errno;
use crate::entry::Entry;
use crate::machine::{Effects, Memory};
use crate::record::FrameType;
use crate::state::Tables;
use crate::walk::walk;

/// An L1 in use, and the index of an entry of it.
pub type Leaf = (Mfn, usize);

impl<M: Memory + Effects> Tables<'_, M> {
    /// The entry of a linear address in the processor's kernel root as the tables are now.
    pub fn leaf_of_linear(&self, address: u64) -> Option<Leaf> {
        let root = self.state.base(self.vcpu)?;
        walk(self.frames, self.machine, root, address)
    }

    /// The entry at a machine address.
    pub fn leaf_of_machine(&self, address: u64) -> Option<Leaf> {
        let table = Mfn::of_address(address);
        let is_leaf = address.is_multiple_of(8) && self.frames.frame_type(table) == FrameType::L1;
        is_leaf.then_some((table, (address & 0xfff) as usize / 8))
    }

    /// What the entry is.
    pub fn leaf(&self, (table, index): Leaf) -> Entry {
        Entry(self.machine.load(table, index))
    }

    /// Replace the entry.
    ///
    /// # Errors
    ///
    /// Why the new one is refused; nothing has changed then.
    pub fn replace_leaf(&mut self, (table, index): Leaf, new: Entry) -> Result<(), Errno> {
        if self.frames.frame_type(table) != FrameType::L1 {
            return Err(Errno::Inval);
        }
        self.update_leaf(table, index, new, false)
    }
}
