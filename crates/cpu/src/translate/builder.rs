//! A block under construction: the state that all files share which emit parts of a block.

use iced_x86::{Code, Instruction, MemoryOperand, Register};

use super::block::Mark;
use super::emit::{Emitter, at, field, gpr32};
use super::host_code::HostCode;
use super::jump_slot::JumpSlot;
use super::key::Key;
use super::planned::CoalescedAccess;
use super::scratch::Scratch;
use super::unchain::Unchaining;
use super::way_out::Thunks;
use crate::context::context_offset;
use crate::instruction::MemoryUse;
use crate::memory::tlb::CODE_32;
use crate::memory::{Linear, PAGE_SIZE};
use crate::state::{Registers, Segment};
use crate::techniques::{Technique, Techniques};

/// Longest instruction; a jump target closer to the end of its page may straddle it.
const MAX_INSTRUCTION: u64 = 15;

/// A `nop` slot that is not finished yet: where it is, and the index of its [`Unchaining`].
pub(super) type NopSlot = (HostCode, usize);

/// What is to be written after the straight line.
pub(super) enum Later {
    /// The taken side of a conditional jump: displacement to patch, target.
    Taken { at: HostCode, target: Linear },
    /// A look-up missed: displacement to patch, mark.
    Miss { at: HostCode, mark: u32 },
    /// The operand may cross a page.
    Second(Box<Second>),
    /// The look-up of a coalesced missed: displacement to patch, mark.
    Plain { at: HostCode, mark: u32 },
    /// x87 and vector state is not loaded: displacement to patch, where to go on.
    Vectors { at: HostCode, live: HostCode },
    /// An instruction turned out to need the interpreter: displacement to patch, mark.
    Delicate { at: HostCode, mark: u32 },
    /// Or help (assist.rs): likewise.
    Assist { at: HostCode, mark: u32 },
    /// The jump cache lacks a computed address, or the slot is unchained: displacement to patch, slot,
    /// mark.
    Computed { at: HostCode, slot: NopSlot, mark: u32 },
    /// Where a return goes on: displacement to patch, address.
    Landing { at: HostCode, back: Linear },
}

/// A second way that is still to be written.
pub(super) struct Second {
    /// The displacement that leads to it.
    pub(super) at: HostCode,
    pub(super) mark: u32,
    pub(super) usage: MemoryUse,
    /// The instruction, with its operand where the look-up finds it, and what takes the place of a high byte.
    pub(super) moved: (Instruction, Option<Register>),
    /// Where it is in the straight line, and what follows it.
    pub(super) found: HostCode,
    pub(super) done: HostCode,
}

/// A block under construction.
pub(super) struct Builder<'a> {
    pub(super) out: &'a mut Emitter,
    /// What [`Self::in_exit_stubs`] writes.
    pub(super) exit_stubs: &'a mut Emitter,
    pub(super) key: Key,
    pub(super) techniques: Techniques,
    pub(super) block: u32,
    pub(super) scratch: Option<Scratch>,
    /// Ways out with the scratch registers spilled (with GS at the TLB, and at the mirror), and
    /// with none.
    pub(super) thunks: [Thunks; 2],
    pub(super) bare: Thunks,
    /// And with the canonical ones.
    pub(super) canonical: Thunks,
    /// The thunk that loads x87 and vector state.
    pub(super) load_vectors: HostCode,
    /// What is to be written later, with [`Self::user_open`] there.
    pub(super) later: Vec<(Later, bool)>,
    pub(super) unchainings: Vec<Unchaining>,
    pub(super) slots: Vec<JumpSlot>,
    pub(super) first_slot: u32,
    pub(super) marks: Vec<Mark>,
    pub(super) first_mark: u32,
    /// Instructions that are left to the interpreter, by mark.
    pub(super) left: Vec<(u32, Instruction)>,
    /// Assisted instructions, and where the block goes on after them, by mark.
    pub(super) instructions: Vec<(u32, Instruction)>,
    pub(super) onwards: Vec<(u32, u32)>,
    /// Marks of instructions after an `sti`.
    pub(super) sheltered: Vec<u32>,
    pub(super) cache_start: HostCode,
    /// IA32_STAR.
    pub(super) star: u64,
    /// GS is at the mirror (memory/mirror.rs), not at the TLB.
    pub(super) kernel: bool,
    /// [`Mode::user_open`](super::key::Mode) after the instructions so far.
    pub(super) user_open: bool,
    /// The instruction at hand accesses memory through the mirror.
    pub(super) native: bool,
    /// Its part of a coalesced range.
    pub(super) coalesced: Option<CoalescedAccess>,
    /// It has a second way for an operand that crosses a page.
    pub(super) crosses: bool,
}

/// Whether a direct link may lead to `target`: same page, and no instruction there can straddle.
pub(super) fn is_linkable(key: Key, target: Linear, techniques: Techniques) -> bool {
    techniques.has(Technique::Links)
        && target.page() == key.linear.page()
        && target.offset() <= PAGE_SIZE - MAX_INSTRUCTION
        && key.physical.offset() <= PAGE_SIZE - MAX_INSTRUCTION
}

