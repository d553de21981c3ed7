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
//!    straddles two. Direct links lead only to blocks of the same physical page; all other jumps
//!    go through the jump cache, which is flushed with the TLB. So no change of the page tables can
//!    make a link wrong.
//! 5. A page with blocks has no write tag in any TLB set.

pub(crate) mod cache;
pub(crate) mod decode;
pub(crate) mod emit;
mod generate;
pub(crate) mod inline;
pub(crate) mod miss;
mod plan;
pub(crate) mod stopper;
pub(crate) mod string;
mod syscall;
mod thunk;

use iced_x86::{Instruction, Register};
use rustc_hash::FxHashMap;

use crate::context::Context;
use crate::exception::Trap;
use crate::memory::tlb::Tlb;
use crate::memory::{Access, Linear, PAGE_SIZE, Physical};
use crate::native::stub::Stubs;
use crate::vcpu::{Error, Vcpu};
use cache::CodeCache;
use emit::{Emitter, displacement};
pub(crate) use generate::without_moffs;
use stopper::{NOP, Stopper};
use thunk::Thunks;

/// Room that must be free before a block is translated.
const MAX_BLOCK_BYTES: usize = 64 << 10;

/// Writes to a page beside its translated code until all of its translations are dropped.
const MAX_NEAR_WRITES: u32 = 32;

/// What a translation depends on besides its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    physical: u64,
    linear: u64,
    mode: Mode,
}

/// The mode bits that a translation assumes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct Mode {
    /// Current privilege level.
    pub(crate) cpl: u8,
    /// Which x87 and vector instructions can run without further ado.
    pub(crate) vectors: Vectors,
    /// CR4.SMAP.
    pub(crate) smap: bool,
    /// EFER.SCE is set, and IA32_FMASK and IA32_STAR are as `syscall` wants them.
    pub(crate) fast_system_calls: bool,
    /// IA32_STAR, if that is so.
    pub(crate) star: u64,
    /// CR4.TSD.
    pub(crate) time_stamp_disabled: bool,
}

/// What CR0, CR4 and XCR0 have enabled, each level with those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(crate) enum Vectors {
    /// Nothing: such instructions fault, or need a closer look.
    #[default]
    None,
    /// x87, MMX and SSE.
    Legacy,
    /// AVX.
    Avx,
    /// Everything that the host has.
    All,
}

/// A place where a guest instruction starts in host code.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mark {
    /// Offset in the code cache.
    host: u32,
    block: u32,
    /// Distance from the block's first instruction, in bytes.
    guest: u16,
}

/// A direct jump out of a block.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Gate {
    block: u32,
    /// Linear address of the guest instruction it leads to.
    target: u64,
    /// Displacement of the jump that keeps the scratch registers spilled, 0 if there is none.
    warm: u64,
    /// Displacement of the jump after they have been reloaded; 0 if the target is not in the same
    /// page and the jump goes through the jump cache.
    cold: u64,
    /// Where `cold` leads when not linked.
    out: u64,
}

/// One translated block.
#[derive(Debug)]
pub(crate) struct Block {
    key: Key,
    /// Second page, for a block of one instruction that straddles two.
    second: Option<Physical>,
    /// Length of the guest code in bytes.
    length: u16,
    /// Host addresses: where the scratch registers are spilled, where they already are, the end.
    cold: u64,
    warm: u64,
    end: u64,
    /// Entry for when the canonical scratch registers are spilled, whatever the block's own are.
    canonical: u64,
    scratch: Option<[Register; 3]>,
    marks: std::ops::Range<u32>,
    incoming: Vec<u32>,
    alive: bool,
}

/// The blocks of one guest page.
#[derive(Debug, Default)]
struct Page {
    blocks: Vec<u32>,
    near_writes: u32,
}

/// Everything translated for one processor.
pub(crate) struct Translator {
    pub(crate) cache: CodeCache,
    pub(crate) generation: u64,
    emitter: Emitter,
    blocks: Vec<Block>,
    known: FxHashMap<Key, u32>,
    pages: FxHashMap<u64, Page>,
    /// One bit per guest-physical page: it has blocks.
    code_pages: Vec<u64>,
    marks: Vec<Mark>,
    gates: Vec<Gate>,
    stopper: Box<Stopper>,
    thunks: FxHashMap<Option<[Register; 3]>, Thunks>,
    /// Instructions that blocks leave to the interpreter, by mark.
    left: FxHashMap<u32, Instruction>,
    /// Mode bits under which the jump caches were filled.
    jump_mode: Mode,
}

