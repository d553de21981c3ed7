//! Ways out of a block: links, the jump cache, Rust.

use iced_x86::{Code, Instruction, MemoryOperand, Register};

use super::emit::{at, field, in_set, scaled};
use super::generate::{Builder, Later, SPILL, is_linkable};
use super::reach::set_offset;
use super::stopper::{Closing, NOP};
use super::thunk::Thunks;
use super::{Gate, NONE};
use crate::context::{NOT_COMPUTED, context_offset, register_offset};
use crate::memory::Linear;
use crate::memory::tlb::{Entries, JumpEntry, jump_index_of};

impl Builder<'_> {
    /// The ways out with the scratch registers spilled.
    pub(super) fn thunks(&self) -> Thunks {
        self.thunks[usize::from(self.kernel)]
    }

    pub(super) fn reload(&mut self) {
        self.reload_registers(self.scratch);
    }

    pub(super) fn reload_registers(&mut self, registers: Option<[Register; 3]>) {
        for (slot, register) in registers.into_iter().flatten().enumerate() {
            self.out.load(register, field(SPILL + 8 * slot as i32));
        }
    }

    /// Go out to Rust through a thunk, with a number that says more.
    pub(super) fn way_out(&mut self, thunk: u64, detail: u32) {
        self.out.set_field32(context_offset!(detail), detail);
        self.out.jump(thunk);
    }

    /// Have the interpreter execute the instruction at `mark`.
    pub(super) fn interpret(&mut self, mark: u32) {
        self.way_out(self.thunks().interpret.plain, mark);
    }

    /// The jump whose displacement is at `at` leads to the interpreter.
    pub(super) fn delicate(&mut self, at: u64, mark: u32) {
        self.postpone(Later::Delicate { at, mark });
    }

    /// Leave the block for a known address.
    pub(super) fn leave_to(&mut self, target: u64) {
        if is_linkable(self.key, target, self.techniques) {
            self.leave_by_link(target);
        } else if self.may_be_far(target) {
            self.leave_by_far_gate(target);
        } else {
            self.leave_by_jump_cache(target);
        }
    }

    pub(super) fn leave_by_link(&mut self, target: u64) {
        let mut warm = 0;
        if self.scratch.is_some() {
            if self.hands_over() {
                self.out.align_displacement();
                warm = self.out.jump(self.out.here() + 5);
                self.closings.push(Closing::Jump { at: warm, displacement: 0 });
            }
            self.reload();
        }
        self.out.align_displacement();
        let cold = self.out.jump(self.out.here() + 5);
        let out = self.out.here();
        self.closings.push(Closing::Jump { at: cold, displacement: 0 });
        let number = self.gate(target, warm, cold, out);
        self.way_out(self.bare.unlinked.plain, number);
    }

    /// Leave for the plain block that starts with the instruction at a mark, with the guest's RCX in
    /// s2. The plain block does all of the instruction.
    pub(super) fn leave_to_plain(&mut self, mark: u32) {
        let [_, _, s2] = self.s();
        let delta = self.marks[(mark - self.first_mark) as usize].guest;
        let target = self.key.linear.wrapping_add(u64::from(delta));
        self.out.copy(Register::RCX, s2);
        self.reload();
        self.link_cold(target, true);
    }

    /// A link for when the scratch registers have their guest values; to a plain block, or not.
    pub(super) fn link_cold(&mut self, target: u64, plain: bool) {
        self.out.align_displacement();
        let cold = self.out.jump(self.out.here() + 5);
        let out = self.out.here();
        self.closings.push(Closing::Jump { at: cold, displacement: 0 });
        let number = self.gate(target, 0, cold, out);
        self.gates.last_mut().expect("just added").plain = plain;
        self.way_out(self.bare.unlinked.plain, number);
    }

    /// Add a gate; its number.
    pub(super) fn gate(&mut self, target: u64, warm: u64, cold: u64, out: u64) -> u32 {
        let (block, user_open) = (self.block, self.user_open);
        let [warm, cold, out] = [warm, cold, out].map(|place| self.offset(place));
        let (plain, far, to, next) = (false, None, NONE, NONE);
        self.gates.push(Gate { block, target, warm, cold, out, plain, user_open, far, to, next });
        self.first_gate + self.gates.len() as u32 - 1
    }

    /// The offset in the code cache of a place that is not its start; 0 for none.
    pub(super) fn offset(&self, place: u64) -> u32 {
        if place == 0 { 0 } else { (place - self.cache_start) as u32 }
    }

    /// A five-byte `nop` that the signal handler can turn into a jump; the index of its closing,
    /// to be completed by [`Self::finish_gate`].
    pub(super) fn open_gate(&mut self) -> (u64, usize) {
        self.out.align_five();
        let at = self.out.here();
        self.out.raw(&NOP);
        self.closings.push(Closing::Nop { at, displacement: 0 });
        (at, self.closings.len() - 1)
    }

    /// Say that a closed gate leads here.
    pub(super) fn finish_gate(&mut self, gate: (u64, usize)) {
        self.finish_gate_at(gate, self.out.here());
    }

    pub(super) fn finish_gate_at(&mut self, (at, index): (u64, usize), target: u64) {
        let displacement = super::emit::displacement(at + 1, target);
        self.closings[index] = Closing::Nop { at, displacement };
    }

    pub(super) fn leave_by_jump_cache(&mut self, target: u64) {
        let [s0, s1, s2] = self.s();
        if self.key.is_relocatable() {
            self.address(s0, target);
            return self.leave_indirect();
        }
        if !Linear(target).is_canonical() {
            // The next instruction, behind the last address that there is.
            self.out.set_field32(context_offset!(detail), NOT_COMPUTED);
        }
        let line =
            std::mem::offset_of!(Entries, jumps) + jump_index_of(target) * size_of::<JumpEntry>();
        let entry = set_offset(line);
        let gate = self.open_gate();
        self.out.copy(s2, Register::RCX);
        let tag = self.in_line(Register::RCX, entry);
        self.out.load(Register::RCX, tag);
        if i64::from(target as i32) == target as i64 {
            self.out.lea(Register::RCX, at(Register::RCX, Register::None, target as i32));
        } else {
            self.out.constant(s0, target);
            self.out.lea(Register::RCX, at(Register::RCX, s0, 0));
        }
        let miss = self.out.jump_unless_rcx_zero();
        if !self.kernel {
            let page = self.in_line(s1, entry + std::mem::offset_of!(JumpEntry, page) as i32);
            self.note_page(page);
        }
        self.out.copy(Register::RCX, s2);
        if self.is_canonical() {
            let canonical = std::mem::offset_of!(JumpEntry, canonical) as i32;
            let place = self.in_line(s1, entry + canonical);
            let built = Instruction::with1(Code::Jmp_rm64, place);
            self.out.instruction(&built.expect("operands fit the code"));
        } else {
            let target = std::mem::offset_of!(JumpEntry, target) as i32;
            let place = self.in_line(s1, entry + target);
            self.out.load(s1, place);
            self.out.store(field(context_offset!(jump_target)), s1);
            self.reload();
            self.out.jump_field(context_offset!(jump_target));
        }
        let here = self.out.here();
        self.out.patch(miss, here);
        self.out.constant(s0, target);
        self.out.jump(self.thunks().second);
        self.finish_gate(gate);
        self.out.constant(s0, target);
        self.out.store(field(register_offset!(rip)), s0);
        self.out.jump(self.thunks().lookup.plain);
    }

    /// Leave the block for the address in s0.
    pub(super) fn leave_indirect(&mut self) {
        self.leave_indirect_after(|_| {});
    }

    /// The same; `arrive` writes what is to be done when the first line of the jump cache has the
    /// target, and may use no register.
    pub(super) fn leave_indirect_after(&mut self, arrive: impl FnOnce(&mut Self)) {
        let (miss, gate) = self.jump_by_cache(arrive);
        self.out.patch(miss, self.thunks().second);
        self.finish_gate_at(gate, self.thunks().lookup.plain);
    }

    /// Leave the block for the address in s0, which the guest has computed at `mark`. It may turn
    /// out not to be canonical where the jump cache does not have it (run.rs).
    pub(super) fn leave_computed(&mut self, mark: u32) {
        let (at, gate) = self.jump_by_cache(|_| {});
        self.postpone(Later::Computed { at, gate, mark });
    }

    /// Jump to the address in s0 if the first line of the jump cache has it; the displacement of the
    /// way on if not, and the gate.
    fn jump_by_cache(&mut self, arrive: impl FnOnce(&mut Self)) -> (u64, (u64, usize)) {
        let [s0, s1, s2] = self.s();
        self.out.store(field(register_offset!(rip)), s0);
        let gate = self.open_gate();
        self.out.copy(s2, Register::RCX);
        let kernel = self.kernel;
        let miss = look_at_first_line(self.out, [s0, s1, s2], kernel);
        if !kernel {
            self.note_page(of_line(s1, kernel, std::mem::offset_of!(JumpEntry, page)));
        }
        self.out.copy(Register::RCX, s2);
        arrive(self);
        if self.is_canonical() {
            let canonical = of_line(s1, kernel, std::mem::offset_of!(JumpEntry, canonical));
            let built = Instruction::with1(Code::Jmp_rm64, canonical);
            self.out.instruction(&built.expect("operands fit the code"));
        } else {
            let target = of_line(s1, kernel, std::mem::offset_of!(JumpEntry, target));
            self.out.load(s1, target);
            self.out.store(field(context_offset!(jump_target)), s1);
            self.reload();
            self.out.jump_field(context_offset!(jump_target));
        }
        (miss, gate)
    }

    /// User code goes on in the page that a line of the jump cache names; RCX is lost.
    fn note_page(&mut self, page: MemoryOperand) {
        self.out.load(Register::RCX, page);
        self.out.store(field(context_offset!(code_page)), Register::RCX);
    }

    /// A field of a known line of the jump cache; `pointer` is lost.
    pub(super) fn in_line(&mut self, pointer: Register, offset: i32) -> MemoryOperand {
        if !self.kernel {
            return in_set(Register::None, Register::None, offset);
        }
        self.out.load(pointer, field(context_offset!(set)));
        at(pointer, Register::None, offset)
    }
}

