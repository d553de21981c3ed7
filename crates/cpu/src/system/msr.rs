//! Model-specific registers (SDM 4, APM 2 appendix A).
//!
//! Three kinds: those with a meaning to the processor, in [`crate::Registers`]; those that guests
//! expect to find but that mean nothing here, which are constants or plain storage; and those that
//! belong to the machine around the processor (APIC, kvmclock), which are exits. Anything else is
//! #GP, as on hardware.

use std::collections::{BTreeMap, HashMap};

use iced_x86::Instruction;

use crate::architectural::Architectural;
use crate::exception::Trap;
use crate::interpret::gp0;
use crate::memory::{Flush, Linear};
use crate::state::{SegmentRegister, cr0, efer};

/// Numbers of registers.
mod number {
    pub(super) const TSC: u32 = 0x10;
    pub(super) const PLATFORM_ID: u32 = 0x17;
    pub(super) const APIC_BASE: u32 = 0x1b;
    pub(super) const FEATURE_CONTROL: u32 = 0x3a;
    pub(super) const TSC_ADJUST: u32 = 0x3b;
    pub(super) const SPEC_CTRL: u32 = 0x48;
    pub(super) const PRED_CMD: u32 = 0x49;
    pub(super) const MICROCODE_UPDATE: u32 = 0x79;
    pub(super) const MICROCODE_REVISION: u32 = 0x8b;
    pub(super) const PLATFORM_INFO: u32 = 0xce;
    pub(super) const MPERF: u32 = 0xe7;
    pub(super) const APERF: u32 = 0xe8;
    pub(super) const MTRR_CAP: u32 = 0xfe;
    pub(super) const ARCH_CAPABILITIES: u32 = 0x10a;
    pub(super) const MISC_FEATURES_ENABLES: u32 = 0x140;
    pub(super) const SYSENTER_CS: u32 = 0x174;
    pub(super) const SYSENTER_ESP: u32 = 0x175;
    pub(super) const SYSENTER_EIP: u32 = 0x176;
    pub(super) const MCG_CAP: u32 = 0x179;
    pub(super) const MCG_STATUS: u32 = 0x17a;
    pub(super) const MISC_ENABLE: u32 = 0x1a0;
    pub(super) const DEBUG_CTL: u32 = 0x1d9;
    pub(super) const PAT: u32 = 0x277;
    pub(super) const MTRR_DEF_TYPE: u32 = 0x2ff;
    pub(super) const EFER: u32 = 0xc000_0080;
    pub(super) const STAR: u32 = 0xc000_0081;
    pub(super) const LSTAR: u32 = 0xc000_0082;
    pub(super) const CSTAR: u32 = 0xc000_0083;
    pub(super) const FMASK: u32 = 0xc000_0084;
    pub(super) const FS_BASE: u32 = 0xc000_0100;
    pub(super) const GS_BASE: u32 = 0xc000_0101;
    pub(super) const KERNEL_GS_BASE: u32 = 0xc000_0102;
    pub(super) const TSC_AUX: u32 = 0xc000_0103;
    pub(super) const AMD_SYSTEM_CONFIGURATION: u32 = 0xc001_0010;
    pub(super) const AMD_HARDWARE_CONFIGURATION: u32 = 0xc001_0015;
    pub(super) const AMD_PATCH_LOADER: u32 = 0xc001_0020;
    pub(super) const AMD_DECODE_CONFIGURATION: u32 = 0xc001_1029;
}

/// Automatic IBRS, announced on AMD processors: accepted and without effect.
const EFER_AUTOMATIC_IBRS: u64 = 1 << 21;

/// Eight variable ranges, fixed ranges, write-combining.
const MTRR_CAP_VALUE: u64 = 0x508;

/// IA32_MTRR_DEF_TYPE: MTRRs enabled, fixed ranges not, default type write-back.
const MTRR_WRITE_BACK: u64 = 0x806;

/// TscFreqSel: the TSC runs at the P0 frequency (APM 2 and family PPRs).
const HARDWARE_CONFIGURATION_VALUE: u64 = 1 << 24;

/// `lfence` waits for everything before it.
const LFENCE_SERIALIZES: u64 = 1 << 1;

