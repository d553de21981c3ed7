//! Port I/O, and the check of IOPL and the I/O permission bitmap (SDM 1 chapter 19).

use iced_x86::{Instruction, Mnemonic, OpKind};

use super::operand::{gp0, merge};
use crate::architectural::Architectural;
use crate::exception::Trap;
use crate::memory::{Linear, Privilege};
use crate::state::Attributes;

/// Offset of the I/O map base in a 32-bit or 64-bit TSS.
const IO_MAP_BASE: u64 = 0x66;

impl Architectural {
    /// #GP(0) unless the program may use these ports: CPL <= IOPL, or the bits in the TSS are
    /// clear (SDM 1 19.5).
    pub(super) fn check_port(&mut self, port: u16, size: u8) -> Result<(), Trap> {
        self.note_port_access(port, size);
        if self.paravirtual.is_some() {
            return if self.may_use_ports(port, size) { Ok(()) } else { Err(gp0()) };
        }
        let regs = &self.context.regs;
        let mode = regs.mode();
        let allowed = mode.has_io_privilege(regs.rflags()) && !mode.is_virtual_8086();
        if !regs.protected() || allowed {
            return Ok(());
        }
        let tr = regs.tr;
        let wide = tr.attributes.bits() & 8 != 0 && !tr.attributes.contains(Attributes::UNUSABLE);
        if !wide || u64::from(tr.limit) < IO_MAP_BASE + 1 {
            return Err(gp0());
        }
        let field = Linear(tr.base.wrapping_add(IO_MAP_BASE));
        let map = u64::from(self.read_u16(field, Privilege::Supervisor)?);
        let byte = map + u64::from(port / 8);
        // Two bytes are always read, because the ports may straddle a byte.
        if byte + 1 > u64::from(tr.limit) {
            return Err(gp0());
        }
        let bits = self.read_u16(Linear(tr.base.wrapping_add(byte)), Privilege::Supervisor)?;
        let mask = ((1u16 << size) - 1) << (port % 8);
        if bits & mask != 0 { Err(gp0()) } else { Ok(()) }
    }

    /// `in`, `out`.
    pub(crate) fn port_instruction(&mut self, instruction: &Instruction) -> Result<(), Trap> {
        let input = instruction.mnemonic() == Mnemonic::In;
        let (data, address) = if input { (0, 1) } else { (1, 0) };
        let size = instruction.op_register(data).size();
        let port = if instruction.op_kind(address) == OpKind::Register {
            self.context.regs.gpr[2] as u16
        } else {
            u16::from(instruction.immediate8())
        };
        self.check_port(port, size as u8)?;
        if !input {
            let value = super::operand::truncate(self.context.regs.gpr[0], size) as u32;
            self.port_write(port, size as u8, value);
            return Ok(());
        }
        let value = u64::from(self.port_read(port, size as u8)?);
        let slot = &mut self.context.regs.gpr[0];
        *slot = merge(*slot, value, size);
        Ok(())
    }
}
