//! Instructions that depend on privilege or on the machine but change no control register: flags,
//! time, identification, halting, caches.

use iced_x86::{Code, Instruction, Mnemonic, OpKind};

use super::operand::{gp0, truncate};
use crate::architectural::Architectural;
use crate::exception::Trap;
use crate::exit::Exit;
use crate::memory::{Access, Privilege};
use crate::state::{cr4, rflags};

impl Architectural {
    /// `vmcall` and `vmmcall`: either is taken on every vendor's processors, if there is a hypervisor to call.
    pub(crate) fn call_hypervisor(&mut self, _: &Instruction) -> Result<(), Trap> {
        let Some(hypervisor) = self.config.board.hypervisor else {
            return Err(super::operand::ud());
        };
        let gpr = self.context.regs.gpr;
        let width = if self.in_64_bit_mode() { 8 } else { 4 };
        let result = if self.context.regs.mode().is_kernel() {
            let argument = |register: u8| truncate(gpr[usize::from(register & 15)], width);
            self.hypercall(truncate(gpr[0], width), hypervisor.arguments.map(argument))?
        } else {
            hypervisor.user_answer
        };
        self.context.regs.gpr[0] = truncate(result, width);
        Ok(())
    }

    pub(crate) fn no_operation(&mut self, instruction: &Instruction) -> Result<(), Trap> {
        // AMD's prefetch group has no register form (APM 3 "PREFETCH").
        let prefetch = matches!(
            instruction.code(),
            Code::Reservednop_rm16_r16_0F0D
                | Code::Reservednop_rm32_r32_0F0D
                | Code::Reservednop_rm64_r64_0F0D
        );
        if prefetch && instruction.op0_kind() == OpKind::Register && self.system.is_amd() {
            return Err(super::operand::ud());
        }
        Ok(())
    }

    /// `lea`: here because 16-bit addresses have no encoding on the host.
    pub(crate) fn load_effective_address(&mut self, instruction: &Instruction) -> Result<(), Trap> {
        let offset = self.effective_address(instruction);
        self.set_register(instruction.op0_register(), offset);
        Ok(())
    }

    /// `cli`, `sti` (SDM 2A "CLI", 2B "STI").
    pub(crate) fn change_interrupt_flag(&mut self, instruction: &Instruction) -> Result<(), Trap> {
        let regs = &self.context.regs;
        if regs.protected() && !regs.mode().has_io_privilege(regs.rflags()) {
            return Err(gp0());
        }
        let regs = &mut self.context.regs;
        if instruction.mnemonic() == Mnemonic::Cli {
            regs.interrupt_flag = 0;
        } else if regs.interrupt_flag == 0 {
            regs.interrupt_flag = 1;
            regs.interrupt_shadow = 1;
        }
        Ok(())
    }

    /// `clac`, `stac`.
    pub(crate) fn change_alignment_flag(&mut self, instruction: &Instruction) -> Result<(), Trap> {
        let regs = &self.context.regs;
        if !regs.mode().may_execute_privileged() || regs.real_or_v86() {
            return Err(super::operand::ud());
        }
        self.context.regs.alignment_flag = u8::from(instruction.mnemonic() == Mnemonic::Stac);
        Ok(())
    }

    /// `hlt`. A debug trap that is pending when it completes ends the halt before any device could see
    /// it (SDM 2A "HLT", 3B 18.3.1.4).
    pub(crate) fn halt(&mut self, _: &Instruction) -> Result<(), Trap> {
        self.require_ring_0()?;
        if self.context.regs.rflags() & rflags::TF != 0 || self.has_hit_breakpoint() {
            return Ok(());
        }
        Err(Exit::Halt.into())
    }

    pub(crate) fn identify(&mut self, _: &Instruction) -> Result<(), Trap> {
        let gpr = &self.context.regs.gpr;
        let [eax, ebx, ecx, edx] = self.cpuid(gpr[0] as u32, gpr[1] as u32);
        let gpr = &mut self.context.regs.gpr;
        (gpr[0], gpr[3]) = (u64::from(eax), u64::from(ebx));
        (gpr[1], gpr[2]) = (u64::from(ecx), u64::from(edx));
        Ok(())
    }

    /// #GP(0) where CR4.TSD keeps the time from user mode.
    fn check_time_stamp(&self) -> Result<(), Trap> {
        let regs = &self.context.regs;
        if regs.cr4 & cr4::TSD != 0 && !regs.mode().is_kernel() && regs.protected() {
            return Err(gp0());
        }
        Ok(())
    }

    pub(crate) fn read_time_stamp(&mut self, _: &Instruction) -> Result<(), Trap> {
        self.check_time_stamp()?;
        let now = self.time_stamp();
        let gpr = &mut self.context.regs.gpr;
        (gpr[0], gpr[2]) = (now & 0xffff_ffff, now >> 32);
        Ok(())
    }

    pub(crate) fn read_time_stamp_and_processor(
        &mut self,
        instruction: &Instruction,
    ) -> Result<(), Trap> {
        self.read_time_stamp(instruction)?;
        self.context.regs.gpr[1] = self.context.regs.tsc_aux & 0xffff_ffff;
        Ok(())
    }

    pub(crate) fn read_processor(&mut self, instruction: &Instruction) -> Result<(), Trap> {
        let value = self.context.regs.tsc_aux & 0xffff_ffff;
        self.set_register(instruction.op0_register(), value);
        Ok(())
    }

    /// There are no performance counters, hence no valid number of one.
    pub(crate) fn read_performance_counter(&mut self, _: &Instruction) -> Result<(), Trap> {
        Err(gp0())
    }

    /// `clflush` and its kin: the line must be readable; nothing else can be seen of it.
    pub(crate) fn flush_line(&mut self, instruction: &Instruction) -> Result<(), Trap> {
        if instruction.op0_kind() != OpKind::Memory {
            return Err(super::operand::ud());
        }
        let at = self.operand_linear(instruction, 1, Access::Read)?;
        self.probe_linear(at, 1, Access::Read, Privilege::Current)
    }

    /// `wbinvd`, `invd`: guest memory is coherent.
    pub(crate) fn flush_caches(&mut self, _: &Instruction) -> Result<(), Trap> {
        self.require_ring_0()
    }

    /// The guest's time-stamp counter.
    pub(crate) fn time_stamp(&self) -> u64 {
        crate::time::time_stamp().wrapping_add(self.context.regs.tsc_offset)
    }

    /// `xlatb`.
    pub(crate) fn translate_byte(&mut self, instruction: &Instruction) -> Result<(), Trap> {
        let width = match instruction.memory_base() {
            iced_x86::Register::BX => 2,
            iced_x86::Register::EBX => 4,
            _ => 8,
        };
        let gpr = &self.context.regs.gpr;
        let offset = truncate(gpr[3].wrapping_add(gpr[0] & 0xff), width);
        let segment = crate::instruction::segment_of(instruction);
        let at = self.segmented(segment, offset, 1, Access::Read)?;
        let value = self.read_u8(at, Privilege::Current)?;
        let slot = &mut self.context.regs.gpr[0];
        *slot = *slot & !0xff | u64::from(value);
        Ok(())
    }
}
