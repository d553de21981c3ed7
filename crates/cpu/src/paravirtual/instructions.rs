//! What instructions mean that are privileged, or show who runs (Xen 4.17, arch/x86/pv/emul-*.c, by their behaviour).

use iced_x86::{Code, Instruction, Register};

use crate::architectural::Architectural;
use crate::exception::{Trap, Vector};
use crate::exit::Exit;
use crate::instruction::Class;
use crate::interpret::{gp0, ud};
use crate::memory::{Flush, Linear, Privilege};
use crate::state::{CodeSize, cr0, cr4, rflags};

use xen_abi::callback::kind;
use xen_abi::hypercall::number;

/// `ud2` is followed by this, and means CPUID as the hypervisor answers it (public/arch-x86/xen.h, `XEN_CPUID`).
const PREFIXED_CPUID: [u8; 5] = [b'x', b'e', b'n', 0x0f, 0xa2];

/// Bits of CR4 that the kernel may set and clear; PAE is always set.
const CR4_CHANGEABLE: u64 =
    cr4::TSD | cr4::DE | cr4::OSFXSR | cr4::OSXMMEXCPT | cr4::OSXSAVE | cr4::FSGSBASE | cr4::SMAP;

/// Model-specific registers.
mod msr {
    pub const APIC_BASE: u32 = 0x1b;
    pub const SPEC_CTRL: u32 = 0x48;
    pub const PRED_CMD: u32 = 0x49;
    pub const MICROCODE_REVISION: u32 = 0x8b;
    pub const ARCH_CAPABILITIES: u32 = 0x10a;
    pub const MISC_ENABLE: u32 = 0x1a0;
    pub const PAT: u32 = 0x277;
    pub const EFER: u32 = 0xc000_0080;
    pub const FS_BASE: u32 = 0xc000_0100;
    pub const GS_BASE: u32 = 0xc000_0101;
    pub const KERNEL_GS_BASE: u32 = 0xc000_0102;
    pub const TSC_AUX: u32 = 0xc000_0103;

    /// IA32_MCG_CAP, IA32_MCG_STATUS, IA32_MCG_CTL, and the banks.
    pub fn is_of_machine_check(index: u32) -> bool {
        matches!(index, 0x179..=0x17b | 0x400..=0x47f)
    }
}

/// A bit of EFER that has no effect: indirect branches of the guest are the engine's.
const AUTOMATIC_IBRS: u64 = 1 << 21;

/// IA32_APIC_BASE of the first processor, and IA32_PAT, as Xen's guests read them.
const APIC_BASE: u64 = 0xfee0_0900;
const PAT: u64 = 0x0501_0007_0406;

/// The rings of the kernel and of its users, as IOPL is compared with them.
const KERNEL_RING: u8 = 1;
const USER_RING: u8 = 3;

impl Architectural {
    /// Carry out an instruction whose meaning the paravirtual mode changes; `None` if it does not. RIP is that of the
    /// next instruction.
    pub(crate) fn paravirtual_instruction(
        &mut self,
        class: Class,
        instruction: &Instruction,
    ) -> Option<Result<(), Trap>> {
        if class == Class::Undefined && instruction.code() == Code::Ud2 {
            return self.prefixed_cpuid();
        }
        if self.context.regs.cpl != 0 {
            return self.paravirtual_user_instruction(class);
        }
        Some(match class {
            Class::InterruptReturn => self.return_in_kernel(instruction, true),
            Class::ReturnFar => self.return_in_kernel(instruction, false),
            Class::InterruptFlag if self.has_ports() => Ok(()),
            Class::MoveFromControl => return self.read_control(instruction),
            Class::MoveToControl => self.write_control(instruction),
            Class::ReadMsr => return self.read_guest_msr(),
            Class::WriteMsr => return self.write_guest_msr(),
            Class::InterruptFlag
            | Class::Halt
            | Class::LoadTable
            | Class::LoadLocalTable
            | Class::LoadTaskRegister
            | Class::LoadMachineStatus
            | Class::InvalidatePage
            | Class::InvalidatePcid
            | Class::SwapGs => Err(gp0()),
            Class::Sysret | Class::Sysenter | Class::Sysexit | Class::CallHypervisor => Err(ud()),
            _ => return None,
        })
    }