impl Translator {
    /// An empty translator, made known to `context`.
    ///
    /// # Errors
    ///
    /// As [`CodeCache::new`].
    pub(crate) fn new(context: &mut Context) -> Result<Self, Error> {
        let cache = CodeCache::new()?;
        let mut stopper = Stopper::new();
        context.cache_start = cache.start();
        context.cache_end = cache.end();
        context.stopper = std::ptr::from_mut(&mut *stopper) as u64;
        Ok(Self {
            emitter: Emitter::new(cache.start()),
            cache,
            generation: 0,
            blocks: Vec::new(),
            known: FxHashMap::default(),
            pages: FxHashMap::default(),
            code_pages: Vec::new(),
            marks: Vec::new(),
            gates: Vec::new(),
            stopper,
            thunks: FxHashMap::default(),
            left: FxHashMap::default(),
            jump_mode: Mode::default(),
        })
    }

    /// Make sure that the next block or stub fits, dropping everything if need be.
    pub(crate) fn make_room(&mut self, stubs: &mut Stubs, tlb: &mut Tlb) {
        if self.cache.has_room(MAX_BLOCK_BYTES) {
            return;
        }
        self.clear(stubs, tlb);
    }

    /// Drop everything.
    pub(crate) fn clear(&mut self, stubs: &mut Stubs, tlb: &mut Tlb) {
        stubs.clear();
        tlb.drop_all_jumps();
        self.cache.clear();
        self.generation += 1;
        self.blocks.clear();
        self.known.clear();
        self.pages.clear();
        self.code_pages.fill(0);
        self.marks.clear();
        self.gates.clear();
        self.stopper.clear();
        self.thunks.clear();
        self.left.clear();
    }

    /// Whether any byte of this guest page has been translated.
    #[inline]
    pub(crate) fn page_has_code(&self, at: Physical) -> bool {
        let page = at.0 / PAGE_SIZE;
        self.code_pages.get((page / 64) as usize).is_some_and(|word| word >> (page % 64) & 1 != 0)
    }

    fn set_page_has_code(&mut self, at: Physical, has: bool) {
        let page = at.0 / PAGE_SIZE;
        let word = (page / 64) as usize;
        if word >= self.code_pages.len() {
            self.code_pages.resize(word + 1, 0);
        }
        self.code_pages[word] &= !(1 << (page % 64));
        self.code_pages[word] |= u64::from(has) << (page % 64);
    }

    /// Drop the blocks that overlap `length` bytes about to be written at `at`, which do not leave
    /// the page. A page that is written again and again beside its code loses all blocks.
    pub(crate) fn invalidate(&mut self, at: Physical, length: usize, tlb: &mut Tlb) -> u64 {
        let Some(page) = self.pages.get_mut(&at.page().0) else { return 0 };
        page.near_writes += 1;
        let all = page.near_writes > MAX_NEAR_WRITES;
        let written = at.0..at.0 + length as u64;
        let doomed: Vec<u32> = page
            .blocks
            .iter()
            .copied()
            .filter(|&number| all || self.blocks[number as usize].overlaps(&written))
            .collect();
        for &number in &doomed {
            self.kill(number, tlb);
        }
        doomed.len() as u64
    }

    fn kill(&mut self, number: u32, tlb: &mut Tlb) {
        let block = &mut self.blocks[number as usize];
        if !block.alive {
            return;
        }
        block.alive = false;
        let key = block.key;
        let second = block.second;
        let incoming = std::mem::take(&mut block.incoming);
        self.known.remove(&key);
        tlb.remove_jump(Linear(key.linear));
        for gate in incoming {
            self.unlink(gate);
        }
        for page in [Some(Physical(key.physical).page()), second].into_iter().flatten() {
            self.forget_in_page(page, number);
        }
    }

    fn forget_in_page(&mut self, at: Physical, number: u32) {
        let Some(page) = self.pages.get_mut(&at.0) else { return };
        page.blocks.retain(|&other| other != number);
        if page.blocks.is_empty() {
            self.pages.remove(&at.0);
            self.set_page_has_code(at, false);
        }
    }

