//! Assists: instructions that Rust executes for a block, which goes on after them (QEMU: helper calls).
//!
//! An instruction that is left to the interpreter ends its block, and goes through the run loop, which
//! fetches the instruction, looks for pending events and finds the next block. Some instructions are frequent
//! and need none of this: `mov` to CR3 at every switch of address spaces, `invlpg`, the XSAVE family
//! on a user's memory, and the first time that CPUID is asked something (cpuid.rs). For these a
//! block leaves by a thunk of its own, Rust does what the interpreter would do and enters the block
//! again behind the instruction. The rules:
//!
//! 1. *It is the interpreter that executes it*, with the same checks and all or nothing. What does not
//!    complete (an exception, an exit) goes to the run loop.
//! 2. *State is precise*, as at every return to Rust. While a tracer is attached, every such instruction is left
//!    to the interpreter, so that the tracer sees it.
//! 3. *The way back is a way into translated code*: a kick that came meanwhile ends it, and the run
//!    loop finds RIP at the next instruction. Translated code is entered nowhere else than where the
//!    run loop would let it run ([`Vcpu::goes_on_in_block`]); among other things the block must not
//!    have been dropped by what the instruction has written.
//! 4. After an instruction that may change what linear addresses mean, or what blocks may assume
//!    ([`Assistance::Anew`]), nothing is taken for granted: the block has only a look at the jump cache
//!    behind it, which was flushed as far as the instruction flushes.
//!
//! Rust also assists frequent accesses that the TLB can never have ([`Vcpu::help_missed`]): stores to pages
//! with translations, of which a kernel that patches its text does ten thousands, and elements of `rep movs`
//! that cross pages.

use iced_x86::{Code, Instruction, OpKind};

use super::action::Assistance;
use super::block::Assisted;
use super::builder::Builder;
use super::miss::Restart;
use super::string::repeated;
use super::{Translator, relocate};
use crate::architectural::Architectural;
use crate::instruction::{Class, class_of};
use crate::memory::tlb::code_page;
use crate::memory::{Access, Linear, Privilege};
use crate::run::Resume;
use crate::techniques::Technique;
use crate::vcpu::Vcpu;

impl Builder<'_> {
    /// Leave for Rust, and go on behind the instruction.
    pub(super) fn assist(&mut self, kind: Assistance, instruction: &Instruction, mark: u32) {
        match kind {
            Assistance::Identify => self.identify(mark),
            Assistance::ReadMsr => self.read_msr(mark),
            Assistance::LoadFs => self.load_fs(instruction, mark),
            Assistance::Onwards | Assistance::Anew => {
                self.way_out(self.thunks().assist.plain, mark);
                self.goes_on(mark);
            }
        }
        self.instructions.push((mark, *instruction));
        if kind == Assistance::Anew {
            self.leave_by_jump_cache(Linear(instruction.next_ip()));
        }
    }

    /// The block goes on here after the instruction at a mark.
    pub(super) fn goes_on(&mut self, mark: u32) {
        let here = self.out.here();
        let onwards = self.offset(here);
        self.onwards.push((mark, onwards));
    }
}

impl Translator {
    /// Remember the assisted instructions of the block just written, and where it goes on after each.
    pub(super) fn add_assisted(
        &mut self,
        instructions: Vec<(u32, Instruction)>,
        onwards: Vec<(u32, u32)>,
    ) {
        for ((mark, instruction), (other, onwards)) in instructions.into_iter().zip(onwards) {
            debug_assert_eq!(mark, other);
            self.assisted.insert(mark, Assisted { instruction, onwards });
        }
    }

    /// The assisted instruction at a mark, as it is in this page, and where its block goes on.
    fn assisted_at(&self, mark: u32, code_page: Linear) -> Option<(Instruction, Restart)> {
        let Assisted { mut instruction, onwards } = *self.assisted.get(&mark)?;
        let block = &self.blocks[self.marks[mark as usize].block as usize];
        if block.key.is_relocatable() {
            relocate(&mut instruction, code_page);
        }
        let at = self.cache.start() + u64::from(onwards);
        Some((instruction, Restart::new(at, block.live.is_some())))
    }

    /// Whether the block of a mark has not been dropped.
    fn is_alive(&self, mark: u32) -> bool {
        self.blocks[self.marks[mark as usize].block as usize].alive
    }
}

impl Vcpu {
    /// Execute the instruction that a block leaves to Rust, and go on in the block.
    pub(crate) fn assist(&mut self) -> Resume {
        let (mark, page) = (self.arch.context.detail, Linear(self.arch.context.code_page));
        let found = self.arch.group.translator().assisted_at(mark, page);
        let Some((instruction, onwards)) = found else {
            return Resume::Dispatch(self.interpret());
        };
        let [leaf, subleaf] = [0, 1].map(|register| self.arch.context.regs.gpr[register] as u32);
        self.arch.replay.begin();
        if let Err(trap) = self.arch.step_assisted(&instruction) {
            return Resume::Dispatch(self.take_trap(trap));
        }
        self.arch.replay.end();
        if class_of(instruction.code()) == Class::Identify {
            self.arch.cache_cpuid(leaf, subleaf);
        }
        if self.goes_on_in_block(mark, Linear(instruction.next_ip())) {
            return Resume::At(onwards.place());
        }
        Resume::Dispatch(None)
    }

