//! The stack: addressing it, and the instructions that push and pop.

use iced_x86::{Code, Instruction, OpKind};

use super::operand::{gp0, merge, truncate};
use crate::architectural::Architectural;
use crate::exception::Trap;
use crate::instruction::segment_register;
use crate::memory::{Access, Privilege};
use crate::state::{Attributes, CodeSize, SegmentRegister, rflags};

/// Most bytes pushed by one instruction or event: nine 32-bit words of a virtual-8086 interrupt,
/// or `pushad`.
const MAX_FRAME_BYTES: usize = 80;

impl Architectural {
    /// Bytes in the stack pointer: 8 in 64-bit mode, otherwise by SS.B (SDM 1 6.2.3).
    pub(crate) fn stack_address_size(&self) -> usize {
        let regs = &self.context.regs;
        if regs.code_size() == CodeSize::Bits64 {
            8
        } else if regs.segment(SegmentRegister::Ss).attributes.contains(Attributes::BIG) {
            4
        } else {
            2
        }
    }

    /// The stack pointer, truncated to the stack's address size.
    pub(crate) fn stack_pointer(&self) -> u64 {
        truncate(self.context.regs.gpr[4], self.stack_address_size())
    }

    /// Set the stack pointer as far as the stack's address size reaches.
    pub(crate) fn set_stack_pointer(&mut self, value: u64) {
        let size = self.stack_address_size();
        let slot = &mut self.context.regs.gpr[4];
        *slot = match size {
            2 => merge(*slot, value, 2),
            _ => truncate(value, size),
        };
    }

    /// Release `bytes` of stack.
    pub(super) fn adjust_stack(&mut self, bytes: u64) {
        let value = self.stack_pointer().wrapping_add(bytes);
        self.set_stack_pointer(value);
    }

    /// Push one value of `size` bytes.
    pub(crate) fn push(&mut self, value: u64, size: usize) -> Result<(), Trap> {
        let width = self.stack_address_size();
        let pointer = truncate(self.stack_pointer().wrapping_sub(size as u64), width);
        let at = self.segmented(SegmentRegister::Ss, pointer, size as u32, Access::Write)?;
        self.write_sized(at, value, size, Privilege::Current)?;
        self.set_stack_pointer(pointer);
        Ok(())
    }

    /// The faults of a push, without the push.
    pub(super) fn probe_push(&mut self, size: usize) -> Result<(), Trap> {
        let width = self.stack_address_size();
        let pointer = truncate(self.stack_pointer().wrapping_sub(size as u64), width);
        let at = self.segmented(SegmentRegister::Ss, pointer, size as u32, Access::Write)?;
        if self.alignment_is_checked() {
            self.require_alignment(at, size as u64)?;
        }
        self.probe_linear(at, size, Access::Write, Privilege::Current)
    }

    /// Push several values, the first one first, all or none.
    pub(crate) fn push_frame(&mut self, values: &[u64], size: usize) -> Result<(), Trap> {
        let total = values.len() * size;
        let width = self.stack_address_size();
        let pointer = truncate(self.stack_pointer().wrapping_sub(total as u64), width);
        if pointer > self.stack_pointer() || total > MAX_FRAME_BYTES {
            // The stack wraps around: one by one, as the hardware does.
            return values.iter().try_for_each(|&value| self.push(value, size));
        }
        let mut bytes = [0; MAX_FRAME_BYTES];
        for (slot, value) in bytes[..total].chunks_exact_mut(size).zip(values.iter().rev()) {
            slot.copy_from_slice(&value.to_le_bytes()[..size]);
        }
        let at = self.segmented(SegmentRegister::Ss, pointer, total as u32, Access::Write)?;
        if self.alignment_is_checked() {
            self.require_alignment(at, size as u64)?;
        }
        self.write_linear(at, &bytes[..total], Privilege::Current)?;
        self.set_stack_pointer(pointer);
        Ok(())
    }

    /// Pop one value of `size` bytes.
    pub(crate) fn pop(&mut self, size: usize) -> Result<u64, Trap> {
        let pointer = self.stack_pointer();
        let at = self.segmented(SegmentRegister::Ss, pointer, size as u32, Access::Read)?;
        let value = self.read_sized(at, size, Privilege::Current)?;
        self.set_stack_pointer(pointer.wrapping_add(size as u64));
        Ok(value)
    }

    pub(crate) fn push_operand(&mut self, instruction: &Instruction) -> Result<(), Trap> {
        let size = instruction.stack_pointer_increment().unsigned_abs() as usize;
        let value = match instruction.op0_kind() {
            OpKind::Register if instruction.op0_register().is_segment_register() => {
                let which = segment_register(instruction.op0_register());
                u64::from(self.context.regs.segment(which).selector)
            }
            _ => self.read_operand(instruction, 0)?,
        };
        self.push(value, size)
    }

    pub(crate) fn pop_operand(&mut self, instruction: &Instruction) -> Result<(), Trap> {
        let size = instruction.stack_pointer_increment().unsigned_abs() as usize;
        let value = self.pop(size)?;
        if instruction.op0_kind() != OpKind::Register
            || !instruction.op0_register().is_segment_register()
        {
            // A memory operand based on RSP is addressed after the increment (SDM 2B "POP").
            return self.write_operand(instruction, 0, value);
        }
        let which = segment_register(instruction.op0_register());
        self.load_segment(which, value as u16)?;
        if which == SegmentRegister::Ss {
            self.begin_stack_shadow();
        }
        Ok(())
    }