/// A field of the line of the jump cache that `register` leads to.
pub(super) fn of_line(register: Register, kernel: bool, part: usize) -> MemoryOperand {
    let offset = set_offset(std::mem::offset_of!(Entries, jumps) + part);
    if kernel {
        at(register, Register::None, offset)
    } else {
        in_set(register, Register::None, offset)
    }
}

/// Have s1 lead to the first line of the jump cache for the address in s0, and see whether it is that
/// address's: the displacement of the jump if not. RCX is lost.
pub(super) fn look_at_first_line(
    out: &mut super::Emitter,
    scratch: [Register; 3],
    kernel: bool,
) -> u64 {
    let [s0, s1, _] = scratch;
    out.rotate(s1, s0, 12);
    out.lea(s1, at(s1, s0, 0));
    look_at_line(out, scratch, kernel)
}

/// The same for the second line.
pub(super) fn look_at_second_line(
    out: &mut super::Emitter,
    scratch: [Register; 3],
    kernel: bool,
) -> u64 {
    let [s0, s1, _] = scratch;
    out.rotate(s1, s0, 7);
    out.lea(s1, scaled(s1, s0, 2, 0));
    look_at_line(out, scratch, kernel)
}

/// The same for the line whose number is the low bits of s1.
fn look_at_line(out: &mut super::Emitter, [s0, s1, _]: [Register; 3], kernel: bool) -> u64 {
    out.extract(s1, s1, context_offset!(jump_index_mask));
    out.deposit(s1, s1, context_offset!(jump_line_mask));
    if kernel {
        out.load(Register::RCX, field(context_offset!(set)));
        out.lea(s1, at(s1, Register::RCX, 0));
    }
    out.load(Register::RCX, of_line(s1, kernel, std::mem::offset_of!(JumpEntry, negative_tag)));
    out.lea(Register::RCX, at(Register::RCX, s0, 0));
    out.jump_unless_rcx_zero()
}
