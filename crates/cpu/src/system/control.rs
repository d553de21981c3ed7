//! Control registers and the modes they select (SDM 3A 2.5, 4.1, 9.8.5), TLB invalidation, segment
//! bases.

use iced_x86::{Instruction, Mnemonic, OpKind, Register};

use crate::architectural::Architectural;
use crate::exception::Trap;
use crate::interpret::{gp0, ud};
use crate::memory::paging::{PHYSICAL_BITS, load};
use crate::memory::{Access, Flush, Linear, Privilege};
use crate::state::{Attributes, SegmentRegister, cr0, cr4, efer};

/// Bits of CR0 that exist.
const CR0_DEFINED: u64 = cr0::PE
    | cr0::MP
    | cr0::EM
    | cr0::TS
    | cr0::ET
    | cr0::NE
    | cr0::WP
    | cr0::AM
    | cr0::NW
    | cr0::CD
    | cr0::PG;

/// Bits of CR4 that CPUID announces the features of. VME and PVI are not among them.
const CR4_DEFINED: u64 = cr4::TSD
    | cr4::DE
    | cr4::PSE
    | cr4::PAE
    | cr4::MCE
    | cr4::PGE
    | cr4::PCE
    | cr4::OSFXSR
    | cr4::OSXMMEXCPT
    | cr4::UMIP
    | cr4::FSGSBASE
    | cr4::PCIDE
    | cr4::OSXSAVE
    | cr4::SMEP
    | cr4::SMAP;

/// Bits of CR4 that change how memory is accessed.
const CR4_PAGING: u64 = cr4::PSE | cr4::PAE | cr4::PGE | cr4::PCIDE | cr4::SMEP | cr4::SMAP;

/// Reserved bits of a page-directory-pointer entry, but for the address (SDM 3A table 4-8).
const POINTER_RESERVED: u64 = 0x1e6;

/// Do not flush: bit 63 of a value moved to CR3 when PCIDs are on (SDM 3A 4.10.4.1).
const KEEP_TLB: u64 = 1 << 63;

impl Architectural {
    /// `mov r, cr`.
    pub(crate) fn move_from_control(&mut self, instruction: &Instruction) -> Result<(), Trap> {
        self.require_ring_0()?;
        let value = match instruction.op1_register() {
            Register::CR0 => self.context.regs.cr0,
            Register::CR2 => self.context.regs.cr2,
            Register::CR3 => self.context.regs.cr3,
            Register::CR4 => self.context.regs.cr4,
            Register::CR8 => self.tpr_read()?,
            _ => return Err(ud()),
        };
        self.set_register(instruction.op0_register(), value);
        Ok(())
    }

    /// `mov cr, r`.
    pub(crate) fn move_to_control(&mut self, instruction: &Instruction) -> Result<(), Trap> {
        let register = instruction.op0_register();
        let known = [Register::CR0, Register::CR2, Register::CR3, Register::CR4, Register::CR8];
        if !known.contains(&register) {
            return Err(ud());
        }
        self.require_ring_0()?;
        let value = self.register_value(instruction.op1_register());
        match register {
            Register::CR0 => self.set_cr0(value),
            Register::CR3 => self.set_cr3(value),
            Register::CR4 => self.set_cr4(value),
            Register::CR8 if value > 15 => Err(gp0()),
            Register::CR8 => {
                self.tpr_write(value as u8);
                Ok(())
            }
            _ => {
                self.context.regs.cr2 = value;
                Ok(())
            }
        }
    }

    /// `mov` with a test register, which no processor has had since the 486.
    pub(crate) fn no_such_register(&mut self, _: &Instruction) -> Result<(), Trap> {
        Err(ud())
    }

