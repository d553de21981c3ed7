//! Same-ISA binary translation of 64-bit code, and of 32-bit code ([`code_32`]).
//!
//! The pipeline is the path: [`decode`] reads a run of guest instructions, [`plan`] chooses the
//! translation of each and finds the free registers, [`generate`] emits the host code with
//! [`emit`], [`cache`] keeps it. This module knows all blocks: the guest code that they were made
//! from, the blocks that are linked to them, and which blocks a write to guest memory invalidates.
//!
//! Invariants:
//!
//! 1. *Registers stay where they are.* In a block, every guest register is in its host register,
//!    except for the block's three scratch registers, whose guest values are in the context from
//!    the block's entry to its exits, and RCX within a look-up.
//! 2. *The host's flags are the guest's*, at every host instruction. Everything that a block adds
//!    leaves them alone (`lea`, `mov`, `pext`, `pdep`, `rorx`, `jrcxz`).
//! 3. A guest instruction changes guest state only in its last host instructions, none of which
//!    can fault except the copied one itself. So at any miss or fault the state is that of the
//!    instruction's start.
//! 4. A block lies in one guest page, except that a block may consist of one instruction that
//!    straddles two. Direct links lead only to blocks of the same physical page, or to global pages of
//!    the kernel, which are looked at again when it flushes ([`cross_page`]); all other jumps go through the
//!    jump cache, or the rings of [`returns`], which are flushed with the TLB. So no change of the page
//!    tables can make a link wrong.
//! 5. A page with blocks has no write tag in any TLB.
//! 6. User code is *relocatable*: programs and libraries are mapped elsewhere each time, from pages
//!    that stay. A relocatable block knows its offset in the page only; the page's linear address
//!    is in the context, where every jump through the jump cache puts it (links stay in the page),
//!    and is added wherever an address becomes visible. The same block is found for any address.
//! 7. The instruction after an `sti` completes before Rust looks for interrupts (SDM 2B "STI"). Slots
//!    lie behind it. If it misses, it is interpreted and not tried again, because the way back into
//!    the block ends at a kick; and it looks up no coalesced range, because such a look-up leaves the block if
//!    it misses.

mod action;
mod assist;
mod block;
mod builder;
pub(crate) mod cache;
pub(crate) mod coalesce;
pub(crate) mod code_32;
pub(crate) mod cpuid;
mod cross_page;
mod crossing;
pub(crate) mod decode;
pub(crate) mod emit;
mod extended;
mod find;
mod generate;
pub(crate) mod host_code;
pub(crate) mod inline;
mod interrupt;
mod jump_slot;
mod key;
mod leave;
mod links;
pub(crate) mod miss;
mod mode;
mod paravirtual;
mod places;
mod plan;
mod planned;
mod reach;
mod returns;
mod scratch;
mod sites;
pub(crate) mod string;
mod switching;
mod syscall;
mod thunk;
pub(crate) mod unchain;
pub(crate) mod views;
mod watched;
mod way_out;

use iced_x86::{CodeSize, Instruction, OpKind, Register};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::config::Error;
use crate::inspect::Inspection;
use crate::memory::{Linear, PAGE_SIZE, Physical};
use crate::peers::Peers;
use crate::stops::Offsets;
use block::{Assisted, Block, Mark, Page};
use cache::{CACHE_BYTES, CodeCache, EXIT_STUB_BYTES};
use emit::Emitter;
use host_code::HostCode;
use jump_slot::{CrossPageLinks, JumpSlot, NONE};
pub(crate) use key::{Key, Mode, Vectors};
use places::Places;
use sites::Sites;
use way_out::{ThunkKey, Thunks};

/// Linear addresses of one page that are remembered.
const MAX_LINEARS: usize = 12;

/// Writes to a page beside its translated code until all of its translations are dropped.
const MAX_NEAR_WRITES: u32 = 32;

/// Everything translated for one machine.
pub(crate) struct Translator {
    pub(crate) cache: CodeCache,
    emitter: Emitter,
    exit_stubs: Emitter,
    blocks: Vec<Block>,
    /// Where the bodies of the blocks begin, and their exit stubs.
    places: Places,
    exit_stub_places: Places,
    known: FxHashMap<Key, u32>,
    pages: FxHashMap<Physical, Page>,
    marks: Vec<Mark>,
    slots: Vec<JumpSlot>,
    cross_page: CrossPageLinks,
    thunks: FxHashMap<ThunkKey, Thunks>,
    /// The thunk that loads x87 and vector state.
    load_vectors: Option<HostCode>,
    /// Instructions that blocks leave to the interpreter, by mark.
    left: FxHashMap<u32, Instruction>,
    /// Assisted instructions, by mark (assist.rs).
    assisted: FxHashMap<u32, Assisted>,
    /// Marks of instructions that come after an `sti` (invariant 7).
    sheltered: FxHashSet<u32>,
    /// Physical addresses of kernel instructions that reach what the mirror does not have, by page.
    exceptions: FxHashMap<Physical, FxHashSet<Physical>>,
    /// Instructions of which operands have crossed pages.
    crossings: Sites,
    /// The watchers of blocks, and which blocks are to be interpreted.
    pub(crate) inspection: Option<Box<Inspection>>,
}

