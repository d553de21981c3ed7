//! The translator's records of a block, of each guest instruction in a block (a mark), and of a page with blocks.

use iced_x86::Instruction;

use super::host_code::HostCode;
use super::key::Key;
use super::scratch::Scratch;
use crate::memory::{Linear, PAGE_SIZE, Physical};

/// A mark: the place in host code where a guest instruction starts.
#[derive(Debug, Clone, Copy)]
#[repr(Rust, packed(2))]
pub(crate) struct Mark {
    /// Offset in the code cache.
    pub(super) host: u32,
    pub(super) block: u32,
    /// Distance from the block's first instruction, in bytes.
    pub(super) guest: u16,
}

/// One translated block.
#[derive(Debug)]
pub(crate) struct Block {
    pub(super) key: Key,
    /// Second page, for a block of one instruction that straddles two.
    pub(super) second: Option<Physical>,
    /// Length of the guest code in bytes.
    pub(super) length: u16,
    /// Host addresses: of the body, of what is behind it, and of the exit stubs.
    pub(super) start: HostCode,
    pub(super) end: HostCode,
    pub(super) exit_stubs: HostCode,
    /// Entries: where the scratch registers are spilled, and for when they already are.
    pub(super) cold: HostCode,
    pub(super) warm: HostCode,
    /// Entry for when the canonical scratch registers are spilled, whatever the block's own are.
    pub(super) canonical: HostCode,
    /// Entry for when the scratch registers are spilled and x87 and vector state is loaded, if the
    /// block touches it.
    pub(super) live: Option<HostCode>,
    pub(super) scratch: Option<Scratch>,
    /// How many blocks ago these were chosen (scratch.rs).
    pub(super) inherited: u8,
    /// The interpreter executes all of it, because an inspection says so.
    pub(super) interpreted: bool,
    pub(super) marks: std::ops::Range<u32>,
    /// The first slot that is linked to it, or [`NONE`].
    pub(super) incoming: u32,
    pub(super) alive: bool,
}

impl Block {
    pub(super) fn overlaps(&self, written: &std::ops::Range<Physical>) -> bool {
        let start = self.key.physical;
        let end = start.plus(u64::from(self.length));
        if self.second == Some(written.start.page()) {
            // The second half starts at its page's first byte.
            let rest = end.0 - start.page().0 - PAGE_SIZE;
            return written.start.offset() < rest;
        }
        start < written.end && written.start < end
    }

    /// The guest address of one of its marks, in this page if it is relocatable.
    pub(super) fn linear_of(&self, mark: Mark, code_page: Linear) -> Linear {
        let key = &self.key;
        key.relocated(key.linear.plus(u64::from(mark.guest)), code_page)
    }
}

/// The blocks of one guest page.
#[derive(Debug, Default)]
pub(super) struct Page {
    pub(super) blocks: Vec<u32>,
    /// Linear addresses of the page at which relocatable blocks have been entered into a jump cache.
    pub(super) linears: Vec<Linear>,
    pub(super) near_writes: u32,
}

/// An instruction that Rust executes for a block (assist.rs).
#[derive(Debug, Clone, Copy)]
pub(super) struct Assisted {
    pub(super) instruction: Instruction,
    /// Where the block goes on: offset in the code cache.
    pub(super) onwards: u32,
}