    fn paravirtual_user_instruction(&mut self, class: Class) -> Option<Result<(), Trap>> {
        Some(match class {
            Class::Sysenter => match self.callback(kind::SYSENTER).address {
                0 => Err(gp0()),
                _ => self.bounce_system_call(kind::SYSENTER),
            },
            Class::Sysret | Class::Sysexit | Class::CallHypervisor => Err(ud()),
            Class::InterruptFlag if self.has_ports() => Ok(()),
            _ => return None,
        })
    }

    /// Whether these ports are open to who runs: by the level, or by the bitmap, which is where the kernel has it
    /// mapped, whoever runs.
    pub(crate) fn may_use_ports(&mut self, port: u16, size: u8) -> bool {
        if self.has_ports() {
            return true;
        }
        let Some(state) = &self.paravirtual else { return false };
        let ((bitmap, ports), (first, end)) =
            (state.open_ports, (u32::from(port), u32::from(port) + u32::from(size)));
        if end > ports {
            return false;
        }
        let at = bitmap.wrapping_add(u64::from(first / 8));
        let mut bytes = [0; 2];
        let count = ((end - 1) / 8 - first / 8 + 1) as usize;
        let is_user = self.context.regs.cpl != 0;
        if is_user {
            self.toggle();
        }
        let is_read = super::reserved::leaves_out(at, count)
            && self.read_linear(Linear(at), &mut bytes[..count], Privilege::Supervisor).is_ok();
        if is_user {
            self.toggle();
        }
        let mask = ((1_u16 << size) - 1) << (first % 8);
        is_read && u16::from_le_bytes(bytes) & mask == 0
    }

    /// Whether ports, `cli` and `sti` are open to who runs.
    pub(crate) fn has_ports(&self) -> bool {
        let ring = if self.context.regs.cpl == 0 { KERNEL_RING } else { USER_RING };
        self.paravirtual.as_ref().is_some_and(|state| state.io_privilege >= ring)
    }

    /// `ud2` with the prefix of a CPUID behind it.
    fn prefixed_cpuid(&mut self) -> Option<Result<(), Trap>> {
        let at = Linear(self.context.regs.rip);
        let mut bytes = [0; PREFIXED_CPUID.len()];
        self.read_linear(at, &mut bytes, Privilege::Current).ok()?;
        if bytes != PREFIXED_CPUID {
            return None;
        }
        self.context.regs.rip = at.0.wrapping_add(bytes.len() as u64);
        Some(self.identify(&Instruction::default()))
    }

    /// `syscall`: a hypercall of the kernel's, or a system call of its users. RIP is behind it.
    pub(crate) fn paravirtual_system_call(&mut self) -> Result<(), Trap> {
        if self.context.regs.cpl == 0 {
            return self.hypercall_of_kernel();
        }
        let is_64_bit = self.context.regs.code_size() == CodeSize::Bits64;
        self.bounce_system_call(if is_64_bit { kind::SYSCALL } else { kind::SYSCALL32 })
    }

    /// `syscall` by the kernel.
    fn hypercall_of_kernel(&mut self) -> Result<(), Trap> {
        let regs = &mut self.context.regs;
        if regs.gpr[0] == u64::from(number::IRET) {
            return self.paravirtual_return();
        }
        let flags = regs.rflags() & !rflags::RF;
        (regs.gpr[1], regs.gpr[11]) = (regs.rip, flags);
        if self.carry_out_own_call() {
            return Ok(());
        }
        let exit = self.called();
        self.replay.queue(exit);
        Ok(())
    }

    /// The hypercall that the registers have.
    pub(crate) fn called(&self) -> Exit {
        let [number, _, rdx, _, _, _, rsi, rdi, r8, _, r10, ..] = self.context.regs.gpr;
        Exit::ParavirtualCall { number, arguments: [rdi, rsi, rdx, r10, r8] }
    }

