//! Same-ISA binary translation of 64-bit code.
//!
//! The pipeline is the path: [`decode`] reads a run of guest instructions, [`plan`] decides what
//! becomes of each and which registers are free, [`generate`] writes the host code with
//! [`emit`], [`cache`] keeps it, and this module knows all blocks: where they came from, who jumps
//! to them, and what must be dropped when their bytes are written.
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
//!    the kernel, which are looked at again when it flushes ([`far`]); all other jumps go through the
//!    jump cache, or the rings of [`returns`], which are flushed with the TLB. So no change of the page
//!    tables can make a link wrong.
//! 5. A page with blocks has no write tag in any TLB set.
//! 6. User code is *relocatable*: programs and libraries are mapped elsewhere each time, from pages
//!    that stay. A relocatable block knows its offset in the page only; the page's linear address
//!    is in the context, where every jump through the jump cache puts it (links stay in the page),
//!    and is added wherever an address becomes visible. The same block is found for any address.
//! 7. The instruction after an `sti` completes before Rust looks for interrupts (SDM 2B "STI"). Gates
//!    lie behind it. If it misses, it is interpreted and not tried again, because the way back into
//!    the block ends at a kick; and it looks up no span, because a span that misses leaves the block.

pub(crate) mod answers;
mod assist;
pub(crate) mod cache;
mod crossing;
pub(crate) mod decode;
pub(crate) mod emit;
mod extended;
mod far;
mod generate;
pub(crate) mod inline;
mod interrupt;
mod key;
mod leave;
mod links;
pub(crate) mod miss;
mod places;
mod plan;
mod reach;
mod returns;
mod scratch;
pub(crate) mod spans;
pub(crate) mod stopper;
pub(crate) mod string;
mod syscall;
mod thunk;
pub(crate) mod views;
mod watched;

use std::sync::Arc;

use iced_x86::{Instruction, OpKind, Register};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::config::Error;
use crate::exception::Trap;
use crate::inspect::Inspection;
use crate::memory::{Access, Linear, PAGE_SIZE, Physical};
use crate::package::Package;
use crate::techniques::Technique;
use crate::time::time_stamp;
use crate::vcpu::Vcpu;
use cache::{CACHE_BYTES, CodeCache, EXIT_STUB_BYTES};
use decode::Run;
use emit::Emitter;
pub(crate) use key::{Key, Mode, Vectors};
use links::{Gate, NONE};
use places::Places;
pub(crate) use plan::touches_vectors;
use thunk::{ThunkKey, Thunks};

/// Room that must be free before a block is translated.
const MAX_BLOCK_BYTES: usize = 64 << 10;

/// Gates that one block can have.
const MAX_CLOSINGS: usize = 64;

/// Times that a block is tried to be translated before its first instruction is interpreted.
const MAX_ATTEMPTS: usize = 8;

/// Linear addresses of one page that are remembered.
const MAX_LINEARS: usize = 12;

/// Writes to a page beside its translated code until all of its translations are dropped.
const MAX_NEAR_WRITES: u32 = 32;

/// A place where a guest instruction starts in host code.
#[derive(Debug, Clone, Copy)]
#[repr(Rust, packed(2))]
pub(crate) struct Mark {
    /// Offset in the code cache.
    host: u32,
    block: u32,
    /// Distance from the block's first instruction, in bytes.
    guest: u16,
}

/// One translated block.
#[derive(Debug)]
pub(crate) struct Block {
    key: Key,
    /// Second page, for a block of one instruction that straddles two.
    second: Option<Physical>,
    /// Length of the guest code in bytes.
    length: u16,
    /// Host addresses: of the body, of what is behind it, and of the exit stubs.
    start: u64,
    end: u64,
    exit_stubs: u64,
    /// Entries: where the scratch registers are spilled, and for when they already are.
    cold: u64,
    warm: u64,
    /// Entry for when the canonical scratch registers are spilled, whatever the block's own are.
    canonical: u64,
    /// Entry for when the scratch registers are spilled and x87 and vector state is loaded, if the
    /// block touches it.
    live: Option<u64>,
    scratch: Option<scratch::Scratch>,
    /// All of it is for the interpreter, because an inspection says so.
    held: bool,
    marks: std::ops::Range<u32>,
    /// The first gate that is linked to it, or [`NONE`].
    incoming: u32,
    alive: bool,
}