/// IA32_ARCH_CAPABILITIES: not susceptible to RDCL, MDS, TAA, SSB, PSCHANGE_MC, SBDR, FBSDP, PSDP,
/// BHI, GDS, RFDS and ITS; enhanced IBRS (SDM 4 table 2-2).
const ARCH_CAPABILITIES_VALUE: u64 = 1 << 0
    | 1 << 1
    | 1 << 4
    | 1 << 5
    | 1 << 6
    | 1 << 8
    | 1 << 13
    | 1 << 14
    | 1 << 15
    | 1 << 20
    | 1 << 26
    | 1 << 27
    | 1 << 62;

/// IA32_APIC_BASE: the local APIC is enabled, as it is after RESET (SDM 3A 11.4.3).
const APIC_ENABLED: u64 = 1 << 11;

/// Registers that are plain storage, and what the machine has accepted for IA32_APIC_BASE.
#[derive(Debug, Default)]
pub(super) struct Storage {
    values: HashMap<u32, u64>,
    tsc_adjust: u64,
}

impl Storage {
    /// What was stored, and IA32_TSC_ADJUST.
    pub(super) fn save(&self) -> (BTreeMap<u32, u64>, u64) {
        (self.values.iter().map(|(&index, &value)| (index, value)).collect(), self.tsc_adjust)
    }

    pub(super) fn restored(values: BTreeMap<u32, u64>, tsc_adjust: u64) -> Self {
        Self { values: values.into_iter().collect(), tsc_adjust }
    }

    /// Whether the local APIC is enabled.
    pub(super) fn has_apic(&self) -> bool {
        self.get(number::APIC_BASE) & APIC_ENABLED != 0
    }

    fn get(&self, index: u32) -> u64 {
        // There is no firmware to set memory types up: they are on, and all is write-back.
        let initial = match index {
            number::MTRR_DEF_TYPE => MTRR_WRITE_BACK,
            number::APIC_BASE => APIC_ENABLED,
            _ => 0,
        };
        self.values.get(&index).copied().unwrap_or(initial)
    }
}

fn is_mtrr(index: u32) -> bool {
    matches!(index, 0x200..=0x20f | 0x250 | 0x258 | 0x259 | 0x268..=0x26f | number::MTRR_DEF_TYPE)
}

/// Registers of AMD processors that Linux looks at; what they would configure does not exist here.
fn is_amd_configuration(index: u32) -> bool {
    matches!(
        index,
        number::AMD_SYSTEM_CONFIGURATION
            | number::AMD_HARDWARE_CONFIGURATION
            | 0xc001_001f
            | number::AMD_PATCH_LOADER
            | 0xc001_0022
            | 0xc001_0055
            | 0xc001_0058
            | 0xc001_0114
            | 0xc001_0140
            | 0xc001_0141
            | 0xc001_1020..=0xc001_102f
    )
}

/// The four performance counters that every AMD64 processor has, and what selects their events (APM 2
/// 13.2.1). CPUID has no bit for them. They do not count: a guest finds 0 whatever it writes, so that
/// no guest that writes a pattern and reads it back takes them for counters that do.
fn is_amd_performance_counter(index: u32) -> bool {
    matches!(index, 0xc001_0000..=0xc001_0007)
}

/// Memory types that the PAT and the MTRRs know (SDM 3A table 12-10).
fn is_memory_type(value: u64) -> bool {
    matches!(value, 0 | 1 | 4 | 5 | 6 | 7)
}

impl Architectural {
    /// `rdmsr`.
    pub(crate) fn read_msr_instruction(&mut self, _: &Instruction) -> Result<(), Trap> {
        self.require_ring_0()?;
        let value = self.read_msr(self.context.regs.gpr[1] as u32)?;
        let gpr = &mut self.context.regs.gpr;
        (gpr[0], gpr[2]) = (value & 0xffff_ffff, value >> 32);
        Ok(())
    }

    /// `wrmsr`.
    pub(crate) fn write_msr_instruction(&mut self, _: &Instruction) -> Result<(), Trap> {
        self.require_ring_0()?;
        let gpr = &self.context.regs.gpr;
        let value = gpr[0] & 0xffff_ffff | gpr[2] << 32;
        self.write_msr(gpr[1] as u32, value)
    }

