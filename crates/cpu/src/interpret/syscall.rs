//! The fast system calls: `syscall`, `sysret`, `sysenter`, `sysexit` (SDM 2B, APM 3).
//!
//! Where the vendors differ, the announced vendor decides: on AMD processors `syscall` works in
//! compatibility mode and `sysenter` does not work in IA-32e mode; on Intel's it is the other way
//! round.

use iced_x86::{Code, Instruction};

use super::operand::{gp0, ud};
use crate::architectural::Architectural;
use crate::exception::Trap;
use crate::memory::Linear;
use crate::state::{SegmentRegister, efer, rflags};
use crate::system::flat;

/// Accessed, readable code, present, G, L.
const CODE_64: u16 = 0xa09b;
/// Accessed, readable code, present, G, D.
const CODE_32: u16 = 0xc09b;
/// Accessed, writable data, present, G, B.
const DATA: u16 = 0xc093;

/// The flags that `sysret` restores.
const SYSRET_FLAGS: u64 = 0x003c_7fd7;

impl Architectural {
    fn enter_flat(&mut self, code: u16, attributes: u16, stack: u16, cpl: u8) {
        let regs = &mut self.context.regs;
        let level = u16::from(cpl);
        *regs.segment_mut(SegmentRegister::Cs) = flat(code & !3 | level, attributes);
        *regs.segment_mut(SegmentRegister::Ss) = flat(stack & !3 | level, DATA);
        regs.cpl = cpl;
    }

    /// `syscall`.
    pub(crate) fn syscall(&mut self, _: &Instruction) -> Result<(), Trap> {
        if self.paravirtual.is_some() {
            return self.paravirtual_system_call();
        }
        let amd = self.system.is_amd();
        let regs = &self.context.regs;
        let long = regs.long_mode();
        let from_64 = self.in_64_bit_mode();
        if regs.efer & efer::SCE == 0 || !from_64 && !amd || regs.real_or_v86() {
            return Err(ud());
        }
        let regs = &mut self.context.regs;
        let selector = (regs.star >> 32) as u16 & !3;
        regs.gpr[1] = regs.rip;
        let flags = regs.rflags() & !rflags::RF;
        if !long {
            regs.rip = regs.star & 0xffff_ffff;
            regs.set_rflags(flags & !(rflags::VM | rflags::IF));
            self.enter_flat(selector, CODE_32, selector.wrapping_add(8), 0);
            return Ok(());
        }
        regs.gpr[11] = flags;
        regs.rip = if from_64 { regs.lstar } else { regs.cstar };
        regs.set_rflags(flags & !regs.sfmask);
        self.enter_flat(selector, CODE_64, selector.wrapping_add(8), 0);
        Ok(())
    }

    /// `sysret`, `sysretq`.
    pub(crate) fn sysret(&mut self, instruction: &Instruction) -> Result<(), Trap> {
        let amd = self.system.is_amd();
        let regs = &self.context.regs;
        let long = regs.long_mode();
        if regs.efer & efer::SCE == 0 || !self.in_64_bit_mode() && !amd || regs.real_or_v86() {
            return Err(ud());
        }
        self.require_ring_0()?;
        let regs = &self.context.regs;
        let (target, selector) = (regs.gpr[1], (regs.star >> 48) as u16);
        let stack = selector.wrapping_add(8);
        if instruction.code() == Code::Sysretq {
            // AMD's processors find out when they fetch, at CPL 3 (APM 3 "SYSRET").
            if !amd && !Linear(target).is_canonical() {
                return Err(gp0());
            }
            self.enter_flat(selector.wrapping_add(16), CODE_64, stack, 3);
            self.context.regs.rip = target;
        } else {
            self.enter_flat(selector, CODE_32, stack, 3);
            self.context.regs.rip = target & 0xffff_ffff;
        }
        let regs = &mut self.context.regs;
        if long {
            regs.set_rflags(regs.gpr[11] & SYSRET_FLAGS);
        } else {
            regs.set_rflags(regs.rflags() | rflags::IF);
        }
        Ok(())
    }

    /// `sysenter`.
    pub(crate) fn sysenter(&mut self, _: &Instruction) -> Result<(), Trap> {
        let long = self.context.regs.long_mode();
        if long && self.system.is_amd() {
            return Err(ud());
        }
        let regs = &mut self.context.regs;
        let selector = regs.sysenter_cs as u16 & !3;
        if !regs.protected() || selector == 0 {
            return Err(gp0());
        }
        regs.set_rflags(regs.rflags() & !(rflags::VM | rflags::IF | rflags::RF));
        let (pointer, target) = (regs.sysenter_esp, regs.sysenter_eip);
        regs.gpr[4] = if long { pointer } else { pointer & 0xffff_ffff };
        regs.rip = if long { target } else { target & 0xffff_ffff };
        let attributes = if long { CODE_64 } else { CODE_32 };
        self.enter_flat(selector, attributes, selector.wrapping_add(8), 0);
        Ok(())
    }

    /// `sysexit`, `sysexitq`.
    pub(crate) fn sysexit(&mut self, instruction: &Instruction) -> Result<(), Trap> {
        let long = self.context.regs.long_mode();
        if long && self.system.is_amd() {
            return Err(ud());
        }
        let regs = &self.context.regs;
        let selector = regs.sysenter_cs as u16 & !3;
        if selector == 0 || !regs.protected() || !regs.mode().may_execute_privileged() {
            return Err(gp0());
        }
        let (pointer, target) = (regs.gpr[1], regs.gpr[2]);
        if instruction.code() == Code::Sysexitq {
            if !Linear(pointer).is_canonical() || !Linear(target).is_canonical() {
                return Err(gp0());
            }
            self.enter_flat(selector.wrapping_add(32), CODE_64, selector.wrapping_add(40), 3);
            (self.context.regs.gpr[4], self.context.regs.rip) = (pointer, target);
            return Ok(());
        }
        self.enter_flat(selector.wrapping_add(16), CODE_32, selector.wrapping_add(24), 3);
        let regs = &mut self.context.regs;
        (regs.gpr[4], regs.rip) = (pointer & 0xffff_ffff, target & 0xffff_ffff);
        Ok(())
    }
}