/// The blocks of one guest page.
#[derive(Debug, Default)]
struct Page {
    blocks: Vec<u32>,
    /// Linear addresses of the page at which relocatable blocks have been entered into a jump cache.
    linears: Vec<u64>,
    near_writes: u32,
}

/// Everything translated for one machine.
pub(crate) struct Translator {
    pub(crate) cache: CodeCache,
    emitter: Emitter,
    exit_stubs: Emitter,
    blocks: Vec<Block>,
    /// Where they begin, and their exit stubs.
    places: Places,
    stub_places: Places,
    known: FxHashMap<Key, u32>,
    pages: FxHashMap<u64, Page>,
    marks: Vec<Mark>,
    gates: Vec<Gate>,
    far: far::Far,
    thunks: FxHashMap<ThunkKey, Thunks>,
    /// The thunk that loads x87 and vector state.
    load_vectors: Option<u64>,
    /// Instructions that blocks leave to the interpreter, by mark.
    left: FxHashMap<u32, Instruction>,
    /// Instructions that blocks are helped with, by mark (assist.rs).
    assisted: FxHashMap<u32, assist::Assisted>,
    /// Marks of instructions that come after an `sti` (invariant 7).
    sheltered: FxHashSet<u32>,
    /// Physical addresses of kernel instructions that reach what the mirror does not have, by page.
    exceptions: FxHashMap<u64, FxHashSet<u64>>,
    /// Instructions of which operands have crossed pages.
    crossings: crossing::Sites,
    /// Who looks at blocks, or wants them done otherwise.
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
            stub_places: Places::default(),
            known: FxHashMap::default(),
            pages: FxHashMap::default(),
            marks: Vec::new(),
            gates: Vec::new(),
            far: far::Far::default(),
            thunks: FxHashMap::default(),
            load_vectors: None,
            left: FxHashMap::default(),
            assisted: FxHashMap::default(),
            sheltered: FxHashSet::default(),
            exceptions: FxHashMap::default(),
            crossings: crossing::Sites::default(),
            inspection: None,
        })
    }

    /// Drop everything.
    pub(crate) fn clear(&mut self) {
        self.cache.clear();
        self.blocks.clear();
        self.places.clear();
        self.stub_places.clear();
        self.known.clear();
        self.pages.clear();
        self.marks.clear();
        self.gates.clear();
        self.far.clear();
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
    fn exceptions_in(&self, physical: u64) -> FxHashSet<u64> {
        self.exceptions.get(&Physical(physical).page().0).cloned().unwrap_or_default()
    }

    /// Have the instruction at `at` look its memory up from now on.
    pub(crate) fn except(&mut self, at: Physical, package: &Package) {
        self.exceptions.entry(at.page().0).or_default().insert(at.0);
        let blocks = self.pages.get(&at.page().0).map(|page| page.blocks.clone());
        for number in blocks.unwrap_or_default() {
            if self.blocks[number as usize].overlaps(&(at.0..at.0 + 1)) {
                self.kill(number, package);
            }
        }
    }

    /// Offsets in a page at which instructions start that have been translated.
    pub(crate) fn instruction_starts(&self, page: Physical) -> Vec<usize> {
        let numbers = self.pages.get(&page.0).map_or(&[][..], |page| &page.blocks);
        let blocks = numbers.iter().map(|&number| &self.blocks[number as usize]);
        let of_page = blocks.filter(|block| Physical(block.key.physical).page() == page);
        let starts = of_page.flat_map(|block| {
            let offset = block.key.physical - page.0;
            let marks = self.straight_marks(block.marks.clone());
            marks.iter().map(move |mark| offset as usize + usize::from(mark.guest))
        });
        starts.collect()
    }

    /// Drop the blocks that overlap `length` bytes about to be written at `at`, which do not leave
    /// the page. A page that is written again and again beside its code loses all blocks.
    pub(crate) fn invalidate(&mut self, at: Physical, length: usize, package: &Package) -> u64 {
        let Some(page) = self.pages.get_mut(&at.page().0) else {
            // Marked by a processor that has not translated anything there yet, and will look again.
            package.ram.set_code(at, false);
            return 0;
        };
        page.near_writes += 1;
        let all = page.near_writes > MAX_NEAR_WRITES;
        package.drop_copy(at.page());
        let written = at.0..at.0 + length as u64;
        let doomed: Vec<u32> = page
            .blocks
            .iter()
            .copied()
            .filter(|&number| all || self.blocks[number as usize].overlaps(&written))
            .collect();
        for &number in &doomed {
            self.kill(number, package);
        }
        doomed.len() as u64
    }

    fn kill(&mut self, number: u32, package: &Package) {
        let block = &mut self.blocks[number as usize];
        if !block.alive {
            return;
        }
        block.alive = false;
        let key = block.key;
        let second = block.second;
        let incoming = std::mem::replace(&mut block.incoming, NONE);
        self.known.remove(&key);
        self.remove_jumps(key, package);
        self.unlink_all(incoming);
        for page in [Some(Physical(key.physical).page()), second].into_iter().flatten() {
            self.forget_in_page(page, number, package);
        }
    }

    /// Strike a block's lines from the jump caches.
    fn remove_jumps(&self, key: Key, package: &Package) {
        if !key.is_relocatable() {
            return package.remove_jump(Linear(key.linear));
        }
        package.remove_physical_jump(Physical(key.physical));
        let page = self.pages.get(&Physical(key.physical).page().0);
        let linears = page.map_or(&[][..], |page| &page.linears);
        if linears.len() == MAX_LINEARS {
            return package.remove_all_jumps();
        }
        linears.iter().for_each(|linear| package.remove_jump(Linear(linear + key.linear)));
    }

    /// A block is about to be entered into a jump cache at `linear`.
    fn note_linear(&mut self, key: Key, linear: Linear) {
        if !key.is_relocatable() {
            return;
        }
        if let Some(page) = self.pages.get_mut(&Physical(key.physical).page().0) {
            let linear = linear.page().0;
            if page.linears.len() < MAX_LINEARS && !page.linears.contains(&linear) {
                page.linears.push(linear);
            }
        }
    }

    fn forget_in_page(&mut self, at: Physical, number: u32, package: &Package) {
        let Some(page) = self.pages.get_mut(&at.0) else { return };
        page.blocks.retain(|&other| other != number);
        if page.blocks.is_empty() {
            self.pages.remove(&at.0);
            package.drop_copy(at);
            package.ram.set_code(at, false);
        }
    }

    /// The guest address of a mark, in this page if it is relocatable.
    pub(crate) fn mark_address(&self, number: u32, code_page: u64) -> u64 {
        let mark = self.marks[number as usize];
        self.blocks[mark.block as usize].key.linear_of(mark, code_page)
    }

    /// The instruction that the block left to the interpreter at a mark, as it is in this page.
    pub(crate) fn left_instruction(&self, mark: u32, code_page: u64) -> Option<Instruction> {
        let mut instruction = *self.left.get(&mark)?;
        let block = self.marks[mark as usize].block;
        if self.blocks[block as usize].key.is_relocatable() {
            relocate(&mut instruction, code_page);
        }
        Some(instruction)
    }

    /// The block whose body contains host address `at`.
    fn block_at(&self, at: u64) -> Option<u32> {
        let offset = u32::try_from(at.checked_sub(self.cache.start())?).ok()?;
        let number = self.places.last_from(offset)?;
        (at < self.blocks[number as usize].end).then_some(number)
    }

    /// The block that has an entry at host address `at`, in its body or in its exit stubs.
    fn block_entered_at(&self, at: u64) -> Option<u32> {
        self.block_at(at).or_else(|| {
            let offset = u32::try_from(at.checked_sub(self.cache.start())?).ok()?;
            let number = self.stub_places.last_from(offset)?;
            let block = &self.blocks[number as usize];
            [block.cold, block.canonical].contains(&at).then_some(number)
        })
    }
}