/// Where a segment register's selector is.
pub(super) fn selector_offset(number: usize) -> i32 {
    (std::mem::offset_of!(crate::context::Context, regs)
        + std::mem::offset_of!(Registers, segments)
        + number * size_of::<Segment>()
        + std::mem::offset_of!(Segment, selector)) as i32
}

/// `[rsp + displacement]`.
pub(super) fn stack(displacement: i32) -> MemoryOperand {
    at(Register::RSP, Register::None, displacement)
}

impl Builder<'_> {
    /// Count one more in a field of the context; `register` is lost, flags are not.
    pub(super) fn count(&mut self, offset: i32, register: Register) {
        self.out.load(register, field(offset));
        self.out.lea(register, at(register, Register::None, 1));
        self.out.store(field(offset), register);
    }

    /// Whether other blocks are entered with scratch registers spilled.
    pub(super) fn hands_over(&self) -> bool {
        self.techniques.has(Technique::Handover)
    }

    pub(super) fn s(&self) -> Scratch {
        self.scratch.expect("actions with look-ups get scratch registers")
    }

    /// Bytes of an address, which are those of what is pushed and popped.
    pub(super) fn word(&self) -> u32 {
        self.key.mode.guest.bits() / 8
    }

    /// What is so many bytes from where a register points that holds an address.
    pub(super) fn beside(&self, register: Register, displacement: i32) -> MemoryOperand {
        let base = if self.key.is_64_bit() { register } else { gpr32(register) };
        at(base, Register::None, displacement)
    }

    /// What is so many bytes from where the stack pointer points.
    pub(super) fn on_stack(&self, displacement: i32) -> MemoryOperand {
        self.beside(Register::RSP, displacement)
    }

    /// Put an address, which is a sum, into a register.
    pub(super) fn point(&mut self, register: Register, to: MemoryOperand) {
        match self.key.is_64_bit() {
            true => self.out.lea(register, to),
            false => self.out.lea32(register, to),
        }
    }

    /// `rsp += bytes`, flags untouched.
    pub(super) fn adjust_stack(&mut self, bytes: i32) {
        self.point(Register::RSP, self.on_stack(bytes));
    }

    /// Store a 64-bit constant; uses s2.
    pub(super) fn store_constant(&mut self, place: MemoryOperand, value: u64) {
        if i64::from(value as i32) == value as i64 {
            let built = Instruction::with2(Code::Mov_rm64_imm32, place, value as i32);
            self.out.instruction(&built.expect("operands fit the code"));
        } else {
            let [_, _, s2] = self.s();
            self.out.constant(s2, value);
            self.out.store(place, s2);
        }
    }

    /// Store a constant as it is pushed; uses s2.
    pub(super) fn store_word(&mut self, place: MemoryOperand, value: u64) {
        if self.key.is_64_bit() {
            return self.store_constant(place, value);
        }
        let built = Instruction::with2(Code::Mov_rm32_imm32, place, value as u32);
        self.out.instruction(&built.expect("operands fit the code"));
    }

    /// Store a linear address as it is pushed; uses s2.
    pub(super) fn store_address(&mut self, place: MemoryOperand, value: Linear) {
        if !self.key.is_relocatable() {
            return self.store_word(place, value.0);
        }
        let [_, _, s2] = self.s();
        let word = self.word();
        self.address(s2, value);
        self.out.store_sized(place, s2, word);
    }

    /// Make the linear address in a register the jump address of code of the block's kind; `spare` may be lost.
    pub(super) fn make_jump_address(&mut self, register: Register, spare: Register) {
        if !self.key.is_64_bit() {
            self.out.constant(spare, CODE_32);
            self.out.lea(register, at(register, spare, 0));
        }
    }

    /// Put a linear address into a register: that of the block's page is added, if it has none.
    pub(super) fn address(&mut self, register: Register, value: Linear) {
        /// As far as one `lea` reaches; a displacement from an instruction reaches a little farther.
        const REACH: i64 = i32::MAX as i64;
        if !self.key.is_relocatable() {
            return self.out.constant(register, value.0);
        }
        self.out.load(register, field(context_offset!(code_page)));
        let mut left = value.0 as i64;
        while left != 0 {
            let step = left.clamp(-REACH, REACH);
            self.out.lea(register, at(register, Register::None, step as i32));
            left -= step;
        }
        self.zero_extend(register);
    }

    /// Clear the upper half of a register that holds an address or a count, if the guest has no upper halves.
    pub(super) fn zero_extend(&mut self, register: Register) {
        if !self.key.is_64_bit() {
            self.out.copy32(gpr32(register), gpr32(register));
        }
    }

    /// Have something written after the straight line.
    pub(super) fn postpone(&mut self, later: Later) {
        self.later.push((later, self.user_open));
    }
}