    fn unlink(&mut self, number: u32) {
        let gate = self.gates[number as usize];
        self.cache.patch(gate.cold, displacement(gate.cold, gate.out));
        if gate.warm != 0 {
            self.cache.patch(gate.warm, 0);
        }
    }

    /// The guest address that a gate leads to.
    pub(crate) fn gate_target(&self, number: u32) -> u64 {
        self.gates[number as usize].target
    }

    /// The guest address of a mark.
    pub(crate) fn mark_address(&self, number: u32) -> u64 {
        let mark = self.marks[number as usize];
        self.blocks[mark.block as usize].key.linear.wrapping_add(u64::from(mark.guest))
    }

    /// The instruction that the block left to the interpreter at a mark.
    pub(crate) fn left_instruction(&self, mark: u32) -> Option<Instruction> {
        self.left.get(&mark).copied()
    }

    /// Let the gate lead to the block at `target`, if that is sound (invariant 4).
    pub(crate) fn link(&mut self, number: u32, target: u64) -> bool {
        let Some(gate) = self.gates.get(number as usize).copied() else { return false };
        if gate.cold == 0 {
            return false;
        }
        let Some(to) = self.block_at(target) else { return false };
        let (from, block) = (&self.blocks[gate.block as usize], &self.blocks[to as usize]);
        let same_page = Physical(from.key.physical).page() == Physical(block.key.physical).page();
        if !from.alive || !same_page || block.second.is_some() || from.key.mode != block.key.mode {
            return false;
        }
        if gate.warm != 0 && from.scratch == block.scratch {
            self.cache.patch(gate.warm, displacement(gate.warm, block.warm));
        } else {
            self.cache.patch(gate.cold, displacement(gate.cold, block.cold));
        }
        self.blocks[to as usize].incoming.push(number);
        true
    }

    /// The block whose code contains host address `at`.
    fn block_at(&self, at: u64) -> Option<u32> {
        let after = self.blocks.partition_point(|block| block.cold <= at);
        let number = after.checked_sub(1)?;
        (at < self.blocks[number].end).then_some(number as u32)
    }

    /// Whether the signal handler has closed gates.
    pub(crate) fn stopper_has_closed(&self) -> bool {
        self.stopper.has_closed()
    }

