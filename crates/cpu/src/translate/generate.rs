//! Writing a block's host code.
//!
//! A block looks like this (scratch registers s0, s1, s2):
//!
//! ```text
//! cold:  mov fs:[spill], s0 ...           ; entry from anywhere
//! warm:  ...                              ; entry from a block with the same scratch registers
//!        guest instructions, look-ups as in memory/tlb.rs
//! exit:  jmp warm entry of the target     ; gate, at first to the next line
//!        mov s0, fs:[spill] ...
//!        jmp cold entry of the target     ; gate, at first out
//! out of line: exits of conditional jumps, ways out to Rust
//! ```

use iced_x86::{Code, Instruction, MemoryOperand, OpKind, Register};

use super::decode::{Planned, Run};
use super::emit::{at, field, gpr64, in_set};
use super::plan::Action;
use super::stopper::{Closing, NOP};
use super::thunk::Thunks;
use super::{Block, Emitter, Gate, Key, Mark};
use crate::context::{context_offset, register_offset};
use crate::memory::tlb::{JumpEntry, Set, jump_index_of};
use crate::memory::{Linear, PAGE_SIZE};
use crate::native::stub::immediate_bit_form;
use crate::state::{Registers, Segment};
use crate::vcpu::Vcpu;

/// Scratch registers in order of preference: those that compilers use least come first.
const PREFERENCE: [usize; 14] = [15, 14, 13, 12, 11, 10, 9, 8, 3, 5, 7, 6, 2, 0];

/// The scratch registers of a block that can choose freely. Between blocks that have these, jumps
/// through the jump cache leave them spilled.
const CANONICAL: [Register; 3] = [Register::R15, Register::R14, Register::R13];

/// Longest instruction; a jump target closer to the end of its page may straddle it.
const MAX_INSTRUCTION: u64 = 15;

/// What is to be written after the straight line.
enum Later {
    /// The taken side of a conditional jump: displacement to patch, target.
    Taken { at: u64, target: u64 },
    /// A look-up missed: displacement to patch, mark.
    Miss { at: u64, mark: u32 },
    /// An instruction turned out to need the interpreter: displacement to patch, mark.
    Delicate { at: u64, mark: u32 },
}

/// A block under construction.
pub(super) struct Builder<'a> {
    pub(super) out: &'a mut Emitter,
    key: Key,
    block: u32,
    scratch: Option<[Register; 3]>,
    /// Ways out with the scratch registers spilled, and with none.
    thunks: Thunks,
    bare: Thunks,
    later: Vec<Later>,
    closings: Vec<Closing>,
    gates: Vec<Gate>,
    first_gate: u32,
    marks: Vec<Mark>,
    first_mark: u32,
    /// Instructions that are left to the interpreter, by mark.
    left: Vec<(u32, Instruction)>,
    cache_start: u64,
    /// IA32_STAR.
    pub(super) star: u64,
}

impl Vcpu {
    /// Write the block for `run` into the code cache; its number.
    pub(super) fn generate(&mut self, key: Key, run: &Run) -> u32 {
        let translator = &mut self.translator;
        let scratch = choose_scratch(key, run);
        let thunks = translator.thunks(scratch);
        let bare = translator.thunks(None);
        let base = translator.cache.next();
        let cache_start = translator.cache.start();
        translator.emitter.restart(base);
        let mut builder = Builder {
            out: &mut translator.emitter,
            key,
            block: translator.blocks.len() as u32,
            scratch,
            thunks,
            bare,
            later: Vec::new(),
            closings: Vec::new(),
            gates: Vec::new(),
            first_gate: translator.gates.len() as u32,
            marks: Vec::new(),
            left: Vec::new(),
            first_mark: translator.marks.len() as u32,
            cache_start,
            star: self.context.regs.star,
        };
        let warm = builder.build(run);
        let canonical = builder.canonical_entry(base, warm);
        let Builder { closings, gates, marks, left, scratch, block, first_mark, .. } = builder;
        if run.second.is_none() {
            translator.left.extend(left);
        }
        translator.gates.extend_from_slice(&gates);
        translator.marks.extend_from_slice(&marks);
        let start = translator.cache.append(translator.emitter.bytes());
        let end = translator.emitter.here();
        translator.stopper.add(start, end, &closings);
        translator.blocks.push(Block {
            key,
            second: run.second,
            length: run.length(),
            cold: start,
            warm,
            end,
            canonical,
            scratch,
            marks: first_mark..first_mark + marks.len() as u32,
            incoming: Vec::new(),
            alive: true,
        });
        block
    }
}