    pub(crate) fn push_all(&mut self, instruction: &Instruction) -> Result<(), Trap> {
        let size = if instruction.code() == Code::Pushad { 4 } else { 2 };
        let gpr = self.context.regs.gpr;
        self.push_frame(&gpr[..8], size)
    }

    pub(crate) fn pop_all(&mut self, instruction: &Instruction) -> Result<(), Trap> {
        let size = if instruction.code() == Code::Popad { 4 } else { 2 };
        for number in (0..8).rev() {
            let value = self.pop(size)?;
            if number != 4 {
                let slot = &mut self.context.regs.gpr[number];
                *slot = merge(*slot, value, size);
            }
        }
        Ok(())
    }

    /// In virtual-8086 mode the flags are the monitor's unless IOPL is 3 (SDM 3B 21.2.7).
    fn check_flags_access(&self) -> Result<(), Trap> {
        let flags = self.context.regs.rflags();
        if flags & rflags::VM != 0 && flags & rflags::IOPL != rflags::IOPL {
            return Err(gp0());
        }
        Ok(())
    }

    pub(crate) fn push_flags(&mut self, instruction: &Instruction) -> Result<(), Trap> {
        self.check_flags_access()?;
        let size = instruction.stack_pointer_increment().unsigned_abs() as usize;
        let flags = self.context.regs.rflags() & !(rflags::RF | rflags::VM);
        self.push(flags, size)
    }

    pub(crate) fn pop_flags(&mut self, instruction: &Instruction) -> Result<(), Trap> {
        self.check_flags_access()?;
        let size = instruction.stack_pointer_increment().unsigned_abs() as usize;
        let value = self.pop(size)?;
        let mut changed = self.changeable_flags(size);
        changed &= !(rflags::VM | rflags::RF | rflags::VIP | rflags::VIF);
        let old = self.context.regs.rflags();
        self.context.regs.set_rflags((old & !changed | value & changed) & !rflags::RF);
        Ok(())
    }

    /// The flags that `popf` and `iret` may change at this privilege (SDM 2B "POPF").
    pub(super) fn changeable_flags(&self, size: usize) -> u64 {
        let regs = &self.context.regs;
        let mut changed = rflags::STATUS | rflags::DF | rflags::TF | rflags::NT;
        if size > 2 {
            changed |= rflags::AC | rflags::ID | rflags::RF;
        }
        let mode = regs.mode();
        if mode.is_kernel() && !mode.is_virtual_8086() {
            changed |= rflags::IOPL;
        }
        if mode.has_io_privilege(regs.rflags()) || !regs.protected() {
            changed |= rflags::IF;
        }
        if !regs.protected() {
            changed |= rflags::IOPL;
        }
        if self.paravirtual.is_some() {
            changed &= !(rflags::IOPL | rflags::IF);
        }
        changed
    }

    pub(crate) fn enter_frame(&mut self, instruction: &Instruction) -> Result<(), Trap> {
        let size = match instruction.code() {
            Code::Enterw_imm16_imm8 => 2,
            Code::Enterd_imm16_imm8 => 4,
            _ => 8,
        };
        let reserved = u64::from(instruction.immediate16());
        let level = instruction.immediate8_2nd() & 31;
        let width = self.stack_address_size();
        let mut base = self.context.regs.gpr[5];
        self.push(base, size)?;
        let frame = self.context.regs.gpr[4];
        for _ in 1..level {
            base = base.wrapping_sub(size as u64);
            let offset = truncate(base, width);
            let at = self.segmented(SegmentRegister::Ss, offset, size as u32, Access::Read)?;
            let value = self.read_sized(at, size, Privilege::Current)?;
            self.push(value, size)?;
        }
        if level > 0 {
            self.push(frame, size)?;
        }
        let slot = &mut self.context.regs.gpr[5];
        *slot = merge(*slot, frame, size);
        self.adjust_stack(reserved.wrapping_neg());
        // The new top of the stack must be writable (SDM 2A "ENTER").
        let top = self.stack_pointer();
        let at = self.segmented(SegmentRegister::Ss, top, size as u32, Access::Write)?;
        self.probe_linear(at, size, Access::Write, Privilege::Current)
    }

    pub(crate) fn leave_frame(&mut self, instruction: &Instruction) -> Result<(), Trap> {
        let size = match instruction.code() {
            Code::Leavew => 2,
            Code::Leaved => 4,
            _ => 8,
        };
        let frame = self.context.regs.gpr[5];
        self.set_stack_pointer(frame);
        let value = self.pop(size)?;
        let slot = &mut self.context.regs.gpr[5];
        *slot = merge(*slot, value, size);
        Ok(())
    }

    /// No interrupts and no debug traps until after the next instruction (SDM 3A 6.8.3).
    pub(crate) fn begin_stack_shadow(&mut self) {
        self.context.regs.interrupt_shadow = 1;
        self.context.regs.debug_shadow = 1;
    }
}