    /// `iretq` and `lretq` by the kernel, to itself: in ring 3, which it believes to be in, they go nowhere else.
    fn return_in_kernel(
        &mut self,
        instruction: &Instruction,
        is_interrupt: bool,
    ) -> Result<(), Trap> {
        let is_wide = matches!(instruction.code(), Code::Iretq | Code::Retfq | Code::Retfq_imm16);
        let is_nested = self.context.regs.rflags() & rflags::NT != 0;
        if !is_wide || is_interrupt && is_nested {
            return Err(gp0());
        }
        let at = Linear(self.context.regs.gpr[4]);
        let mut bytes = [0; 40];
        let bytes = &mut bytes[..if is_interrupt { 40 } else { 16 }];
        self.read_linear(at, bytes, Privilege::Current)?;
        let words: Vec<u64> = bytes
            .chunks_exact(8)
            .map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default()))
            .collect();
        if words[1] & 3 != 3 || !Linear(words[0]).is_canonical() {
            return Err(gp0());
        }
        let regs = &mut self.context.regs;
        regs.rip = words[0];
        if is_interrupt {
            let kept = regs.rflags() & (rflags::IF | rflags::IOPL);
            let popped = words[2] & !(rflags::IF | rflags::IOPL | rflags::VM);
            regs.set_rflags(popped | kept);
            regs.gpr[4] = words[3];
        } else {
            let released = match instruction.op_count() {
                0 => 0,
                _ => u64::from(instruction.immediate16()),
            };
            regs.gpr[4] = at.0.wrapping_add(16 + released);
        }
        Ok(())
    }

    /// CR2 and CR3 are not those of the engine.
    fn read_control(&mut self, instruction: &Instruction) -> Option<Result<(), Trap>> {
        let value = match instruction.op1_register() {
            Register::CR2 => self.fault_address(),
            Register::CR3 => self.paravirtual.as_ref()?.kernel_root,
            Register::CR8 => return Some(Err(gp0())),
            _ => return None,
        };
        self.set_register(instruction.op0_register(), value);
        Some(Ok(()))
    }

    fn write_control(&mut self, instruction: &Instruction) -> Result<(), Trap> {
        let value = self.register_value(instruction.op1_register());
        let regs = &mut self.context.regs;
        match instruction.op0_register() {
            Register::CR0 if (value ^ regs.cr0) & !cr0::TS == 0 => regs.cr0 = value,
            Register::CR2 => self.set_fault_address(value),
            Register::CR4 => {
                let new = cr4::PAE | value & CR4_CHANGEABLE;
                let changed = std::mem::replace(&mut regs.cr4, new) ^ new;
                self.clear_cpuid_cache();
                if changed & cr4::SMAP != 0 {
                    self.flush_tlb(Flush::All);
                }
            }
            _ => return Err(gp0()),
        }
        Ok(())
    }

    fn read_guest_msr(&mut self) -> Option<Result<(), Trap>> {
        let is_intel = !self.system.is_amd();
        let value = match self.context.regs.gpr[1] as u32 {
            msr::FS_BASE | msr::GS_BASE | msr::KERNEL_GS_BASE | msr::EFER | msr::TSC_AUX => {
                return None;
            }
            msr::SPEC_CTRL | msr::PRED_CMD | msr::ARCH_CAPABILITIES => return None,
            // A kernel that does not see there that strings are fast does without ERMS, and before Linux 6.2 its
            // memmove() then relies on what it has taken away.
            msr::MICROCODE_REVISION | msr::MISC_ENABLE if is_intel => return None,
            index if msr::is_of_machine_check(index) => return None,
            msr::APIC_BASE => APIC_BASE,
            msr::PAT => PAT,
            _ => {
                let state = self.paravirtual.as_ref()?;
                let gate = state.traps[Vector::GeneralProtection as usize];
                if gate.address != 0 {
                    return Some(Err(gp0()));
                }
                0
            }
        };
        let gpr = &mut self.context.regs.gpr;
        (gpr[0], gpr[2]) = (value & 0xffff_ffff, value >> 32);
        Some(Ok(()))
    }

    fn write_guest_msr(&mut self) -> Option<Result<(), Trap>> {
        let is_intel = !self.system.is_amd();
        let regs = &self.context.regs;
        let value = regs.gpr[0] & 0xffff_ffff | regs.gpr[2] << 32;
        let is_fine = match regs.gpr[1] as u32 {
            msr::FS_BASE | msr::GS_BASE | msr::KERNEL_GS_BASE | msr::TSC_AUX => return None,
            msr::SPEC_CTRL | msr::PRED_CMD | msr::ARCH_CAPABILITIES => return None,
            msr::EFER if value ^ regs.efer == AUTOMATIC_IBRS => return None,
            index if msr::is_of_machine_check(index) => return None,
            // As Xen does (arch/x86/pv/emul-priv-op.c, `write_msr`): the revision is read by writing 0 first.
            msr::MICROCODE_REVISION if is_intel => value == 0,
            msr::MISC_ENABLE if is_intel => value == regs.misc_enable,
            msr::EFER => value == regs.efer,
            msr::PAT => value == PAT,
            _ => false,
        };
        let has_handler = self.paravirtual.as_ref()?.traps[Vector::GeneralProtection as usize];
        Some(if is_fine || has_handler.address == 0 { Ok(()) } else { Err(gp0()) })
    }
}