/// Three registers that the run does not use, if it needs any.
fn choose_scratch(key: Key, run: &Run) -> Option<[Register; 3]> {
    let needed = run.instructions.iter().any(|planned| planned.action.needs_scratch())
        || run.instructions.iter().any(|planned| match planned.action {
            Action::Branch(_, target) => !is_linkable(key, target),
            _ => false,
        })
        || run.instructions.last().is_some_and(|last| match last.action {
            Action::Jump(target) => !is_linkable(key, target),
            Action::Interpret => false,
            Action::SystemCall | Action::SystemReturn => true,
            _ => !is_linkable(key, last.instruction.next_ip()),
        });
    if !needed {
        return None;
    }
    let mut free = PREFERENCE.into_iter().filter(|&number| run.registers >> number & 1 == 0);
    let mut take = || gpr64(free.next().expect("a run leaves three registers free"));
    Some([take(), take(), take()])
}

/// Whether a direct link may lead to `target`: same page, and no instruction there can straddle.
fn is_linkable(key: Key, target: u64) -> bool {
    let target = Linear(target);
    target.page() == Linear(key.linear).page()
        && target.offset() <= PAGE_SIZE - MAX_INSTRUCTION
        && key.physical & (PAGE_SIZE - 1) <= PAGE_SIZE - MAX_INSTRUCTION
}

pub(super) const SPILL: i32 = context_offset!(spill);

fn set_offset(array: usize) -> i32 {
    array as i32
}

/// Where a segment register's selector is.
pub(super) fn selector_offset(number: usize) -> i32 {
    (std::mem::offset_of!(crate::context::Context, regs)
        + std::mem::offset_of!(Registers, segments)
        + number * size_of::<Segment>()
        + std::mem::offset_of!(Segment, selector)) as i32
}

/// Where the base of FS or GS is.
pub(super) fn segment_base(register: Register) -> i32 {
    let number = if register == Register::FS { 4 } else { 5 };
    (std::mem::offset_of!(crate::context::Context, regs)
        + std::mem::offset_of!(Registers, segments)
        + number * size_of::<Segment>()
        + std::mem::offset_of!(Segment, base)) as i32
}

