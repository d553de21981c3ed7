//! What validation needs of the machine: its memory, and an engine that hears of changes.

use crate::entry::{Entry, Level};
use crate::limits::TABLE_ENTRIES;
use crate::record::FrameType;
use crate::words::Words;
use xen_abi::Mfn;

/// The domain's memory in words of eight bytes. `index` is below 512; frames are those that the domain owns.
pub trait Memory {
    /// Read a word, all of it at once.
    fn load(&self, mfn: Mfn, index: usize) -> u64;

    /// Read all words of a frame that nobody writes to but processors' walkers, who set accessed and dirty bits.
    fn load_all(&self, mfn: Mfn, words: &mut Words) {
        (0..TABLE_ENTRIES).for_each(|index| words.set(index, self.load(mfn, index)));
    }

    /// Write a word, all of it at once. The frame may be ordinary memory, with translations of its code: the machine
    /// invalidates these.
    fn store(&mut self, mfn: Mfn, index: usize, value: u64);

    /// Write a word if it is `expected`.
    ///
    /// # Errors
    ///
    /// What the word is instead.
    fn compare_exchange(
        &mut self,
        mfn: Mfn,
        index: usize,
        expected: u64,
        value: u64,
    ) -> Result<(), u64>;

    /// Set the frame's entry of the machine-to-physical table.
    fn set_physical(&mut self, mfn: Mfn, pfn: u64);
}

/// An entry of a validated table that was stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Change {
    /// The table that it is in.
    pub table: Mfn,
    /// The table's level.
    pub level: Level,
    /// Which of the table's entries it is.
    pub index: usize,
    /// What it was.
    pub old: Entry,
    /// What it is now.
    pub new: Entry,
}

/// What the engine does when a frame changes its type, or an entry changes.
///
/// The order at a promotion: the record says the new type, not validated; `revoke`; the content is read; the record
/// says validated. At a change of an entry: the new entry's references are taken; the entry is stored; `changed`; the
/// old entry's references are put. At a demotion: all entries' references are put; the record says no type;
/// `demoted`.
///
/// None of these may call back into [`Tables`](crate::Tables).
pub trait Effects {
    /// The frame must stop being writable before this returns: mappings, TLB entries, mirrors and helpers of every
    /// processor. Its last type says what there can be: since it was [`FrameType::None`], nobody had the frame
    /// writable. Back-ends that still wrote would hold a type reference, and there is none.
    fn revoke(&mut self, mfn: Mfn, former: FrameType);

    /// The frame is no page table or descriptor table any more: nothing has to be kept from writing to it.
    fn demoted(&mut self, mfn: Mfn, former: FrameType) {
        let _ = (mfn, former);
    }

    /// An entry was stored. When `old` was present and `new` does not allow all that `old` did, nothing that was
    /// derived from it may be used after this returns. Of a level above L1 that is everything below the entry. What
    /// the guest may rely on a stale TLB for, it asks a flush for, and the caller does that.
    fn changed(&mut self, change: Change) {
        let _ = change;
    }

    /// Somebody waits for this processor: stop at the next table. Asked between tables, of at most 512 entries each.
    fn should_yield(&mut self) -> bool;
}