    /// The value of a model-specific register.
    ///
    /// # Errors
    ///
    /// #GP(0) when there is no such register; an exit for those of the machine.
    fn read_msr(&mut self, index: u32) -> Result<u64, Trap> {
        if self.config.board.has_msr(index) {
            return self.platform_msr_read(index);
        }
        if let Some(value) = self.read_state_msr(index).or_else(|| self.read_constant_msr(index)) {
            return Ok(value);
        }
        let stored = is_mtrr(index)
            || matches!(index, number::MCG_STATUS | number::DEBUG_CTL)
            || index == number::MISC_FEATURES_ENABLES
            || index == number::SPEC_CTRL && !self.system.is_amd()
            || is_amd_configuration(index) && self.system.is_amd();
        if stored { Ok(self.system.msrs.get(index)) } else { Err(gp0()) }
    }

    /// Registers that are part of the processor's state.
    fn read_state_msr(&self, index: u32) -> Option<u64> {
        let regs = &self.context.regs;
        Some(match index {
            number::TSC => self.time_stamp(),
            number::TSC_ADJUST => self.system.msrs.tsc_adjust,
            number::SYSENTER_CS => regs.sysenter_cs,
            number::SYSENTER_ESP => regs.sysenter_esp,
            number::SYSENTER_EIP => regs.sysenter_eip,
            number::MISC_ENABLE => regs.misc_enable,
            number::PAT => regs.pat,
            number::EFER => regs.efer,
            number::STAR => regs.star,
            number::LSTAR => regs.lstar,
            number::CSTAR => regs.cstar,
            number::FMASK => regs.sfmask,
            number::FS_BASE => regs.segment(SegmentRegister::Fs).base,
            number::GS_BASE => regs.segment(SegmentRegister::Gs).base,
            number::KERNEL_GS_BASE => regs.kernel_gs_base,
            number::TSC_AUX => regs.tsc_aux,
            _ => return None,
        })
    }

    /// Registers that always read the same.
    fn read_constant_msr(&self, index: u32) -> Option<u64> {
        let amd = self.system.is_amd();
        let storage = &self.system.msrs;
        Some(match index {
            number::MTRR_CAP => MTRR_CAP_VALUE,
            // No banks: there is no machine to check.
            number::MCG_CAP | number::MPERF | number::APERF => 0,
            number::MICROCODE_REVISION if amd => 0x0100_0065,
            number::MICROCODE_REVISION => 0x1_0000_0000,
            number::PLATFORM_ID | number::PLATFORM_INFO if !amd => 0,
            // Locked, and VMX off.
            number::FEATURE_CONTROL if !amd => 1,
            number::ARCH_CAPABILITIES if !amd => ARCH_CAPABILITIES_VALUE,
            number::AMD_HARDWARE_CONFIGURATION if amd => {
                storage.get(index) | HARDWARE_CONFIGURATION_VALUE
            }
            number::AMD_DECODE_CONFIGURATION if amd => storage.get(index) | LFENCE_SERIALIZES,
            _ if amd && is_amd_performance_counter(index) => 0,
            _ => return None,
        })
    }

    /// Write a model-specific register.
    ///
    /// # Errors
    ///
    /// #GP(0) when there is no such register, or not with this value; an exit for those of the
    /// machine.
    fn write_msr(&mut self, index: u32, value: u64) -> Result<(), Trap> {
        if self.config.board.has_msr(index) {
            return self.write_platform_msr(index, value);
        }
        let regs = &mut self.context.regs;
        match index {
            number::TSC => self.set_time_stamp(value),
            number::TSC_ADJUST => self.set_time_stamp_adjustment(value),
            number::SYSENTER_CS => regs.sysenter_cs = value & 0xffff_ffff,
            number::MISC_ENABLE => regs.misc_enable = value,
            number::EFER => return self.set_efer(value),
            number::STAR => regs.star = value,
            number::FMASK => regs.sfmask = value & 0xffff_ffff,
            number::TSC_AUX => regs.tsc_aux = value & 0xffff_ffff,
            number::PAT => {
                if !value.to_le_bytes().iter().all(|&kind| is_memory_type(u64::from(kind))) {
                    return Err(gp0());
                }
                regs.pat = value;
            }
            _ => return self.write_address_msr(index, value),
        }
        Ok(())
    }