    /// Set CR0, with the changes of mode that follow.
    ///
    /// # Errors
    ///
    /// #GP(0) for impossible combinations (SDM 2B "MOV--Move to/from Control Registers").
    pub(crate) fn set_cr0(&mut self, value: u64) -> Result<(), Trap> {
        let paging = value & cr0::PG != 0;
        let impossible = value >> 32 != 0
            || paging && value & cr0::PE == 0
            || value & cr0::NW != 0 && value & cr0::CD == 0
            || !paging && self.context.regs.cr4 & cr4::PCIDE != 0;
        if impossible {
            return Err(gp0());
        }
        let value = value & CR0_DEFINED | cr0::ET;
        let changed = value ^ self.context.regs.cr0;
        if changed & cr0::PG != 0 {
            self.switch_paging(paging)?;
        }
        let (cr3, cr4) = (self.context.regs.cr3, self.context.regs.cr4);
        if changed & (cr0::PG | cr0::CD | cr0::NW) != 0 {
            self.check_directory_pointers(value, cr3, cr4)?;
        }
        self.context.regs.cr0 = value;
        if changed & !(cr0::MP | cr0::NE | cr0::CD | cr0::NW) != 0 {
            self.flush_tlb(Flush::All);
        }
        if changed & cr0::PE != 0 && value & cr0::PE == 0 {
            self.context.regs.cpl = 0;
        }
        Ok(())
    }

    /// IA-32e mode is activated by turning paging on while EFER.LME is set (SDM 3A 9.8.5).
    fn switch_paging(&mut self, paging: bool) -> Result<(), Trap> {
        let regs = &mut self.context.regs;
        let cs = regs.segment(SegmentRegister::Cs).attributes;
        if !paging {
            if regs.long_mode() && cs.contains(Attributes::LONG) {
                return Err(gp0());
            }
            regs.efer &= !efer::LMA;
        } else if regs.efer & efer::LME != 0 {
            // A busy 16-bit TSS, or a 64-bit code segment, cannot come along.
            let old_task = regs.tr.attributes.bits() & 0xf == 3;
            if regs.cr4 & cr4::PAE == 0 || cs.contains(Attributes::LONG) || old_task {
                return Err(gp0());
            }
            regs.efer |= efer::LMA;
        }
        Ok(())
    }

    /// With PAE paging the four page-directory-pointer entries are checked when they are loaded
    /// (SDM 3A 4.4.1).
    ///
    /// # Errors
    ///
    /// #GP(0) when an entry that is present has a reserved bit set.
    fn check_directory_pointers(&self, cr0: u64, cr3: u64, cr4: u64) -> Result<(), Trap> {
        let paging = cr0 & cr0::PG != 0 && cr4 & cr4::PAE != 0;
        if !paging || self.context.regs.long_mode() {
            return Ok(());
        }
        let table = cr3 & 0xffff_ffe0;
        let good = (0..4).map(|index| load(&self.ram, table + 8 * index, 8)).all(|entry| {
            entry & 1 == 0 || entry & POINTER_RESERVED == 0 && entry >> PHYSICAL_BITS == 0
        });
        if good { Ok(()) } else { Err(gp0()) }
    }

    /// Set CR3 and flush as SDM 3A 4.10.4.1 says.
    pub(crate) fn set_cr3(&mut self, value: u64) -> Result<(), Trap> {
        let regs = &mut self.context.regs;
        let identified = regs.cr4 & cr4::PCIDE != 0;
        let keep = identified && value & KEEP_TLB != 0;
        let value = if identified { value & !KEEP_TLB } else { value };
        if regs.long_mode() && value >> PHYSICAL_BITS != 0 {
            return Err(gp0());
        }
        let (cr0, cr4) = (regs.cr0, regs.cr4);
        self.check_directory_pointers(cr0, value, cr4)?;
        self.context.regs.cr3 = value;
        self.has_switched_spaces = true;
        if !keep {
            let pcid = self.current_pcid();
            self.flush_tlb(Flush::Pcid(pcid));
        } else {
            self.flush_local_mirror();
        }
        Ok(())
    }