/// Move a decoded instruction, and what it says relative to itself.
fn relocate(instruction: &mut Instruction, by: u64) {
    instruction.set_ip(instruction.ip().wrapping_add(by));
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
        OpKind::NearBranch16 => {
            instruction.set_near_branch16(instruction.near_branch16().wrapping_add(by as u16));
        }
        _ => {}
    }
}

impl Block {
    fn overlaps(&self, written: &std::ops::Range<u64>) -> bool {
        let start = self.key.physical;
        let end = start + u64::from(self.length);
        if self.second.is_some_and(|second| written.start & !(PAGE_SIZE - 1) == second.0) {
            // The second half starts at its page's first byte.
            let rest = end - (start & !(PAGE_SIZE - 1)) - PAGE_SIZE;
            return written.start & (PAGE_SIZE - 1) < rest;
        }
        start < written.end && written.start < end
    }
}

impl Vcpu {
    /// The host address of the block for RIP, translated if need be and entered into the jump
    /// cache; `None` if the next instruction has been interpreted instead, or is to run directly.
    ///
    /// # Errors
    ///
    /// The fault of the instruction fetch.
    pub(crate) fn find_block(&mut self) -> Result<Option<u64>, Trap> {
        self.find_block_of_kind(false)
    }

    /// The same for a plain block, which the jump cache does not have.
    ///
    /// # Errors
    ///
    /// As [`Self::find_block`].
    pub(crate) fn find_plain_block(&mut self) -> Result<Option<u64>, Trap> {
        self.find_block_of_kind(true)
    }

