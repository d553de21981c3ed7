//! The architectural state of one processor, laid out so that translated code can reach it.
//!
//! The general-purpose registers, the arithmetic flags and the vector state live in the host's own
//! registers while translated code runs; here is where they are at every other time.

use bitflags::bitflags;
use serde::{Deserialize, Serialize};

/// Index of a segment register, in the order of its encoding (SDM 2A 2.1.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
#[allow(missing_docs)]
pub enum SegmentRegister {
    Es = 0,
    Cs = 1,
    Ss = 2,
    Ds = 3,
    Fs = 4,
    Gs = 5,
}

bitflags! {
    /// The attribute bits of a segment descriptor, bits 55:40 of the descriptor with bits 51:48
    /// (limit) cleared (SDM 3A 3.4.5), plus one bit of our own for a null selector.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
    #[repr(transparent)]
    pub struct Attributes: u16 {
        /// Type bit 0: accessed (code and data), part of the type for system segments.
        const ACCESSED = 1 << 0;
        /// Type bit 1: writable (data) or readable (code).
        const WRITABLE = 1 << 1;
        /// Type bit 2: expand-down (data) or conforming (code).
        const EXPAND_DOWN = 1 << 2;
        /// Type bit 3: code.
        const CODE = 1 << 3;
        /// S: code or data, not a system segment.
        const NOT_SYSTEM = 1 << 4;
        /// Both bits of the descriptor privilege level.
        const DPL = 3 << 5;
        /// P.
        const PRESENT = 1 << 7;
        /// Available to software.
        const AVAILABLE = 1 << 12;
        /// L: 64-bit code.
        const LONG = 1 << 13;
        /// D/B: 32-bit operands or stack.
        const BIG = 1 << 14;
        /// G: the limit counts 4 KiB pages.
        const GRANULAR = 1 << 15;
        /// Not in any descriptor: the register holds a null selector and may not be used
        /// outside 64-bit mode.
        const UNUSABLE = 1 << 11;
    }
}

/// A segment register with its hidden part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[repr(C)]
pub struct Segment {
    /// Linear address of the segment's start.
    pub base: u64,
    /// Highest offset in bytes, granularity already applied.
    pub limit: u32,
    /// The visible selector.
    pub selector: u16,
    /// The descriptor's attributes.
    pub attributes: Attributes,
}

impl Segment {
    /// Descriptor privilege level, 0 to 3.
    pub fn dpl(&self) -> u8 {
        ((self.attributes.bits() >> 5) & 3) as u8
    }
}

/// GDTR or IDTR.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[repr(C)]
pub struct TableRegister {
    /// Linear address.
    pub base: u64,
    /// Offset of the last byte.
    pub limit: u16,
}

/// Bits of RFLAGS (SDM 1 3.4.3).
#[allow(missing_docs)]
pub mod rflags {
    pub const CF: u64 = 1 << 0;
    pub const FIXED: u64 = 1 << 1;
    pub const PF: u64 = 1 << 2;
    pub const AF: u64 = 1 << 4;
    pub const ZF: u64 = 1 << 6;
    pub const SF: u64 = 1 << 7;
    pub const TF: u64 = 1 << 8;
    pub const IF: u64 = 1 << 9;
    pub const DF: u64 = 1 << 10;
    pub const OF: u64 = 1 << 11;
    pub const IOPL: u64 = 3 << 12;
    pub const NT: u64 = 1 << 14;
    pub const RF: u64 = 1 << 16;
    pub const VM: u64 = 1 << 17;
    pub const AC: u64 = 1 << 18;
    pub const VIF: u64 = 1 << 19;
    pub const VIP: u64 = 1 << 20;
    pub const ID: u64 = 1 << 21;
    /// What lives in the host's own flags register while translated code runs.
    pub const NATIVE: u64 = CF | PF | AF | ZF | SF | DF | OF;
    /// The six status flags.
    pub const STATUS: u64 = CF | PF | AF | ZF | SF | OF;
    /// Every bit that software can change.
    pub const DEFINED: u64 = STATUS | DF | TF | IF | IOPL | NT | RF | VM | AC | VIF | VIP | ID;
}

/// Bits of CR0 (SDM 3A 2.5).
#[allow(missing_docs)]
pub mod cr0 {
    pub const PE: u64 = 1 << 0;
    pub const MP: u64 = 1 << 1;
    pub const EM: u64 = 1 << 2;
    pub const TS: u64 = 1 << 3;
    pub const ET: u64 = 1 << 4;
    pub const NE: u64 = 1 << 5;
    pub const WP: u64 = 1 << 16;
    pub const AM: u64 = 1 << 18;
    pub const NW: u64 = 1 << 29;
    pub const CD: u64 = 1 << 30;
    pub const PG: u64 = 1 << 31;
}