    /// Set CR4.
    pub(crate) fn set_cr4(&mut self, value: u64) -> Result<(), Trap> {
        let regs = &mut self.context.regs;
        let changed = value ^ regs.cr4;
        let long = regs.long_mode();
        let identifying = changed & value & cr4::PCIDE != 0;
        let impossible = value & !CR4_DEFINED != 0
            || long && value & cr4::PAE == 0
            || identifying && (!long || regs.cr3 & 0xfff != 0);
        if impossible {
            return Err(gp0());
        }
        let (cr0, cr3) = (regs.cr0, regs.cr3);
        if changed & (cr4::PAE | cr4::PGE | cr4::PSE | cr4::SMEP) != 0 {
            self.check_directory_pointers(cr0, cr3, value)?;
        }
        self.context.regs.cr4 = value;
        self.clear_cpuid_cache();
        if changed & (CR4_PAGING | cr4::OSFXSR | cr4::OSXSAVE) != 0 {
            self.flush_tlb(Flush::All);
        }
        Ok(())
    }

    /// `smsw`.
    pub(crate) fn store_machine_status(&mut self, instruction: &Instruction) -> Result<(), Trap> {
        self.check_umip()?;
        let value = self.context.regs.cr0;
        if instruction.op0_kind() == OpKind::Register {
            self.set_register(instruction.op0_register(), value);
            return Ok(());
        }
        let at = self.operand_linear(instruction, 2, Access::Write)?;
        self.write_u16(at, value as u16, Privilege::Current)
    }

    /// `lmsw`: PE can be set but not cleared.
    pub(crate) fn load_machine_status(&mut self, instruction: &Instruction) -> Result<(), Trap> {
        self.require_ring_0()?;
        let value = if instruction.op0_kind() == OpKind::Register {
            self.register_value(instruction.op0_register())
        } else {
            let at = self.operand_linear(instruction, 2, Access::Read)?;
            u64::from(self.read_u16(at, Privilege::Current)?)
        };
        let old = self.context.regs.cr0;
        self.set_cr0(old & !0xe | value & 0xf)
    }

    /// `clts`.
    pub(crate) fn clear_task_switched(&mut self, _: &Instruction) -> Result<(), Trap> {
        self.require_ring_0()?;
        let value = self.context.regs.cr0 & !cr0::TS;
        self.set_cr0(value)
    }

    /// `invlpg`. No segment checks are made; an address that is not canonical does nothing.
    pub(crate) fn invalidate_page(&mut self, instruction: &Instruction) -> Result<(), Trap> {
        self.require_ring_0()?;
        let offset = self.effective_address(instruction);
        let segment = self.context.regs.segment(crate::instruction::segment_of(instruction));
        let flat = self.in_64_bit_mode()
            && !matches!(instruction.memory_segment(), Register::FS | Register::GS);
        let base = if flat { 0 } else { segment.base };
        let mut at = Linear(base.wrapping_add(offset));
        if !self.in_64_bit_mode() {
            at.0 &= 0xffff_ffff;
        }
        self.flush_tlb(Flush::Page(at));
        Ok(())
    }