    fn find_block_of_kind(&mut self, plain: bool) -> Result<Option<u64>, Trap> {
        let linear = self.arch.code_linear(self.arch.context.regs.rip)?;
        self.arch.note_users();
        let mode = self.arch.translation_mode();
        let jump_mode = mode.of_jumps();
        let set = self.arch.current_set();
        self.heed_dropped_jumps();
        if jump_mode != self.jump_mode {
            self.jump_mode = jump_mode;
            self.forget_blocks();
        } else if !plain && let Some(known) = self.arch.tlb.set(set).jump_to(linear) {
            return Ok(Some(known));
        }
        let found = self.translate_fetch(linear)?;
        let Some((physical, global)) = found else { return Ok(None) };
        if self.begins_directly(physical) {
            return Ok(None);
        }
        let may_relocate = self.arch.package.techniques.has(Technique::Relocation);
        let key = Key::new(physical, linear, mode, plain, may_relocate);
        // Another processor may write the page each time it was protected: that has an end.
        for _ in 0..MAX_ATTEMPTS {
            if let Some(target) = self.known_block(key, set, global)? {
                return Ok(Some(target));
            }
            let began = time_stamp();
            let translated = self.translate(key, set, global)?;
            // This is done once: it tells nothing of what the code will need (user/choice.rs).
            self.left_at = self.left_at.wrapping_add(time_stamp().wrapping_sub(began));
            if let Some(target) = translated {
                return Ok(Some(target));
            }
        }
        self.arch.step()?;
        Ok(None)
    }

    /// The block for `key` if it has been translated, entered into the jump cache.
    fn known_block(&mut self, key: Key, set: usize, global: bool) -> Result<Option<u64>, Trap> {
        let package = Arc::clone(&self.arch.package);
        let mut translator = package.translator();
        let Some(&number) = translator.known.get(&key) else { return Ok(None) };
        if !self.second_page_matches(&translator.blocks[number as usize])? {
            translator.kill(number, &package);
            return Ok(None);
        }
        Ok(Some(self.enter_in_caches(&mut translator, number, set, global)))
    }

    /// Put a block for RIP where jumps find it; its address.
    fn enter_in_caches(
        &mut self,
        translator: &mut Translator,
        number: u32,
        set: usize,
        global: bool,
    ) -> u64 {
        let linear = Linear(self.arch.context.regs.rip);
        let key = translator.blocks[number as usize].key;
        translator.note_linear(key, linear);
        let block = &translator.blocks[number as usize];
        if key.plain || self.is_traced() {
            return block.cold;
        }
        self.arch.tlb.set(set).insert_jump(linear, block.cold, block.canonical, global);
        if key.is_relocatable() && block.second.is_none() {
            let physical = Physical(key.physical);
            self.arch.tlb.set(set).insert_fetch(linear, physical);
            if self.arch.package.techniques.has(Technique::PhysicalJumps) {
                self.arch.tlb.physical_jumps.insert(physical, block.cold, block.canonical);
            }
        }
        block.cold
    }

    /// Where an instruction is fetched from; `None` after interpreting code in device memory.
    fn translate_fetch(&mut self, linear: Linear) -> Result<Option<(Physical, bool)>, Trap> {
        let found = self.walk_for_fetch(linear)?;
        if self.arch.ram.host(found.physical).is_none() {
            // Fetching from a device is refused by the interpreter, with the right exception.
            self.arch.step()?;
            return Ok(None);
        }
        Ok(Some((found.physical, found.global)))
    }

    fn second_page_matches(&self, block: &Block) -> Result<bool, Trap> {
        let Some(second) = block.second else { return Ok(true) };
        let linear = Linear(self.arch.context.regs.rip).page();
        let next = Linear(linear.0.wrapping_add(PAGE_SIZE));
        Ok(self.walk_for_fetch(next)?.physical == second)
    }