impl Builder<'_> {
    /// Write everything; the warm entry.
    fn build(&mut self, run: &Run) -> u64 {
        for (slot, register) in self.scratch.into_iter().flatten().enumerate() {
            self.out.store(field(SPILL + 8 * slot as i32), register);
        }
        let warm = self.out.here();
        let mut open = true;
        for planned in &run.instructions {
            let bytes = &run.bytes[planned.delta as usize..][..planned.instruction.len()];
            open = self.instruction(planned, bytes);
            if !open {
                break;
            }
        }
        if open && let Some(last) = run.instructions.last() {
            self.leave_to(last.instruction.next_ip());
        }
        self.write_later();
        warm
    }

    /// The entry for when the canonical scratch registers are spilled.
    fn canonical_entry(&mut self, cold: u64, warm: u64) -> u64 {
        if self.is_canonical() {
            return warm;
        }
        let entry = self.out.here();
        self.reload_registers(Some(CANONICAL));
        self.out.jump(cold);
        entry
    }

    fn is_canonical(&self) -> bool {
        self.scratch == Some(CANONICAL)
    }

    /// Remember that a guest instruction starts here.
    fn mark(&mut self, planned: &Planned) -> u32 {
        let host = (self.out.here() - self.cache_start) as u32;
        self.marks.push(Mark { host, block: self.block, guest: planned.delta });
        self.first_mark + self.marks.len() as u32 - 1
    }

    /// One guest instruction; whether the block goes on after it.
    fn instruction(&mut self, planned: &Planned, bytes: &[u8]) -> bool {
        let instruction = &planned.instruction;
        let mark = self.mark(planned);
        match planned.action {
            Action::Copy => self.out.raw(bytes),
            Action::Skip => {}
            Action::Constant(register, value) => self.out.constant(register, value),
            Action::Memory(usage) => {
                if !self.on_memory(instruction, usage.size, usage.writes, mark) {
                    self.interpret(mark);
                    return false;
                }
            }
            Action::Push(register) => self.push(mark, |builder, place| {
                builder.out.store(place, register);
            }),
            Action::PushMemory => {
                let [s0, _, s2] = self.s();
                self.operand_address(instruction);
                self.look_up_in_s0(8, false, mark);
                let place = self.found();
                self.out.load(s0, place);
                self.out.store(field(context_offset!(temporary)), s0);
                self.push(mark, |builder, place| {
                    builder.out.load(s2, field(context_offset!(temporary)));
                    builder.out.store(place, s2);
                });
            }
            Action::PushConstant(value) => self.push(mark, |builder, place| {
                builder.store_constant(place, value as u64);
            }),
            Action::Pop(register) => {
                self.look_up(stack(0), 8, false, mark);
                let place = self.found();
                self.adjust_stack(8);
                self.out.load(register, place);
            }
            Action::Leave => {
                self.look_up(at(Register::RBP, Register::None, 0), 8, false, mark);
                let place = self.found();
                self.out.lea(Register::RSP, at(Register::RBP, Register::None, 8));
                self.out.load(Register::RBP, place);
            }
            Action::Repeat(repeated) => self.repeat(repeated, bytes, mark),
            Action::Inline(kind) => self.inline(kind, mark),
            Action::Branch(condition, target) => {
                self.out.raw(&[0x0f, 0x80 | condition, 0, 0, 0, 0]);
                let displacement = self.out.here() - 4;
                self.later.push(Later::Taken { at: displacement, target });
            }
            _ => {
                self.last(planned, mark);
                return false;
            }
        }
        true
    }

    /// The instructions that end a block.
    fn last(&mut self, planned: &Planned, mark: u32) {
        let instruction = &planned.instruction;
        match planned.action {
            Action::Jump(target) => self.leave_to(target),
            Action::Call(target) => {
                let back = instruction.next_ip();
                self.push(mark, |builder, place| builder.store_constant(place, back));
                self.leave_to(target);
            }
            Action::JumpIndirect => {
                self.load_target(instruction, mark);
                self.leave_indirect();
            }
            Action::CallIndirect => {
                let [s0, ..] = self.s();
                let back = instruction.next_ip();
                self.load_target(instruction, mark);
                self.out.store(field(context_offset!(jump_target)), s0);
                self.push(mark, |builder, place| builder.store_constant(place, back));
                self.out.load(s0, field(context_offset!(jump_target)));
                self.leave_indirect();
            }
            Action::SystemCall => self.system_call(instruction),
            Action::SystemReturn => self.system_return(mark),
            Action::Return(extra) => {
                let [s0, ..] = self.s();
                self.look_up(stack(0), 8, false, mark);
                let place = self.found();
                self.out.load(s0, place);
                self.adjust_stack(8 + i32::from(extra));
                self.leave_indirect();
            }
            _ => {
                if !instruction.is_invalid() {
                    self.left.push((mark, *instruction));
                }
                self.interpret(mark);
            }
        }
    }

    pub(super) fn s(&self) -> [Register; 3] {
        self.scratch.expect("actions with look-ups get scratch registers")
    }

    /// `rsp += bytes`, flags untouched.
    pub(super) fn adjust_stack(&mut self, bytes: i32) {
        self.out.lea(Register::RSP, stack(bytes));
    }

    /// Look up the slot below the stack pointer, fill it, and move the stack pointer.
    fn push(&mut self, mark: u32, fill: impl FnOnce(&mut Self, MemoryOperand)) {
        self.look_up(stack(-8), 8, true, mark);
        let place = self.found();
        fill(self, place);
        self.adjust_stack(-8);
    }

    /// Store a 64-bit constant; uses s2.
    fn store_constant(&mut self, place: MemoryOperand, value: u64) {
        if i64::from(value as i32) == value as i64 {
            let built = Instruction::with2(Code::Mov_rm64_imm32, place, value as i32);
            self.out.instruction(&built.expect("operands fit the code"));
        } else {
            let [_, _, s2] = self.s();
            self.out.constant(s2, value);
            self.out.store(place, s2);
        }
    }

    /// The operand that a look-up has found.
    pub(super) fn found(&self) -> MemoryOperand {
        let [s0, s1, _] = self.s();
        at(s1, s0, 0)
    }

    /// An instruction with an explicit memory operand; false if the operand cannot be replaced.
    fn on_memory(
        &mut self,
        instruction: &Instruction,
        size: usize,
        write: bool,
        mark: u32,
    ) -> bool {
        let [s0, s1, _] = self.s();
        let mut moved = *instruction;
        moved.set_segment_prefix(Register::None);
        moved.set_memory_base(s1);
        moved.set_memory_index(s0);
        moved.set_memory_index_scale(1);
        moved.set_memory_displacement64(0);
        moved.set_memory_displ_size(0);
        if let Some(code) = without_moffs(instruction.code()) {
            moved.set_code(code);
        }
        let mut probe = iced_x86::Encoder::new(64);
        if probe.encode(&moved, self.out.here()).is_err() {
            return false;
        }
        self.operand_address(instruction);
        if immediate_bit_form(instruction.code()).is_some() {
            self.bit_operand(&moved, size, write, mark);
        } else {
            self.look_up_in_s0(size, write, mark);
            self.out.instruction(&moved);
        }
        true
    }

    /// `bt` and its kin with a bit offset in a register, which reach beyond their operand: look up
    /// the word that holds the bit, and let the instruction find it from where it would start.
    fn bit_operand(&mut self, moved: &Instruction, size: usize, write: bool, mark: u32) {
        let [s0, s1, s2] = self.s();
        self.word_of_bit(moved.op1_register(), size);
        self.out.lea(s0, at(s0, s1, 0));
        self.look_up_in_s0(size, write, mark);
        self.out.store(field(context_offset!(temporary)), s1);
        self.word_of_bit(moved.op1_register(), size);
        self.out.copy(s2, s1);
        self.out.load(s1, field(context_offset!(temporary)));
        self.out.negate_into_sum(s0, s2);
        self.out.instruction(moved);
    }

    /// Into s1 the distance in bytes of the word of `size` bytes that holds the bit numbered by
    /// `register`; s2 is lost.
    fn word_of_bit(&mut self, register: Register, size: usize) {
        let [_, s1, s2] = self.s();
        let number = register.full_register();
        if size == 4 {
            self.out.sign_extend32(s1, register);
        } else {
            self.out.copy(s1, number);
        }
        self.out.constant(s2, 3);
        self.out.shift_right_arithmetic(s1, s2);
        let mask =
            if size == 4 { context_offset!(word4_mask) } else { context_offset!(word8_mask) };
        self.masked(s1, mask);
    }

    /// The linear address of an instruction's operand into s0.
    fn operand_address(&mut self, instruction: &Instruction) {
        let [s0, s1, _] = self.s();
        let (base, index) = (instruction.memory_base(), instruction.memory_index());
        let displacement = instruction.memory_displacement64();
        let absolute = instruction.is_ip_rel_memory_operand()
            || (base == Register::None && index == Register::None);
        if absolute {
            self.out.constant(s0, displacement);
        } else {
            let narrow = base.is_gpr32() || index.is_gpr32();
            let operand = MemoryOperand::new(
                base,
                index,
                instruction.memory_index_scale(),
                displacement as i64,
                instruction.memory_displ_size(),
                false,
                Register::None,
            );
            let (code, to) = if narrow {
                (Code::Lea_r32_m, super::emit::gpr32(s0))
            } else {
                (Code::Lea_r64_m, s0)
            };
            let built = Instruction::with2(code, to, operand);
            self.out.instruction(&built.expect("operands fit the code"));
        }
        if let segment @ (Register::FS | Register::GS) = instruction.memory_segment() {
            self.out.load(s1, field(segment_base(segment)));
            self.out.lea(s0, at(s0, s1, 0));
        }
    }

    /// Look up an address that is an operand of registers only.
    pub(super) fn look_up(&mut self, address: MemoryOperand, size: usize, write: bool, mark: u32) {
        let [s0, ..] = self.s();
        self.out.lea(s0, address);
        self.look_up_in_s0(size, write, mark);
    }

    /// Look up the address in s0 (memory/tlb.rs): s0 becomes the offset in the page, s1 the page's
    /// host address. Leaves everything else alone.
    fn look_up_in_s0(&mut self, size: usize, write: bool, mark: u32) {
        let [s0, s1, s2] = self.s();
        let tags =
            if write { std::mem::offset_of!(Set, write) } else { std::mem::offset_of!(Set, read) };
        self.out.extract(s1, s0, context_offset!(page_index_mask));
        self.out.copy(s2, Register::RCX);
        self.out.load(Register::RCX, in_set(Register::None, s1, set_offset(tags)));
        self.out.lea(s0, at(s0, Register::RCX, 0));
        if size > 1 {
            self.out.lea(Register::RCX, at(s0, Register::None, size as i32 - 1));
            self.out.extract(Register::RCX, Register::RCX, context_offset!(page_number_mask));
        } else {
            self.out.extract(Register::RCX, s0, context_offset!(page_number_mask));
        }
        self.miss_unless_rcx_zero(mark);
        self.out.copy(Register::RCX, s2);
        let host = set_offset(std::mem::offset_of!(Set, host));
        self.out.load(s1, in_set(Register::None, s1, host));
    }

    /// The access misses unless RCX, whose guest value is in s2, is zero.
    pub(super) fn miss_unless_rcx_zero(&mut self, mark: u32) {
        let displacement = self.out.jump_unless_rcx_zero();
        self.later.push(Later::Miss { at: displacement, mark });
    }

    /// The target of an indirect jump or call into s0.
    fn load_target(&mut self, instruction: &Instruction, mark: u32) {
        let [s0, ..] = self.s();
        if instruction.op0_kind() == OpKind::Register {
            self.out.copy(s0, instruction.op0_register());
        } else {
            self.operand_address(instruction);
            self.look_up_in_s0(8, false, mark);
            let place = self.found();
            self.out.load(s0, place);
        }
    }

    fn reload(&mut self) {
        self.reload_registers(self.scratch);
    }

    fn reload_registers(&mut self, registers: Option<[Register; 3]>) {
        for (slot, register) in registers.into_iter().flatten().enumerate() {
            self.out.load(register, field(SPILL + 8 * slot as i32));
        }
    }

    /// Go out to Rust through a thunk, with a number that says more.
    fn way_out(&mut self, thunk: u64, detail: u32) {
        self.out.set_field32(context_offset!(detail), detail);
        self.out.jump(thunk);
    }

    /// Have the interpreter execute the instruction at `mark`.
    fn interpret(&mut self, mark: u32) {
        self.way_out(self.thunks.interpret.plain, mark);
    }

    /// The jump whose displacement is at `at` leads to the interpreter.
    pub(super) fn delicate(&mut self, at: u64, mark: u32) {
        self.later.push(Later::Delicate { at, mark });
    }

    /// Leave the block for a known address.
    fn leave_to(&mut self, target: u64) {
        if is_linkable(self.key, target) {
            self.leave_by_link(target);
        } else {
            self.leave_by_jump_cache(target);
        }
    }

    fn leave_by_link(&mut self, target: u64) {
        let mut warm = 0;
        if self.scratch.is_some() {
            warm = self.out.jump(self.out.here() + 5);
            self.closings.push(Closing::Jump { at: warm, displacement: 0 });
            self.reload();
        }
        let cold = self.out.jump(self.out.here() + 5);
        let out = self.out.here();
        self.closings.push(Closing::Jump { at: cold, displacement: 0 });
        let number = self.gate(target, warm, cold, out);
        self.way_out(self.bare.unlinked.plain, number);
    }

    /// Add a gate; its number.
    fn gate(&mut self, target: u64, warm: u64, cold: u64, out: u64) -> u32 {
        self.gates.push(Gate { block: self.block, target, warm, cold, out });
        self.first_gate + self.gates.len() as u32 - 1
    }

    /// A five-byte `nop` that the signal handler can turn into a jump; the index of its closing,
    /// to be completed by [`Self::finish_gate`].
    fn open_gate(&mut self) -> (u64, usize) {
        let at = self.out.here();
        self.out.raw(&NOP);
        self.closings.push(Closing::Nop { at, displacement: 0 });
        (at, self.closings.len() - 1)
    }

    /// Say that a closed gate leads here.
    fn finish_gate(&mut self, gate: (u64, usize)) {
        self.finish_gate_at(gate, self.out.here());
    }

    fn finish_gate_at(&mut self, (at, index): (u64, usize), target: u64) {
        let displacement = super::emit::displacement(at + 1, target);
        self.closings[index] = Closing::Nop { at, displacement };
    }

    fn leave_by_jump_cache(&mut self, target: u64) {
        let [s0, _, s2] = self.s();
        let line =
            std::mem::offset_of!(Set, jumps) + jump_index_of(target) * size_of::<JumpEntry>();
        let entry = set_offset(line);
        let gate = self.open_gate();
        self.out.copy(s2, Register::RCX);
        self.out.load(Register::RCX, in_set(Register::None, Register::None, entry));
        if i64::from(target as i32) == target as i64 {
            self.out.lea(Register::RCX, at(Register::RCX, Register::None, target as i32));
        } else {
            self.out.constant(s0, target);
            self.out.lea(Register::RCX, at(Register::RCX, s0, 0));
        }
        let miss = self.out.jump_unless_rcx_zero();
        self.out.copy(Register::RCX, s2);
        let field = if self.is_canonical() {
            std::mem::offset_of!(JumpEntry, canonical)
        } else {
            self.reload();
            std::mem::offset_of!(JumpEntry, target)
        };
        let place = in_set(Register::None, Register::None, entry + field as i32);
        let built = Instruction::with1(Code::Jmp_rm64, place);
        self.out.instruction(&built.expect("operands fit the code"));
        let here = self.out.here();
        self.out.patch(miss, here);
        self.out.copy(Register::RCX, s2);
        self.finish_gate(gate);
        let number = self.gate(target, 0, 0, 0);
        self.way_out(self.thunks.unlinked.plain, number);
    }

    /// Leave the block for the address in s0.
    pub(super) fn leave_indirect(&mut self) {
        let [s0, s1, s2] = self.s();
        self.out.store(field(register_offset!(rip)), s0);
        let gate = self.open_gate();
        self.out.rotate(s1, s0, 12);
        self.out.lea(s1, at(s1, s0, 0));
        self.out.extract(s1, s1, context_offset!(jump_index_mask));
        self.out.deposit(s1, s1, context_offset!(jump_line_mask));
        self.out.copy(s2, Register::RCX);
        let jumps = set_offset(std::mem::offset_of!(Set, jumps));
        self.out.load(Register::RCX, in_set(s1, Register::None, jumps));
        self.out.lea(Register::RCX, at(Register::RCX, s0, 0));
        let miss = self.out.jump_unless_rcx_zero();
        self.out.copy(Register::RCX, s2);
        if self.is_canonical() {
            let canonical = jumps + std::mem::offset_of!(JumpEntry, canonical) as i32;
            let built = Instruction::with1(Code::Jmp_rm64, in_set(s1, Register::None, canonical));
            self.out.instruction(&built.expect("operands fit the code"));
        } else {
            let target = jumps + std::mem::offset_of!(JumpEntry, target) as i32;
            self.out.load(s1, in_set(s1, Register::None, target));
            self.out.store(field(context_offset!(jump_target)), s1);
            self.reload();
            self.out.jump_field(context_offset!(jump_target));
        }
        self.out.patch(miss, self.thunks.lookup.with_rcx);
        self.finish_gate_at(gate, self.thunks.lookup.plain);
    }

    fn write_later(&mut self) {
        for later in std::mem::take(&mut self.later) {
            let here = self.out.here();
            match later {
                Later::Taken { at, target } => {
                    self.out.patch(at, here);
                    self.leave_to(target);
                }
                Later::Miss { at, mark } => {
                    self.out.patch(at, here);
                    self.way_out(self.thunks.miss.with_rcx, mark);
                }
                Later::Delicate { at, mark } => {
                    self.out.patch(at, here);
                    self.way_out(self.thunks.interpret.with_rcx, mark);
                }
            }
        }
    }
}

/// `[rsp + displacement]`.
pub(super) fn stack(displacement: i32) -> MemoryOperand {
    at(Register::RSP, Register::None, displacement)
}

/// The ordinary form of a `mov` between the accumulator and an absolute address.
pub(crate) fn without_moffs(code: Code) -> Option<Code> {
    Some(match code {
        Code::Mov_AL_moffs8 => Code::Mov_r8_rm8,
        Code::Mov_AX_moffs16 => Code::Mov_r16_rm16,
        Code::Mov_EAX_moffs32 => Code::Mov_r32_rm32,
        Code::Mov_RAX_moffs64 => Code::Mov_r64_rm64,
        Code::Mov_moffs8_AL => Code::Mov_rm8_r8,
        Code::Mov_moffs16_AX => Code::Mov_rm16_r16,
        Code::Mov_moffs32_EAX => Code::Mov_rm32_r32,
        Code::Mov_moffs64_RAX => Code::Mov_rm64_r64,
        _ => return None,
    })
}