impl Translator {
    /// An empty translator.
    ///
    /// # Errors
    ///
    /// As [`CodeCache::new`].
    pub(crate) fn new() -> Result<Self, Error> {
        let cache = CodeCache::new(CACHE_BYTES, EXIT_STUB_BYTES)?;
        Ok(Self {
            emitter: Emitter::new(cache.start()),
            exit_stubs: Emitter::new(cache.start()),
            cache,
            blocks: Vec::new(),
            places: Places::default(),
            exit_stub_places: Places::default(),
            known: FxHashMap::default(),
            pages: FxHashMap::default(),
            marks: Vec::new(),
            slots: Vec::new(),
            cross_page: CrossPageLinks::default(),
            thunks: FxHashMap::default(),
            load_vectors: None,
            left: FxHashMap::default(),
            assisted: FxHashMap::default(),
            sheltered: FxHashSet::default(),
            exceptions: FxHashMap::default(),
            crossings: Sites::default(),
            inspection: None,
        })
    }

    /// Drop everything.
    pub(crate) fn clear(&mut self) {
        self.cache.clear();
        self.blocks.clear();
        self.places.clear();
        self.exit_stub_places.clear();
        self.known.clear();
        self.pages.clear();
        self.marks.clear();
        self.slots.clear();
        self.cross_page.clear();
        self.thunks.clear();
        self.load_vectors = None;
        self.left.clear();
        self.assisted.clear();
        self.sheltered.clear();
        self.exceptions.clear();
        self.crossings.clear();
        self.tell_of_drop();
    }

    /// The instructions of a page that are not to use the mirror.
    fn exceptions_in(&self, physical: Physical) -> FxHashSet<Physical> {
        self.exceptions.get(&physical.page()).cloned().unwrap_or_default()
    }

    /// Translate the instruction at `at` with a TLB look-up from now on, not with the mirror.
    pub(crate) fn except(&mut self, at: Physical, peers: &Peers) {
        self.exceptions.entry(at.page()).or_default().insert(at);
        let blocks = self.pages.get(&at.page()).map(|page| page.blocks.clone());
        for number in blocks.unwrap_or_default() {
            if self.blocks[number as usize].overlaps(&(at..at.plus(1))) {
                self.kill(number, peers);
            }
        }
    }

    /// Offsets in a page at which instructions start that have been translated.
    pub(crate) fn instruction_starts(&self, page: Physical) -> Vec<usize> {
        let numbers = self.pages.get(&page).map_or(&[][..], |page| &page.blocks);
        let blocks = numbers.iter().map(|&number| &self.blocks[number as usize]);
        let of_page = blocks.filter(|block| block.key.physical.page() == page);
        let starts = of_page.flat_map(|block| {
            let offset = block.key.physical.0 - page.0;
            let marks = self.straight_marks(block.marks.clone());
            marks.iter().map(move |mark| offset as usize + usize::from(mark.guest))
        });
        starts.collect()
    }

    /// Drop the blocks that overlap `length` bytes about to be written at `at`, which do not leave
    /// the page. A page that is written again and again beside its code loses all blocks.
    pub(crate) fn invalidate(&mut self, at: Physical, length: usize, peers: &Peers) -> u64 {
        let Some(page) = self.pages.get_mut(&at.page()) else {
            // Marked by a processor that has not translated anything there yet, and will look again.
            peers.ram.set_code(at, false);
            return 0;
        };
        page.near_writes += 1;
        let all = page.near_writes > MAX_NEAR_WRITES;
        peers.drop_copy(at.page());
        let written = at..at.plus(length as u64);
        let doomed: Vec<u32> = page
            .blocks
            .iter()
            .copied()
            .filter(|&number| all || self.blocks[number as usize].overlaps(&written))
            .collect();
        for &number in &doomed {
            self.kill(number, peers);
        }
        doomed.len() as u64
    }

    /// Drop the blocks that are over any of these offsets in their page.
    pub(crate) fn cut(&mut self, at: &Offsets, peers: &Peers) {
        let over = |block: &Block| {
            let start = block.key.physical;
            let length = u64::from(block.length).min(PAGE_SIZE - start.offset());
            block.alive && at.are_in(start, length)
        };
        let blocks = self.blocks.iter().zip(0..);
        let doomed: Vec<u32> =
            blocks.filter(|(block, _)| over(block)).map(|(_, number)| number).collect();
        doomed.into_iter().for_each(|number| self.kill(number, peers));
    }