/// Bits of CR4 (SDM 3A 2.5).
#[allow(missing_docs)]
pub mod cr4 {
    pub const VME: u64 = 1 << 0;
    pub const PVI: u64 = 1 << 1;
    pub const TSD: u64 = 1 << 2;
    pub const DE: u64 = 1 << 3;
    pub const PSE: u64 = 1 << 4;
    pub const PAE: u64 = 1 << 5;
    pub const MCE: u64 = 1 << 6;
    pub const PGE: u64 = 1 << 7;
    pub const PCE: u64 = 1 << 8;
    pub const OSFXSR: u64 = 1 << 9;
    pub const OSXMMEXCPT: u64 = 1 << 10;
    pub const UMIP: u64 = 1 << 11;
    pub const FSGSBASE: u64 = 1 << 16;
    pub const PCIDE: u64 = 1 << 17;
    pub const OSXSAVE: u64 = 1 << 18;
    pub const SMEP: u64 = 1 << 20;
    pub const SMAP: u64 = 1 << 21;
}

/// Bits of IA32_EFER (SDM 4 table 2-2, APM 2 3.1.7).
#[allow(missing_docs)]
pub mod efer {
    pub const SCE: u64 = 1 << 0;
    pub const LME: u64 = 1 << 8;
    pub const LMA: u64 = 1 << 10;
    pub const NXE: u64 = 1 << 11;
    pub const FFXSR: u64 = 1 << 14;
}

/// How instructions are decoded: the size of code, from CS and EFER.LMA.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CodeSize {
    /// 16-bit: real mode, virtual-8086 mode, and 16-bit protected-mode segments.
    Bits16,
    /// 32-bit protected mode or compatibility mode.
    Bits32,
    /// 64-bit mode.
    Bits64,
}

/// The registers of one processor, except x87 and vector state.
///
/// RFLAGS is kept in pieces, so that translated code can set IF and AC with one store and without
/// touching the arithmetic flags: use [`Registers::rflags`] and [`Registers::set_rflags`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[repr(C)]
pub struct Registers {
    /// RAX, RCX, RDX, RBX, RSP, RBP, RSI, RDI, R8..R15: the order of encoding.
    pub gpr: [u64; 16],
    /// The next instruction (offset in CS).
    pub rip: u64,
    /// RFLAGS without IF and AC, which are 0 here.
    flags: u64,
    /// RFLAGS.IF, 0 or 1.
    pub interrupt_flag: u8,
    /// RFLAGS.AC, 0 or 1.
    pub alignment_flag: u8,
    /// Current privilege level, 0 to 3.
    pub cpl: u8,
    /// Interrupts are held off for one instruction (after `sti`, `mov ss`, `pop ss`; SDM 3A 6.8.3).
    pub interrupt_shadow: u8,
    /// `mov ss`/`pop ss` shadow: #DB traps are held off too.
    pub debug_shadow: u8,
    /// NMIs are blocked until the next `iret`.
    pub nmi_blocked: u8,
    /// ES, CS, SS, DS, FS, GS. The bases of FS and GS are here and only here.
    pub segments: [Segment; 6],
    /// Local descriptor table.
    pub ldtr: Segment,
    /// Task register.
    pub tr: Segment,
    /// Global descriptor table.
    pub gdtr: TableRegister,
    /// Interrupt descriptor table.
    pub idtr: TableRegister,
    /// Control registers; CR8 belongs to the APIC.
    pub cr0: u64,
    /// Page-fault linear address.
    pub cr2: u64,
    /// Page-table base, PCID in bits 11:0 when CR4.PCIDE is set.
    pub cr3: u64,
    /// Feature control.
    pub cr4: u64,
    /// IA32_EFER.
    pub efer: u64,
    /// Extended control register 0.
    pub xcr0: u64,
    /// DR0 to DR7 (4 and 5 unused).
    pub dr: [u64; 8],
    /// IA32_STAR.
    pub star: u64,
    /// IA32_LSTAR.
    pub lstar: u64,
    /// IA32_CSTAR.
    pub cstar: u64,
    /// IA32_FMASK.
    pub sfmask: u64,
    /// IA32_KERNEL_GS_BASE.
    pub kernel_gs_base: u64,
    /// IA32_SYSENTER_CS.
    pub sysenter_cs: u64,
    /// IA32_SYSENTER_ESP.
    pub sysenter_esp: u64,
    /// IA32_SYSENTER_EIP.
    pub sysenter_eip: u64,
    /// IA32_PAT.
    pub pat: u64,
    /// IA32_TSC_AUX.
    pub tsc_aux: u64,
    /// Guest TSC minus host TSC (mod 2^64).
    pub tsc_offset: u64,
    /// IA32_MISC_ENABLE.
    pub misc_enable: u64,
}