    /// Open again what the signal handler has closed. Jumps that it closed count as not linked.
    pub(crate) fn reopen_gates(&mut self) {
        for at in self.stopper.take_closed() {
            self.cache.patch_bytes(at, &NOP);
        }
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
    /// The mode bits that translations assume.
    pub(crate) fn translation_mode(&self) -> Mode {
        use crate::state::{cr0, cr4, efer};
        let regs = &self.context.regs;
        let vectors = if regs.cr0 & (cr0::EM | cr0::TS) != 0 || regs.cr4 & cr4::OSFXSR == 0 {
            Vectors::None
        } else if regs.cr4 & cr4::OSXSAVE == 0 || regs.xcr0 & 6 != 6 {
            Vectors::Legacy
        } else if regs.xcr0 == self.context.xsave_mask {
            Vectors::All
        } else {
            Vectors::Avx
        };
        let fast_system_calls = regs.efer & efer::SCE != 0
            && regs.sfmask & syscall::CLEARED_FLAGS == syscall::CLEARED_FLAGS;
        Mode {
            cpl: regs.cpl,
            vectors,
            fast_system_calls,
            star: if fast_system_calls { regs.star } else { 0 },
            smap: regs.cr4 & cr4::SMAP != 0,
            time_stamp_disabled: regs.cr4 & cr4::TSD != 0,
        }
    }

    /// The host address of the block for RIP, translated if need be and entered into the jump
    /// cache; `None` if the next instruction has been interpreted instead.
    ///
    /// # Errors
    ///
    /// The fault of the instruction fetch.
    pub(crate) fn find_block(&mut self) -> Result<Option<u64>, Trap> {
        let linear = self.code_linear(self.context.regs.rip)?;
        let mode = self.translation_mode();
        // Privilege levels 0 and 3 have sets of their own.
        let jump_mode = Mode { cpl: if mode.cpl == 3 { 0 } else { mode.cpl }, ..mode };
        let set = self.current_set();
        if jump_mode != self.translator.jump_mode {
            self.translator.jump_mode = jump_mode;
            self.tlb.drop_all_jumps();
        } else if let Some(known) = self.tlb.set(set).jump_to(linear) {
            return Ok(Some(known));
        }
        let found = self.translate_fetch(linear)?;
        let Some((physical, global)) = found else { return Ok(None) };
        let key = Key { physical: physical.0, linear: linear.0, mode };
        let number = match self.translator.known.get(&key).copied() {
            Some(number) if self.second_page_matches(number)? => number,
            Some(number) => {
                self.translator.kill(number, &mut self.tlb);
                self.translate(key)?
            }
            None => self.translate(key)?,
        };
        let block = &self.translator.blocks[number as usize];
        let (target, canonical) = (block.cold, block.canonical);
        self.tlb.set(set).insert_jump(linear, target, canonical, global);
        Ok(Some(target))
    }

    /// Where an instruction is fetched from; `None` after interpreting code in device memory.
    fn translate_fetch(&mut self, linear: Linear) -> Result<Option<(Physical, bool)>, Trap> {
        let found = self.walk_for_fetch(linear)?;
        if self.ram.host(found.physical).is_none() {
            // Fetching from a device is refused by the interpreter, with the right exception.
            self.step()?;
            return Ok(None);
        }
        Ok(Some((found.physical, found.global)))
    }

    fn second_page_matches(&mut self, number: u32) -> Result<bool, Trap> {
        let Some(second) = self.translator.blocks[number as usize].second else { return Ok(true) };
        let linear = Linear(self.context.regs.rip).page();
        let next = Linear(linear.0.wrapping_add(PAGE_SIZE));
        Ok(self.walk_for_fetch(next)?.physical == second)
    }

    fn walk_for_fetch(
        &mut self,
        at: Linear,
    ) -> Result<crate::memory::paging::Translation, crate::exception::Exception> {
        use crate::memory::paging::{Accessor, walk};
        let regs = &self.context.regs;
        let by = Accessor { user: regs.cpl == 3, smap_override: false };
        walk(&self.ram, regs, at, Access::Execute, by)
    }

    /// Translate the block at `key` and make it known.
    fn translate(&mut self, key: Key) -> Result<u32, Trap> {
        self.translator.make_room(&mut self.stubs, &mut self.tlb);
        let run = self.decode_run(key)?;
        for page in [Some(Physical(key.physical).page()), run.second].into_iter().flatten() {
            self.protect(page);
        }
        let number = self.generate(key, &run);
        self.statistics.blocks += 1;
        self.statistics.block_instructions += run.instructions.len() as u64;
        self.translator.known.insert(key, number);
        for page in [Some(Physical(key.physical).page()), run.second].into_iter().flatten() {
            let entry = self.translator.pages.entry(page.0).or_default();
            entry.blocks.push(number);
            entry.near_writes = 0;
        }
        Ok(number)
    }

    /// Take back every write tag for a page that is about to have blocks.
    fn protect(&mut self, page: Physical) {
        if self.translator.page_has_code(page) {
            return;
        }
        self.translator.set_page_has_code(page, true);
        let writer = self.ram.take_writer(page);
        if let Some(host) = self.ram.host(page) {
            self.tlb.revoke_writes(writer, host);
        }
    }

    /// Put the registers back to the start of the guest instruction whose host code contains
    /// `host`; false if there is none.
    pub(crate) fn restore_at(&mut self, host: u64) -> bool {
        let translator = &self.translator;
        let Some(number) = translator.block_at(host) else { return false };
        let block = &translator.blocks[number as usize];
        let range = block.marks.start as usize..block.marks.end as usize;
        let offset = (host - translator.cache.start()) as u32;
        let marks = &translator.marks[range];
        let after = marks.partition_point(|mark| mark.host <= offset);
        let Some(mark) = after.checked_sub(1).and_then(|index| marks.get(index)) else {
            return false;
        };
        let regs = &mut self.context.regs;
        regs.rip = block.key.linear.wrapping_add(u64::from(mark.guest));
        for (slot, register) in block.scratch.into_iter().flatten().enumerate() {
            regs.gpr[register.number()] = self.context.spill[slot];
        }
        true
    }
}