    fn kill(&mut self, number: u32, peers: &Peers) {
        let block = &mut self.blocks[number as usize];
        if !block.alive {
            return;
        }
        block.alive = false;
        let key = block.key;
        let second = block.second;
        let incoming = std::mem::replace(&mut block.incoming, NONE);
        self.known.remove(&key);
        self.remove_jumps(key, peers);
        self.unlink_all(incoming);
        for page in [Some(key.physical.page()), second].into_iter().flatten() {
            self.forget_in_page(page, number, peers);
        }
    }

    /// Remove a block's lines from the jump caches.
    fn remove_jumps(&self, key: Key, peers: &Peers) {
        if !key.is_relocatable() {
            return peers.remove_jump(key.jump_address(key.linear));
        }
        if key.is_64_bit() {
            peers.remove_physical_jump(key.physical);
        }
        let page = self.pages.get(&key.physical.page());
        let linears = page.map_or(&[][..], |page| &page.linears);
        if linears.len() == MAX_LINEARS {
            return peers.remove_all_jumps();
        }
        let addresses = linears.iter().map(|linear| key.jump_address(linear.plus(key.linear.0)));
        addresses.for_each(|address| peers.remove_jump(address));
    }

    /// A block is about to be entered into a jump cache at `linear`.
    fn note_linear(&mut self, key: Key, linear: Linear) {
        if !key.is_relocatable() {
            return;
        }
        if let Some(page) = self.pages.get_mut(&key.physical.page()) {
            let linear = linear.page();
            if page.linears.len() < MAX_LINEARS && !page.linears.contains(&linear) {
                page.linears.push(linear);
            }
        }
    }

    fn forget_in_page(&mut self, at: Physical, number: u32, peers: &Peers) {
        let Some(page) = self.pages.get_mut(&at) else { return };
        page.blocks.retain(|&other| other != number);
        if page.blocks.is_empty() {
            self.pages.remove(&at);
            peers.drop_copy(at);
            peers.ram.set_code(at, false);
        }
    }

    /// The guest address of a mark, in this page if it is relocatable.
    pub(crate) fn mark_address(&self, number: u32, code_page: Linear) -> Linear {
        let mark = self.marks[number as usize];
        self.blocks[mark.block as usize].linear_of(mark, code_page)
    }

    /// The instruction that the block left to the interpreter at a mark, as it is in this page.
    pub(crate) fn left_instruction(&self, mark: u32, code_page: Linear) -> Option<Instruction> {
        let mut instruction = *self.left.get(&mark)?;
        let block = self.marks[mark as usize].block;
        if self.blocks[block as usize].key.is_relocatable() {
            relocate(&mut instruction, code_page);
        }
        Some(instruction)
    }

    /// The block whose body contains host address `at`.
    fn block_at(&self, at: HostCode) -> Option<u32> {
        let offset = at.offset_from(self.cache.start())?;
        let number = self.places.last_from(offset)?;
        (at < self.blocks[number as usize].end).then_some(number)
    }

    /// The block that has an entry at host address `at`, in its body or in its exit stubs.
    fn block_entered_at(&self, at: HostCode) -> Option<u32> {
        self.block_at(at).or_else(|| {
            let offset = at.offset_from(self.cache.start())?;
            let number = self.exit_stub_places.last_from(offset)?;
            let block = &self.blocks[number as usize];
            [block.cold, block.canonical].contains(&at).then_some(number)
        })
    }
}

/// Move an instruction that was decoded at its offset in a page to that page, with what it says relative
/// to itself.
fn relocate(instruction: &mut Instruction, page: Linear) {
    let by = page.0;
    let ip = Linear(instruction.ip()).plus(by);
    let is_64_bit = instruction.code_size() == CodeSize::Code64;
    instruction.set_ip(if is_64_bit { ip } else { ip.low() }.0);
    if instruction.is_ip_rel_memory_operand() {
        let operand = instruction.memory_displacement64().wrapping_add(by);
        let narrow = instruction.memory_base() == Register::EIP;
        let operand = if narrow { operand & 0xffff_ffff } else { operand };
        instruction.set_memory_displacement64(operand);
    }
    match instruction.op0_kind() {
        OpKind::NearBranch64 => {
            instruction.set_near_branch64(instruction.near_branch64().wrapping_add(by));
        }
        OpKind::NearBranch32 => {
            instruction.set_near_branch32(instruction.near_branch32().wrapping_add(by as u32));
        }
        OpKind::NearBranch16 => {
            instruction.set_near_branch16(instruction.near_branch16().wrapping_add(by as u16));
        }
        _ => {}
    }
}