    pub(crate) fn walk_for_fetch(
        &self,
        at: Linear,
    ) -> Result<crate::memory::paging::Translation, crate::exception::Exception> {
        use crate::memory::paging::{Accessor, walk};
        let regs = &self.arch.context.regs;
        let by = Accessor { user: regs.mode().is_user(), smap_override: false };
        walk(&self.arch.ram, regs, at, Access::Execute, by)
    }

    /// Translate the block at `key` and enter it into the jump cache; `None` if there is something
    /// to be done first, which has been done.
    fn translate(&mut self, key: Key, set: usize, global: bool) -> Result<Option<u64>, Trap> {
        let package = Arc::clone(&self.arch.package);
        let mut run = self.decode_run(key)?;
        let pages = [Some(Physical(key.physical).page()), run.second];
        let pages = || pages.into_iter().flatten();
        if let Some(page) = pages().find(|&page| !package.is_protected(page)) {
            // Bytes that were read before this are not to be trusted.
            self.protect(page);
            return Ok(None);
        }
        let mut translator = package.translator();
        if !translator.cache.has_room(MAX_BLOCK_BYTES) || !package.stopper.has_room(MAX_CLOSINGS) {
            drop(translator);
            self.drop_blocks();
            return Ok(None);
        }
        // Under the lock: nobody drops translations of these pages, or has done so and written,
        // since the bytes were read.
        if !pages().all(|page| package.is_protected(page)) || !self.still_reads(key, &run) {
            return Ok(None);
        }
        let id = translator.inspect(key, &mut run);
        let number = self.generate(&mut translator, key, &run);
        let linear = Linear(self.arch.context.regs.rip);
        if let Some(id) = id {
            translator.tell_of_block(number, id, linear, &run);
        }
        self.arch.statistics.blocks += 1;
        self.arch.statistics.block_instructions += run.instructions.len() as u64;
        translator.known.insert(key, number);
        for page in pages() {
            let entry = translator.pages.entry(page.0).or_default();
            entry.blocks.push(number);
            entry.near_writes = 0;
        }
        Ok(Some(self.enter_in_caches(&mut translator, number, set, global)))
    }

    /// Whether guest memory still holds the bytes of `run`.
    fn still_reads(&self, key: Key, run: &Run) -> bool {
        let length = usize::from(run.length()).min(run.bytes.len());
        let first = length.min((PAGE_SIZE - (key.physical & (PAGE_SIZE - 1))) as usize);
        let reads = |at: Physical, bytes: &[u8]| {
            let Some(host) = self.arch.ram.host(at) else { return bytes.is_empty() };
            // SAFETY: RAM for the length of the piece, which does not leave its page; the guest
            // may race with us, and the bytes are plain data.
            bytes
                .iter()
                .enumerate()
                .all(|(offset, &byte)| unsafe { host.wrapping_add(offset).read_volatile() == byte })
        };
        reads(Physical(key.physical), &run.bytes[..first])
            && run.second.is_none_or(|second| reads(second, &run.bytes[first..length]))
    }

    /// Open again what the signal handler has closed. Jumps that it closed count as not linked.
    pub(crate) fn reopen_gates(&mut self) {
        for &at in self.arch.context.take_closed() {
            // SAFETY: the handler has noted a gate of the code cache; nothing has dropped it since,
            // because this processor was busy (package.rs).
            unsafe { self.arch.package.stopper.open_gate(at) };
        }
    }

    /// Put the registers back to the start of the guest instruction whose host code contains
    /// `host`; false if there is none.
    pub(crate) fn restore_at(&mut self, host: u64) -> bool {
        let translator = self.arch.package.translator();
        let Some(number) = translator.block_at(host) else { return false };
        let block = &translator.blocks[number as usize];
        let range = block.marks.start as usize..block.marks.end as usize;
        let offset = (host - translator.cache.start()) as u32;
        let marks = &translator.marks[range];
        let after = marks.partition_point(|mark| mark.host <= offset);
        let Some(mark) = after.checked_sub(1).and_then(|index| marks.get(index)) else {
            return false;
        };
        let regs = &mut self.arch.context.regs;
        regs.rip = block.key.linear_of(*mark, self.arch.context.code_page);
        for (slot, register) in block.scratch.into_iter().flatten().enumerate() {
            regs.gpr[register.number()] = self.arch.context.spill[slot];
        }
        true
    }
}
