//! Inspection: telling watchers of new blocks, and blocks that an inspection has interpreted or spoiled
//! (inspect.rs).

use super::cache::Part;
use super::planned::Run;
use super::{Key, Translator};
use crate::inspect::{BlockId, GuestCode, Origin};
use crate::memory::Linear;

impl Translator {
    /// Add host code of the engine's own to the cache.
    pub(super) fn append_own(&mut self, name: &'static str, code: &[u8]) {
        let start = self.cache.append(Part::Bodies, code);
        if let Some(inspection) = &mut self.inspection {
            inspection.tell(start.0, code, Origin::Engine(name));
        }
    }

    /// Hold or spoil a run if an inspection asks for it; the identity of its block.
    pub(super) fn inspect(&self, key: Key, run: &mut Run) -> Option<BlockId> {
        let inspection = self.inspection.as_ref()?;
        let bytes = &run.bytes[..usize::from(run.length()).min(run.bytes.len())];
        let id = BlockId::new(key.linear.offset(), key.mode.guest.cpl(), bytes);
        if inspection.interpreted.contains(id) {
            run.interpret_all();
        } else if inspection.planted_fault == Some(id) {
            run.spoil();
        }
        Some(id)
    }

    /// Tell of a block at `linear`.
    pub(super) fn tell_of_block(&mut self, number: u32, id: BlockId, linear: Linear, run: &Run) {
        let block = &self.blocks[number as usize];
        let guest = GuestCode {
            id,
            linear: linear.0,
            physical: block.key.physical.0,
            cpl: block.key.mode.guest.cpl(),
            bits: block.key.mode.guest.bits(),
            bytes: &run.bytes[..usize::from(run.length()).min(run.bytes.len())],
            interpreted: block.interpreted,
        };
        let (start, stubs) = (block.start, block.exit_stubs);
        if let Some(inspection) = &mut self.inspection {
            inspection.tell(start.0, self.emitter.bytes(), Origin::Block(guest));
            if !self.exit_stubs.bytes().is_empty() {
                inspection.tell(stubs.0, self.exit_stubs.bytes(), Origin::Engine("exit_stubs"));
            }
        }
    }

    /// Tell that all code has been dropped.
    pub(super) fn tell_of_drop(&mut self) {
        if let Some(inspection) = &mut self.inspection {
            inspection.watchers.iter_mut().for_each(|watcher| watcher.dropped());
        }
    }

    /// The end of the block at a mark, in this page, if all of it is to be interpreted.
    pub(crate) fn interpreted_end(&self, mark: u32, code_page: Linear) -> Option<Linear> {
        let block = &self.blocks[self.marks[mark as usize].block as usize];
        let end = block.key.linear.plus(u64::from(block.length));
        block.interpreted.then(|| block.key.relocated(end, code_page))
    }
}