    /// Whether the block of a mark may be entered again, at the instruction at `next`.
    fn goes_on_in_block(&self, mark: u32, next: Linear) -> bool {
        let rip = Linear(self.arch.context.regs.rip);
        let mode = self.arch.translation_mode();
        // A user's block adds its page's address to what it knows of its own.
        let is_in_page =
            !mode.guest.is_user() || rip.page() == code_page(self.arch.context.code_page);
        rip == next
            && is_in_page
            && !self.arch.replay.has_queued()
            && self.may_translate()
            && mode.of_jumps(self.jump_mode) == self.jump_mode
            && !self.arch.must_heed_mirror()
            && self.arch.group.translator().is_alive(mark)
    }

    /// Whether Rust assists where an access of a block has missed for good.
    pub(super) fn helps_missed(&self) -> bool {
        self.arch.group.techniques.has(Technique::Assists) && !self.is_traced()
    }

    /// Carry out the instruction at `mark` of a block that has missed for good, if it is of an assisted kind; where to
    /// go on then.
    pub(crate) fn help_missed(&mut self, instruction: &Instruction, mark: u32) -> Option<Resume> {
        if !self.helps_missed() {
            return None;
        }
        if repeated(instruction).is_some() {
            return Some(self.help_repeated(instruction, mark));
        }
        self.store_beside_code(instruction, mark)
    }

    /// Some of the elements of a repeated string instruction, of which the first crosses pages or is in
    /// a page with translations.
    fn help_repeated(&mut self, instruction: &Instruction, mark: u32) -> Resume {
        self.arch.replay.begin();
        if let Err(trap) = self.arch.step_assisted(instruction) {
            return Resume::Dispatch(self.take_trap(trap));
        }
        self.arch.replay.end();
        let is_done = self.arch.context.regs.rip != instruction.ip();
        self.go_on(mark, instruction, is_done)
    }

    /// Go on in the block of a mark: at the instruction of the mark, or if that is done at the next one.
    fn go_on(&mut self, mark: u32, instruction: &Instruction, is_done: bool) -> Resume {
        let next = if is_done { instruction.next_ip() } else { instruction.ip() };
        if !self.goes_on_in_block(mark, Linear(next)) {
            return Resume::Dispatch(None);
        }
        let translator = self.arch.group.translator();
        let onwards = match is_done {
            true => translator.restart_after(mark, instruction.len()),
            false => Some(translator.restart_at(mark)),
        };
        drop(translator);
        match onwards {
            Some(onwards) => self.try_again(onwards),
            None => Resume::Dispatch(None),
        }
    }

    /// A store of a register or a constant beside translated code.
    fn store_beside_code(&mut self, instruction: &Instruction, mark: u32) -> Option<Resume> {
        let value = self.arch.stored_value(instruction)?;
        let (at, size, _) = self.explicit(instruction)?;
        let by = Privilege::Current;
        let fits = at.is_canonical() && at.offset() as usize + size <= 4096;
        if !fits || !self.arch.reaches_memory(at, Access::Write, by).ok()? {
            return None;
        }
        self.arch.count_assisted(instruction);
        self.arch.write_linear(at, &value.to_le_bytes()[..size], by).ok()?;
        let regs = &mut self.arch.context.regs;
        regs.take_resume_flag();
        regs.rip = instruction.next_ip();
        Some(self.go_on(mark, instruction, true))
    }
}

impl Architectural {
    /// What an instruction stores, if it is a plain `mov` of a register or a constant to memory. (The codes are the
    /// operation itself: the table has no class for what the host's processor executes.)
    pub(crate) fn stored_value(&self, instruction: &Instruction) -> Option<u64> {
        let is_store = matches!(
            instruction.code(),
            Code::Mov_rm8_r8
                | Code::Mov_rm16_r16
                | Code::Mov_rm32_r32
                | Code::Mov_rm64_r64
                | Code::Mov_rm8_imm8
                | Code::Mov_rm16_imm16
                | Code::Mov_rm32_imm32
                | Code::Mov_rm64_imm32
        );
        if !is_store || instruction.op0_kind() != OpKind::Memory || instruction.has_lock_prefix() {
            return None;
        }
        Some(match instruction.op1_kind() {
            OpKind::Register => self.register_value(instruction.op1_register()),
            _ => instruction.immediate(1),
        })
    }
}
