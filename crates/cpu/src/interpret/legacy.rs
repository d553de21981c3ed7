//! Instructions that 64-bit mode does not have, or that are of historical interest: decimal
//! arithmetic, `bound`, `salc`, `xlatb` (SDM 1 7.3.3, 2A).

use iced_x86::{Instruction, Mnemonic};

use super::operand::{operand_size, sign_extend};
use crate::architectural::Architectural;
use crate::exception::{Exception, Trap, Vector};
use crate::memory::{Access, Privilege};
use crate::state::rflags;

/// SF, ZF and PF of a byte.
fn byte_flags(value: u8) -> u64 {
    let mut flags = 0;
    if value & 0x80 != 0 {
        flags |= rflags::SF;
    }
    if value == 0 {
        flags |= rflags::ZF;
    }
    if value.count_ones().is_multiple_of(2) {
        flags |= rflags::PF;
    }
    flags
}

impl Architectural {
    fn set_status(&mut self, flags: u64) {
        let old = self.context.regs.rflags();
        self.context.regs.set_rflags(old & !rflags::STATUS | flags);
    }

    fn set_ax(&mut self, value: u16) {
        let slot = &mut self.context.regs.gpr[0];
        *slot = *slot & !0xffff | u64::from(value);
    }

    /// `aaa`, `aas`.
    pub(crate) fn ascii_adjust(&mut self, instruction: &Instruction) -> Result<(), Trap> {
        let ax = self.context.regs.gpr[0] as u16;
        let adjust = ax & 0xf > 9 || self.context.regs.rflags() & rflags::AF != 0;
        let adding = instruction.mnemonic() == Mnemonic::Aaa;
        let mut result = ax;
        if adjust {
            result = if adding { ax.wrapping_add(0x106) } else { ax.wrapping_sub(0x106) };
        }
        result &= 0xff0f;
        self.set_ax(result);
        let carry = if adjust { rflags::AF | rflags::CF } else { 0 };
        self.set_status(byte_flags(result as u8) | carry);
        Ok(())
    }

    /// `daa`, `das`.
    pub(crate) fn decimal_adjust(&mut self, instruction: &Instruction) -> Result<(), Trap> {
        let flags = self.context.regs.rflags();
        let old = self.context.regs.gpr[0] as u8;
        let old_carry = flags & rflags::CF != 0;
        let adding = instruction.mnemonic() == Mnemonic::Daa;
        let (mut al, mut status) = (old, 0);
        if old & 0xf > 9 || flags & rflags::AF != 0 {
            let (sum, carry) = if adding { al.overflowing_add(6) } else { al.overflowing_sub(6) };
            al = sum;
            status |= rflags::AF;
            if old_carry || carry {
                status |= rflags::CF;
            }
        }
        if old > 0x99 || old_carry {
            al = if adding { al.wrapping_add(0x60) } else { al.wrapping_sub(0x60) };
            status |= rflags::CF;
        } else if adding {
            status &= !rflags::CF;
        }
        let ax = self.context.regs.gpr[0] as u16;
        self.set_ax(ax & 0xff00 | u16::from(al));
        self.set_status(byte_flags(al) | status);
        Ok(())
    }

    /// `aam`.
    pub(crate) fn ascii_adjust_product(&mut self, instruction: &Instruction) -> Result<(), Trap> {
        let base = instruction.immediate8();
        if base == 0 {
            return Err(Exception::plain(Vector::DivideError).into());
        }
        let al = self.context.regs.gpr[0] as u8;
        self.set_ax(u16::from(al / base) << 8 | u16::from(al % base));
        self.set_status(byte_flags(al % base));
        Ok(())
    }

    /// `aad`.
    pub(crate) fn ascii_adjust_dividend(&mut self, instruction: &Instruction) -> Result<(), Trap> {
        let base = instruction.immediate8();
        let ax = self.context.regs.gpr[0] as u16;
        let high = (ax >> 8) as u8;
        let al = (ax as u8).wrapping_add(high.wrapping_mul(base));
        self.set_ax(u16::from(al));
        self.set_status(byte_flags(al));
        Ok(())
    }

    /// `bound`.
    pub(crate) fn check_bounds(&mut self, instruction: &Instruction) -> Result<(), Trap> {
        let size = operand_size(instruction, 0);
        let index = self.register_value(instruction.op0_register());
        let at = self.operand_linear(instruction, 2 * size as u32, Access::Read)?;
        let mut bytes = [0; 8];
        self.read_linear(at, &mut bytes[..2 * size], Privilege::Current)?;
        let both = u64::from_le_bytes(bytes);
        let signed = |value| sign_extend(value, size) as i64;
        let (lower, upper) = (signed(both), signed(both >> (8 * size)));
        if signed(index) < lower || signed(index) > upper {
            return Err(Exception::plain(Vector::BoundRange).into());
        }
        Ok(())
    }

    /// `salc`: AL becomes 0 or 0xff.
    pub(crate) fn set_al_from_carry(&mut self, _: &Instruction) -> Result<(), Trap> {
        let carry = self.context.regs.rflags() & rflags::CF != 0;
        let slot = &mut self.context.regs.gpr[0];
        *slot = *slot & !0xff | if carry { 0xff } else { 0 };
        Ok(())
    }
}