/// Where the bits of RFLAGS other than IF and AC are kept.
pub(crate) const FLAGS_OFFSET: i32 = std::mem::offset_of!(Registers, flags) as i32;

impl Registers {
    /// State after RESET or INIT (SDM 3A table 9-1): real mode at f000:fff0.
    pub fn reset() -> Self {
        let code = Segment {
            base: 0xffff_0000,
            limit: 0xffff,
            selector: 0xf000,
            attributes: Attributes::from_bits_retain(0x9b),
        };
        let data = Segment {
            base: 0,
            limit: 0xffff,
            selector: 0,
            attributes: Attributes::from_bits_retain(0x93),
        };
        let system = |kind| Segment {
            base: 0,
            limit: 0xffff,
            selector: 0,
            attributes: Attributes::from_bits_retain(kind),
        };
        Self {
            gpr: [0; 16],
            rip: 0xfff0,
            flags: rflags::FIXED,
            interrupt_flag: 0,
            alignment_flag: 0,
            cpl: 0,
            interrupt_shadow: 0,
            debug_shadow: 0,
            nmi_blocked: 0,
            segments: [data, code, data, data, data, data],
            ldtr: system(0x82),
            tr: system(0x8b),
            gdtr: TableRegister { base: 0, limit: 0xffff },
            idtr: TableRegister { base: 0, limit: 0xffff },
            cr0: cr0::ET | cr0::CD | cr0::NW,
            cr2: 0,
            cr3: 0,
            cr4: 0,
            efer: 0,
            xcr0: 1,
            dr: [0, 0, 0, 0, 0, 0, 0xffff_0ff0, 0x400],
            star: 0,
            lstar: 0,
            cstar: 0,
            sfmask: 0,
            kernel_gs_base: 0,
            sysenter_cs: 0,
            sysenter_esp: 0,
            sysenter_eip: 0,
            pat: 0x0007_0406_0007_0406,
            tsc_aux: 0,
            tsc_offset: 0,
            misc_enable: 1,
        }
    }

    /// RFLAGS, put together.
    pub fn rflags(&self) -> u64 {
        self.flags
            | (u64::from(self.interrupt_flag) * rflags::IF)
            | (u64::from(self.alignment_flag) * rflags::AC)
    }

    /// Set all of RFLAGS; undefined bits are dropped.
    pub fn set_rflags(&mut self, value: u64) {
        self.flags = value & (rflags::DEFINED & !(rflags::IF | rflags::AC)) | rflags::FIXED;
        self.interrupt_flag = u8::from(value & rflags::IF != 0);
        self.alignment_flag = u8::from(value & rflags::AC != 0);
    }

    /// Clear RF, which has no effect while no breakpoint is set, and which the next instruction
    /// clears (SDM 3B 18.3.1.1); whether it was set.
    pub(crate) fn take_resume_flag(&mut self) -> bool {
        let was_set = self.flags & rflags::RF != 0;
        self.flags &= !rflags::RF;
        was_set
    }

    /// The next instruction has not been executed yet.
    pub(crate) fn put_resume_flag_back(&mut self) {
        self.flags |= rflags::RF;
    }

    /// A segment register.
    pub fn segment(&self, which: SegmentRegister) -> &Segment {
        &self.segments[which as usize]
    }

    /// A segment register, to be changed.
    pub fn segment_mut(&mut self, which: SegmentRegister) -> &mut Segment {
        &mut self.segments[which as usize]
    }

    /// CR0.PE.
    pub fn protected(&self) -> bool {
        self.cr0 & cr0::PE != 0
    }

    /// EFER.LMA: IA-32e mode, 64-bit or compatibility.
    pub fn long_mode(&self) -> bool {
        self.efer & efer::LMA != 0
    }

    /// Real-address mode or virtual-8086 mode: a selector is a paragraph number.
    pub fn real_or_v86(&self) -> bool {
        !self.protected() || self.flags & rflags::VM != 0
    }

    /// The size of code at CS:RIP in bits: 16, 32 or 64.
    pub fn code_bits(&self) -> u32 {
        match self.code_size() {
            CodeSize::Bits16 => 16,
            CodeSize::Bits32 => 32,
            CodeSize::Bits64 => 64,
        }
    }

    /// How instructions at CS:RIP are decoded.
    pub fn code_size(&self) -> CodeSize {
        let attributes = self.segment(SegmentRegister::Cs).attributes;
        if self.long_mode() && attributes.contains(Attributes::LONG) {
            CodeSize::Bits64
        } else if attributes.contains(Attributes::BIG) && !self.real_or_v86() {
            CodeSize::Bits32
        } else {
            CodeSize::Bits16
        }
    }
}
