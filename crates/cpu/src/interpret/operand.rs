//! Reading and writing the operands of an instruction: registers, memory, constants.

use iced_x86::{Instruction, OpKind, Register};

use crate::architectural::Architectural;
use crate::exception::{Exception, Trap, Vector};
use crate::memory::{Access, Linear, Privilege};
use crate::state::cr0;

/// Zero-extend the low `size` bytes of `value`.
pub(crate) fn truncate(value: u64, size: usize) -> u64 {
    match size {
        1 => value & 0xff,
        2 => value & 0xffff,
        4 => value & 0xffff_ffff,
        _ => value,
    }
}

/// Sign-extend the low `size` bytes of `value`.
pub(crate) fn sign_extend(value: u64, size: usize) -> u64 {
    match size {
        1 => value as i8 as u64,
        2 => value as i16 as u64,
        4 => value as i32 as u64,
        _ => value,
    }
}

/// Replace the low `size` bytes of a register; 32-bit writes clear the upper half.
pub(crate) fn merge(old: u64, value: u64, size: usize) -> u64 {
    match size {
        1 => old & !0xff | value & 0xff,
        2 => old & !0xffff | value & 0xffff,
        4 => value & 0xffff_ffff,
        _ => value,
    }
}

/// Bytes in an operand.
pub(crate) fn operand_size(instruction: &Instruction, operand: u32) -> usize {
    match instruction.op_kind(operand) {
        OpKind::Register => instruction.op_register(operand).size(),
        _ => instruction.memory_size().size(),
    }
}

impl Architectural {
    /// Set a general-purpose register of any width.
    pub(crate) fn set_register(&mut self, register: Register, value: u64) {
        if (Register::AH..=Register::BH).contains(&register) {
            let slot = &mut self.context.regs.gpr[register.number() - 4];
            *slot = *slot & !0xff00 | (value & 0xff) << 8;
            return;
        }
        let slot = &mut self.context.regs.gpr[register.full_register().number()];
        *slot = merge(*slot, value, register.size());
    }

    /// The value of a general-purpose register, immediate or memory operand, zero extended
    /// (immediates: sign extended as the instruction says).
    ///
    /// # Errors
    ///
    /// The faults of a memory operand.
    pub(crate) fn read_operand(
        &mut self,
        instruction: &Instruction,
        operand: u32,
    ) -> Result<u64, Trap> {
        match instruction.op_kind(operand) {
            OpKind::Register => Ok(self.register_value(instruction.op_register(operand))),
            OpKind::Memory => {
                let size = operand_size(instruction, operand);
                let at = self.operand_linear(instruction, size as u32, Access::Read)?;
                self.read_sized(at, size, Privilege::Current)
            }
            _ => Ok(instruction.immediate(operand)),
        }
    }

    /// Write a general-purpose register or memory operand.
    ///
    /// # Errors
    ///
    /// The faults of a memory operand.
    pub(crate) fn write_operand(
        &mut self,
        instruction: &Instruction,
        operand: u32,
        value: u64,
    ) -> Result<(), Trap> {
        if instruction.op_kind(operand) == OpKind::Register {
            self.set_register(instruction.op_register(operand), value);
            return Ok(());
        }
        let size = operand_size(instruction, operand);
        let at = self.operand_linear(instruction, size as u32, Access::Write)?;
        self.write_sized(at, value, size, Privilege::Current)
    }

    /// Read 1, 2, 4 or 8 bytes, zero extended.
    pub(crate) fn read_sized(
        &mut self,
        at: Linear,
        size: usize,
        by: Privilege,
    ) -> Result<u64, Trap> {
        if by == Privilege::Current && self.alignment_is_checked() {
            self.require_alignment(at, size as u64)?;
        }
        let mut bytes = [0; 8];
        self.read_linear(at, &mut bytes[..size], by)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// Write 1, 2, 4 or 8 bytes.
    pub(crate) fn write_sized(
        &mut self,
        at: Linear,
        value: u64,
        size: usize,
        by: Privilege,
    ) -> Result<(), Trap> {
        if by == Privilege::Current && self.alignment_is_checked() {
            self.require_alignment(at, size as u64)?;
        }
        self.write_linear(at, &value.to_le_bytes()[..size], by)
    }

    /// Whether #AC can happen: CPL 3, EFLAGS.AC and CR0.AM (SDM 3A 6.15, "alignment check").
    pub(crate) fn alignment_is_checked(&self) -> bool {
        let regs = &self.context.regs;
        regs.alignment_flag != 0 && regs.mode().is_user() && regs.cr0 & cr0::AM != 0
    }

    /// #AC unless `at` is a multiple of `size`.
    pub(super) fn require_alignment(&self, at: Linear, size: u64) -> Result<(), Trap> {
        if !at.0.is_multiple_of(size) {
            return Err(Exception::with_error(Vector::AlignmentCheck, 0).into());
        }
        Ok(())
    }

    /// Whether the processor is in 64-bit mode (not compatibility mode).
    pub(crate) fn in_64_bit_mode(&self) -> bool {
        self.context.regs.mode().is_64_bit()
    }

    /// #GP(0) unless at CPL 0.
    pub(crate) fn require_ring_0(&self) -> Result<(), Trap> {
        if !self.context.regs.mode().may_execute_privileged() {
            return Err(Exception::general_protection(0).into());
        }
        Ok(())
    }

    /// #UD in real-address and virtual-8086 mode.
    pub(crate) fn require_protected(&self) -> Result<(), Trap> {
        if self.context.regs.real_or_v86() {
            return Err(Exception::invalid_opcode().into());
        }
        Ok(())
    }
}

/// Shorthand for #GP(0).
pub(crate) fn gp0() -> Trap {
    Exception::general_protection(0).into()
}

/// Shorthand for #UD.
pub(crate) fn ud() -> Trap {
    Exception::invalid_opcode().into()
}