    /// `invpcid` (SDM 2A).
    pub(crate) fn invalidate_pcid(&mut self, instruction: &Instruction) -> Result<(), Trap> {
        if self.context.regs.protected() && self.context.regs.real_or_v86() {
            return Err(gp0());
        }
        self.require_ring_0()?;
        let kind = self.register_value(instruction.op0_register());
        let at = self.operand_linear(instruction, 16, Access::Read)?;
        let mut bytes = [0; 16];
        self.read_linear(at, &mut bytes, Privilege::Current)?;
        let [low, address] =
            [0, 8].map(|at| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes")));
        let pcid = low as u16;
        let bad_pcid = low > 0xfff || self.context.regs.cr4 & cr4::PCIDE == 0 && low != 0;
        let what = match kind {
            0 if bad_pcid || !Linear(address).is_canonical() => return Err(gp0()),
            0 => Flush::PagePcid(Linear(address), pcid),
            1 if bad_pcid => return Err(gp0()),
            1 => Flush::Pcid(pcid),
            2 => Flush::All,
            3 => Flush::AllPcids,
            _ => return Err(gp0()),
        };
        self.flush_tlb(what);
        Ok(())
    }

    /// `swapgs`.
    pub(crate) fn swap_gs(&mut self, _: &Instruction) -> Result<(), Trap> {
        if !self.in_64_bit_mode() {
            return Err(ud());
        }
        self.require_ring_0()?;
        let regs = &mut self.context.regs;
        let gs = &mut regs.segments[SegmentRegister::Gs as usize].base;
        std::mem::swap(gs, &mut regs.kernel_gs_base);
        Ok(())
    }

    /// The segment whose base `rdfsbase` and its kin are about; #UD where they do not exist.
    fn based_segment(&self, mnemonic: Mnemonic) -> Result<SegmentRegister, Trap> {
        if !self.in_64_bit_mode() || self.context.regs.cr4 & cr4::FSGSBASE == 0 {
            return Err(ud());
        }
        Ok(match mnemonic {
            Mnemonic::Rdfsbase | Mnemonic::Wrfsbase => SegmentRegister::Fs,
            _ => SegmentRegister::Gs,
        })
    }

    /// `rdfsbase`, `rdgsbase`.
    pub(crate) fn read_segment_base(&mut self, instruction: &Instruction) -> Result<(), Trap> {
        let which = self.based_segment(instruction.mnemonic())?;
        let value = self.context.regs.segment(which).base;
        self.set_register(instruction.op0_register(), value);
        Ok(())
    }

    /// `wrfsbase`, `wrgsbase`.
    pub(crate) fn write_segment_base(&mut self, instruction: &Instruction) -> Result<(), Trap> {
        let which = self.based_segment(instruction.mnemonic())?;
        let value = self.register_value(instruction.op0_register());
        if !Linear(value).is_canonical() {
            return Err(gp0());
        }
        self.context.regs.segment_mut(which).base = value;
        Ok(())
    }

    /// `xgetbv`: XCR0, and with ECX = 1 which of its components are in use (SDM 1 13.2).
    pub(crate) fn get_extended_control(&mut self, _: &Instruction) -> Result<(), Trap> {
        if self.context.regs.cr4 & cr4::OSXSAVE == 0 {
            return Err(ud());
        }
        let value = match self.context.regs.gpr[1] as u32 {
            0 => self.context.regs.xcr0,
            1 => self.components_in_use() & self.context.regs.xcr0,
            _ => return Err(gp0()),
        };
        let gpr = &mut self.context.regs.gpr;
        (gpr[0], gpr[2]) = (value & 0xffff_ffff, value >> 32);
        Ok(())
    }

    /// `xsetbv` (SDM 2D).
    pub(crate) fn set_extended_control(&mut self, _: &Instruction) -> Result<(), Trap> {
        if self.context.regs.cr4 & cr4::OSXSAVE == 0 {
            return Err(ud());
        }
        self.require_ring_0()?;
        let gpr = &self.context.regs.gpr;
        let value = gpr[0] & 0xffff_ffff | gpr[2] << 32;
        if gpr[1] as u32 != 0 || !self.is_possible_xcr0(value) {
            return Err(gp0());
        }
        self.context.regs.xcr0 = value;
        self.clear_cpuid_cache();
        self.flush_tlb(Flush::All);
        Ok(())
    }

    /// Which values XCR0 can have (SDM 1 13.3).
    fn is_possible_xcr0(&self, value: u64) -> bool {
        const AVX512: u64 = 0xe0;
        let avx = value & 4 != 0;
        let wide = value & AVX512;
        value & 1 != 0
            && value & !self.system.components() == 0
            && (!avx || value & 2 != 0)
            && (wide == 0 || wide == AVX512 && avx)
    }
}
