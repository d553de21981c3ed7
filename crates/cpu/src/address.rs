//! Segmentation: from a memory operand to a linear address, with the checks of SDM 3A chapter 5.

use iced_x86::{Instruction, Register};

use crate::architectural::Architectural;
use crate::exception::Exception;
use crate::instruction::{address_bits, segment_of};
use crate::memory::{Access, Linear};
use crate::state::{Attributes, CodeSize, SegmentRegister};

impl Architectural {
    /// The value of a general-purpose register of any width, zero extended.
    pub(crate) fn register_value(&self, register: Register) -> u64 {
        if register == Register::None {
            return 0;
        }
        let value = self.context.regs.gpr[register.full_register().number()];
        match register.size() {
            1 if (Register::AH..=Register::BH).contains(&register) => {
                self.context.regs.gpr[register.number() - 4] >> 8 & 0xff
            }
            1 => value & 0xff,
            2 => value & 0xffff,
            4 => value & 0xffff_ffff,
            _ => value,
        }
    }

    /// The offset of the memory operand in its segment, truncated to the address size. iced gives
    /// RIP-relative operands as absolute displacements.
    pub(crate) fn effective_address(&self, instruction: &Instruction) -> u64 {
        let base = match instruction.memory_base() {
            Register::RIP | Register::EIP | Register::None => 0,
            register => self.register_value(register),
        };
        let index = match instruction.memory_index() {
            register if register.is_gpr() => self.register_value(register),
            _ => 0,
        };
        let scaled = index.wrapping_mul(u64::from(instruction.memory_index_scale()));
        let offset = base.wrapping_add(scaled).wrapping_add(instruction.memory_displacement64());
        self.truncate_address(instruction, offset)
    }

    /// `offset` truncated to the instruction's address size.
    pub(crate) fn truncate_address(&self, instruction: &Instruction, offset: u64) -> u64 {
        match address_bits(instruction, self.context.regs.code_size()) {
            16 => offset & 0xffff,
            32 => offset & 0xffff_ffff,
            _ => offset,
        }
    }

    /// The linear address of an instruction's memory operand of `size` bytes.
    ///
    /// # Errors
    ///
    /// As [`Self::segmented`].
    pub(crate) fn operand_linear(
        &self,
        instruction: &Instruction,
        size: u32,
        access: Access,
    ) -> Result<Linear, Exception> {
        let offset = self.effective_address(instruction);
        self.segmented(segment_of(instruction), offset, size, access)
    }

    /// The linear address of `size` bytes at `offset` in a segment.
    ///
    /// # Errors
    ///
    /// #GP(0), or #SS(0) for the stack segment: not canonical in 64-bit mode, otherwise beyond the
    /// limit, of the wrong type, or through a null selector (SDM 3A 5.3, 5.4, 5.5).
    pub(crate) fn segmented(
        &self,
        which: SegmentRegister,
        offset: u64,
        size: u32,
        access: Access,
    ) -> Result<Linear, Exception> {
        let regs = &self.context.regs;
        let fault = if which == SegmentRegister::Ss {
            Exception::stack_fault(0)
        } else {
            Exception::general_protection(0)
        };
        let segment = regs.segment(which);
        if regs.code_size() == CodeSize::Bits64 {
            let base = match which {
                SegmentRegister::Fs | SegmentRegister::Gs => segment.base,
                _ => 0,
            };
            let first = Linear(base.wrapping_add(offset));
            let last = Linear(first.0.wrapping_add(u64::from(size.max(1)) - 1));
            return if first.is_canonical() && last.is_canonical() {
                Ok(first)
            } else {
                Err(fault)
            };
        }
        self.check_segment(which, offset, size, access).ok_or(fault)?;
        Ok(Linear(segment.base.wrapping_add(offset) & 0xffff_ffff))
    }

    /// Limit, type and null checks outside 64-bit mode.
    fn check_segment(
        &self,
        which: SegmentRegister,
        offset: u64,
        size: u32,
        access: Access,
    ) -> Option<()> {
        let regs = &self.context.regs;
        let segment = regs.segment(which);
        let last = offset + u64::from(size.max(1)) - 1;
        let attributes = segment.attributes;
        let limit = u64::from(segment.limit);
        if regs.real_or_v86() {
            return (last <= limit).then_some(());
        }
        if attributes.contains(Attributes::UNUSABLE) {
            return None;
        }
        let code = attributes.contains(Attributes::CODE);
        let allowed = match access {
            Access::Write => !code && attributes.contains(Attributes::WRITABLE),
            Access::Read => !code || attributes.contains(Attributes::WRITABLE),
            Access::Execute => true,
        };
        let in_limit = if !code && attributes.contains(Attributes::EXPAND_DOWN) {
            let top = if attributes.contains(Attributes::BIG) { 0xffff_ffff } else { 0xffff };
            offset > limit && last <= top
        } else {
            last <= limit
        };
        (allowed && in_limit).then_some(())
    }
}