    /// Registers of the machine. CPUID wants to know whether there is a local APIC.
    fn write_platform_msr(&mut self, index: u32, value: u64) -> Result<(), Trap> {
        self.platform_msr_write(index, value)?;
        if index == number::APIC_BASE {
            self.system.msrs.values.insert(index, value);
            self.clear_cpuid_cache();
        }
        Ok(())
    }

    /// Registers that hold a linear address, which must be canonical.
    fn write_address_msr(&mut self, index: u32, value: u64) -> Result<(), Trap> {
        let regs = &mut self.context.regs;
        let slot = match index {
            number::SYSENTER_ESP => &mut regs.sysenter_esp,
            number::SYSENTER_EIP => &mut regs.sysenter_eip,
            number::LSTAR => &mut regs.lstar,
            number::CSTAR => &mut regs.cstar,
            number::FS_BASE => &mut regs.segments[SegmentRegister::Fs as usize].base,
            number::GS_BASE => &mut regs.segments[SegmentRegister::Gs as usize].base,
            number::KERNEL_GS_BASE => &mut regs.kernel_gs_base,
            _ => return self.write_stored_msr(index, value),
        };
        if !Linear(value).is_canonical() {
            return Err(gp0());
        }
        *slot = value;
        Ok(())
    }

    /// Registers without a meaning here.
    fn write_stored_msr(&mut self, index: u32, value: u64) -> Result<(), Trap> {
        let amd = self.system.is_amd();
        let accepted = match index {
            number::MCG_STATUS => value == 0,
            number::MISC_FEATURES_ENABLES => value == 0,
            // Last-branch recording and single-stepping on branches are accepted and ignored.
            number::DEBUG_CTL => value & !3 == 0,
            number::MTRR_DEF_TYPE => value & !0xcff == 0 && is_memory_type(value & 0xff),
            _ if is_mtrr(index) => true,
            number::SPEC_CTRL => !amd && value & !7 == 0,
            _ => is_amd_configuration(index) && amd,
        };
        let ignored = matches!(
            index,
            number::MICROCODE_REVISION | number::MICROCODE_UPDATE | number::MPERF | number::APERF
        ) || index == number::PRED_CMD && !amd && value & !1 == 0
            || index == number::FEATURE_CONTROL && !amd && value == 1
            || amd && is_amd_performance_counter(index);
        if accepted {
            self.system.msrs.values.insert(index, value);
        }
        if accepted || ignored { Ok(()) } else { Err(gp0()) }
    }

    /// Set IA32_EFER.
    fn set_efer(&mut self, value: u64) -> Result<(), Trap> {
        let mut defined = efer::SCE | efer::LME | efer::LMA | efer::NXE;
        if self.system.is_amd() {
            defined |= EFER_AUTOMATIC_IBRS;
        }
        let regs = &mut self.context.regs;
        let changed = value ^ regs.efer;
        let switching = changed & efer::LME != 0 && regs.cr0 & cr0::PG != 0;
        if value & !defined != 0 || switching {
            return Err(gp0());
        }
        // LMA follows from LME and CR0.PG; what is written to it is ignored.
        regs.efer = value & !efer::LMA | regs.efer & efer::LMA;
        if changed & efer::NXE != 0 {
            self.flush_tlb(Flush::All);
        }
        Ok(())
    }

    /// Writing the TSC moves IA32_TSC_ADJUST along (SDM 3B 18.17.3).
    fn set_time_stamp(&mut self, value: u64) {
        let moved = value.wrapping_sub(self.time_stamp());
        let adjusted = &mut self.system.msrs.tsc_adjust;
        *adjusted = adjusted.wrapping_add(moved);
        let offset = &mut self.context.regs.tsc_offset;
        *offset = offset.wrapping_add(moved);
    }

    fn set_time_stamp_adjustment(&mut self, value: u64) {
        let moved = value.wrapping_sub(self.system.msrs.tsc_adjust);
        self.system.msrs.tsc_adjust = value;
        let offset = &mut self.context.regs.tsc_offset;
        *offset = offset.wrapping_add(moved);
    }
}
