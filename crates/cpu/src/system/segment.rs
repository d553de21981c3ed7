//! Loading segment registers, and the instructions that load or look at descriptors.

use iced_x86::{Code, Instruction, Mnemonic, OpKind, Register};

use super::descriptor::{Descriptor, gp, is_null, kind, np, rpl, ss};
use crate::architectural::Architectural;
use crate::exception::Trap;
use crate::instruction::segment_register;
use crate::interpret::{gp0, ud};
use crate::memory::{Access, Linear, Privilege};
use crate::state::{Attributes, Segment, SegmentRegister, cr4, rflags};

/// A data segment that 64-bit mode's null SS has.
const FLAT_DATA: u16 = 0x93;

/// A segment register that holds a null selector.
pub(crate) fn null_segment(selector: u16) -> Segment {
    Segment { base: 0, limit: 0, selector, attributes: Attributes::UNUSABLE }
}

/// Refuse an LDT or a TSS whose base is not canonical, which only the 16 bytes of IA-32e mode can
/// say (SDM 3A 3.5.2, 8.2.3; APM 2 4.8.3).
fn check_base(descriptor: &Descriptor, selector: u16, fault: fn(u16) -> Trap) -> Result<(), Trap> {
    if Linear(descriptor.base()).is_canonical() { Ok(()) } else { Err(fault(selector)) }
}

/// Flat 64-bit or 32-bit segments, as `syscall` and its relatives load them without looking at any
/// descriptor table.
pub(crate) fn flat(selector: u16, attributes: u16) -> Segment {
    let dpl = (selector & 3) << 5;
    Segment {
        base: 0,
        limit: 0xffff_ffff,
        selector,
        attributes: Attributes::from_bits_retain(attributes | dpl),
    }
}

impl Architectural {
    /// Load ES, SS, DS, FS or GS with a selector, with all checks (SDM 2B "MOV", 3A 5.6, 5.7).
    pub(crate) fn load_segment(
        &mut self,
        which: SegmentRegister,
        selector: u16,
    ) -> Result<(), Trap> {
        let loaded = if self.context.regs.real_or_v86() {
            self.paragraph(which, selector)
        } else if which == SegmentRegister::Ss {
            let cpl = self.context.regs.cpl;
            self.stack_segment(selector, cpl, gp, gp)?
        } else {
            self.data_segment(selector)?
        };
        *self.context.regs.segment_mut(which) = loaded;
        Ok(())
    }

    /// Real-address mode keeps limit and attributes; virtual-8086 mode has fixed ones.
    pub(crate) fn paragraph(&self, which: SegmentRegister, selector: u16) -> Segment {
        let regs = &self.context.regs;
        let old = regs.segment(which);
        let base = u64::from(selector) << 4;
        if regs.protected() {
            let attributes = Attributes::from_bits_retain(0xf3);
            return Segment { base, limit: 0xffff, selector, attributes };
        }
        let unusable = old.attributes.contains(Attributes::UNUSABLE);
        let limit = if unusable { 0xffff } else { old.limit };
        let attributes = Attributes::from_bits_retain(0x93);
        Segment { base, limit, selector, attributes }
    }

    /// A stack segment for privilege level `cpl`. `fault` is #GP or, during stack switches, #TS.
    pub(crate) fn stack_segment(
        &mut self,
        selector: u16,
        cpl: u8,
        null_fault: fn(u16) -> Trap,
        fault: fn(u16) -> Trap,
    ) -> Result<Segment, Trap> {
        if is_null(selector) {
            if self.in_64_bit_mode() && cpl < 3 && rpl(selector) == cpl {
                return Ok(flat(selector, FLAT_DATA));
            }
            return Err(null_fault(0));
        }
        let mut descriptor = self.descriptor_or(selector, fault)?;
        let fits = rpl(selector) == cpl && descriptor.dpl() == cpl;
        if !fits || !descriptor.is_writable_data() {
            return Err(fault(selector));
        }
        if !descriptor.is_present() {
            return Err(ss(selector));
        }
        self.mark_accessed(&mut descriptor)?;
        Ok(descriptor.segment(selector))
    }

    fn data_segment(&mut self, selector: u16) -> Result<Segment, Trap> {
        if is_null(selector) {
            return Ok(null_segment(selector));
        }
        let mut descriptor = self.descriptor_or(selector, gp)?;
        let cpl = self.context.regs.cpl;
        let privileged = descriptor.is_conforming() || descriptor.dpl() >= cpl.max(rpl(selector));
        if !descriptor.is_readable() || !privileged {
            return Err(gp(selector));
        }
        if !descriptor.is_present() {
            return Err(np(selector));
        }
        self.mark_accessed(&mut descriptor)?;
        Ok(descriptor.segment(selector))
    }

    /// `mov r/m, sreg`.
    pub(crate) fn store_segment(&mut self, instruction: &Instruction) -> Result<(), Trap> {
        let which = segment_register(instruction.op1_register());
        let selector = u64::from(self.context.regs.segment(which).selector);
        if instruction.op0_kind() == OpKind::Register {
            self.set_register(instruction.op0_register(), selector);
            return Ok(());
        }
        let at = self.operand_linear(instruction, 2, Access::Write)?;
        self.write_u16(at, selector as u16, Privilege::Current)
    }

    /// A 16-bit selector operand, from a register of any width or from memory.
    fn selector_operand(&mut self, instruction: &Instruction, operand: u32) -> Result<u16, Trap> {
        if instruction.op_kind(operand) == OpKind::Register {
            return Ok(self.register_value(instruction.op_register(operand)) as u16);
        }
        let at = self.operand_linear(instruction, 2, Access::Read)?;
        self.read_u16(at, Privilege::Current)
    }

    /// `mov sreg, r/m`.
    pub(crate) fn move_to_segment(&mut self, instruction: &Instruction) -> Result<(), Trap> {
        let which = segment_register(instruction.op0_register());
        if which == SegmentRegister::Cs {
            return Err(ud());
        }
        let selector = self.selector_operand(instruction, 1)?;
        self.load_segment(which, selector)?;
        if which == SegmentRegister::Ss {
            self.begin_stack_shadow();
        }
        Ok(())
    }

    /// `lds`, `les`, `lfs`, `lgs`, `lss`.
    pub(crate) fn load_far_pointer(&mut self, instruction: &Instruction) -> Result<(), Trap> {
        let which = match instruction.mnemonic() {
            Mnemonic::Les => SegmentRegister::Es,
            Mnemonic::Lss => SegmentRegister::Ss,
            Mnemonic::Lds => SegmentRegister::Ds,
            Mnemonic::Lfs => SegmentRegister::Fs,
            _ => SegmentRegister::Gs,
        };
        let mut register = instruction.op0_register();
        if register.size() == 8 && self.system.is_amd() {
            // AMD's processors have no far pointers with 64-bit offsets (APM 3 "LFS").
            register = Register::EAX + register.number() as u32;
        }
        let (offset, selector) = self.read_far_pointer(instruction, register.size())?;
        self.load_segment(which, selector)?;
        self.set_register(register, offset);
        Ok(())
    }

    /// A far pointer in memory: an offset of `size` bytes, then a selector.
    pub(crate) fn read_far_pointer(
        &mut self,
        instruction: &Instruction,
        size: usize,
    ) -> Result<(u64, u16), Trap> {
        let at = self.operand_linear(instruction, size as u32 + 2, Access::Read)?;
        let mut bytes = [0; 10];
        self.read_linear(at, &mut bytes[..size + 2], Privilege::Current)?;
        let selector = u16::from_le_bytes([bytes[size], bytes[size + 1]]);
        let mut offset = [0; 8];
        offset[..size].copy_from_slice(&bytes[..size]);
        Ok((u64::from_le_bytes(offset), selector))
    }

    /// `lgdt`, `lidt`.
    pub(crate) fn load_table(&mut self, instruction: &Instruction) -> Result<(), Trap> {
        self.require_ring_0()?;
        let long = self.in_64_bit_mode();
        let size = if long { 10 } else { 6 };
        let at = self.operand_linear(instruction, size, Access::Read)?;
        let mut bytes = [0; 10];
        self.read_linear(at, &mut bytes[..size as usize], Privilege::Current)?;
        let limit = u16::from_le_bytes([bytes[0], bytes[1]]);
        let mut base = u64::from_le_bytes(bytes[2..].try_into().expect("eight bytes"));
        if matches!(instruction.code(), Code::Lgdt_m1632_16 | Code::Lidt_m1632_16) {
            base &= 0x00ff_ffff;
        }
        if !Linear(base).is_canonical() {
            return Err(gp0());
        }
        let regs = &mut self.context.regs;
        let global = instruction.mnemonic() == Mnemonic::Lgdt;
        let table = if global { &mut regs.gdtr } else { &mut regs.idtr };
        (table.base, table.limit) = (base, limit);
        Ok(())
    }

    /// #GP(0) for the instructions that UMIP takes from user mode (SDM 3A 2.5, CR4.UMIP).
    pub(super) fn check_umip(&self) -> Result<(), Trap> {
        let regs = &self.context.regs;
        if !regs.mode().is_kernel() && regs.cr4 & cr4::UMIP != 0 {
            return Err(gp0());
        }
        Ok(())
    }

    /// `sgdt`, `sidt`.
    pub(crate) fn store_table(&mut self, instruction: &Instruction) -> Result<(), Trap> {
        self.check_umip()?;
        let regs = &self.context.regs;
        let global = instruction.mnemonic() == Mnemonic::Sgdt;
        let table = if global { regs.gdtr } else { regs.idtr };
        let size = if self.in_64_bit_mode() { 10 } else { 6 };
        let mut bytes = [0; 10];
        bytes[..2].copy_from_slice(&table.limit.to_le_bytes());
        bytes[2..].copy_from_slice(&table.base.to_le_bytes());
        let at = self.operand_linear(instruction, size, Access::Write)?;
        self.write_linear(at, &bytes[..size as usize], Privilege::Current)
    }

    /// `sldt`, `str`.
    pub(crate) fn store_system_selector(&mut self, instruction: &Instruction) -> Result<(), Trap> {
        self.require_protected()?;
        self.check_umip()?;
        let regs = &self.context.regs;
        let local = instruction.mnemonic() == Mnemonic::Sldt;
        let selector = if local { regs.ldtr.selector } else { regs.tr.selector };
        if instruction.op0_kind() == OpKind::Register {
            self.set_register(instruction.op0_register(), u64::from(selector));
            return Ok(());
        }
        let at = self.operand_linear(instruction, 2, Access::Write)?;
        self.write_u16(at, selector, Privilege::Current)
    }

    /// `lldt`.
    pub(crate) fn load_local_table(&mut self, instruction: &Instruction) -> Result<(), Trap> {
        self.require_protected()?;
        self.require_ring_0()?;
        let selector = self.selector_operand(instruction, 0)?;
        self.context.regs.ldtr = self.local_table(selector, gp)?;
        Ok(())
    }

    /// The LDTR for a selector.
    pub(super) fn local_table(
        &mut self,
        selector: u16,
        fault: fn(u16) -> Trap,
    ) -> Result<Segment, Trap> {
        if is_null(selector) {
            return Ok(null_segment(selector));
        }
        let mut descriptor = self.global_descriptor(selector, fault)?;
        if !descriptor.is_system() || descriptor.kind() != kind::LDT {
            return Err(fault(selector));
        }
        if !descriptor.is_present() {
            return Err(np(selector));
        }
        self.extend_descriptor(&mut descriptor, selector, fault)?;
        check_base(&descriptor, selector, fault)?;
        Ok(descriptor.segment(selector))
    }

    /// A descriptor that must be in the GDT.
    pub(super) fn global_descriptor(
        &mut self,
        selector: u16,
        fault: fn(u16) -> Trap,
    ) -> Result<Descriptor, Trap> {
        if selector & 4 != 0 {
            return Err(fault(selector));
        }
        self.descriptor_or(selector, fault)
    }

    /// `ltr`.
    pub(crate) fn load_task_register(&mut self, instruction: &Instruction) -> Result<(), Trap> {
        self.require_protected()?;
        self.require_ring_0()?;
        let selector = self.selector_operand(instruction, 0)?;
        if is_null(selector) {
            return Err(gp0());
        }
        let mut descriptor = self.global_descriptor(selector, gp)?;
        let long = self.context.regs.long_mode();
        let available =
            descriptor.kind() == kind::TSS_32 || descriptor.kind() == kind::TSS_16 && !long;
        if !descriptor.is_system() || !available {
            return Err(gp(selector));
        }
        if !descriptor.is_present() {
            return Err(np(selector));
        }
        self.extend_descriptor(&mut descriptor, selector, gp)?;
        check_base(&descriptor, selector, gp)?;
        self.mark_busy(&mut descriptor, true)?;
        self.context.regs.tr = descriptor.segment(selector);
        Ok(())
    }

    fn set_zero_flag(&mut self, value: bool) {
        let flags = self.context.regs.rflags() & !rflags::ZF;
        self.context.regs.set_rflags(if value { flags | rflags::ZF } else { flags });
    }

    /// The descriptor that `lar`, `lsl`, `verr` or `verw` may look at, if it may.
    fn visible_descriptor(
        &mut self,
        selector: u16,
        kinds: &[u8],
    ) -> Result<Option<Descriptor>, Trap> {
        if is_null(selector) {
            return Ok(None);
        }
        let Some(mut descriptor) = self.read_descriptor(selector)? else { return Ok(None) };
        if descriptor.is_system() {
            if !kinds.contains(&descriptor.kind()) {
                return Ok(None);
            }
            let gate = matches!(descriptor.kind(), kind::CALL_GATE_16 | kind::TASK_GATE);
            let extended = self.context.regs.long_mode() && !gate;
            if extended && self.extend_descriptor(&mut descriptor, selector, gp).is_err() {
                return Ok(None);
            }
        }
        let privilege = self.context.regs.cpl.max(rpl(selector));
        let visible = descriptor.is_conforming() || descriptor.dpl() >= privilege;
        Ok(visible.then_some(descriptor))
    }

    /// `lar` (SDM 2A table 3-53).
    pub(crate) fn load_access_rights(&mut self, instruction: &Instruction) -> Result<(), Trap> {
        self.require_protected()?;
        let selector = self.selector_operand(instruction, 1)?;
        let kinds: &[u8] = if self.context.regs.long_mode() {
            &[kind::LDT, kind::TSS_32, kind::BUSY_TSS_32, kind::CALL_GATE_32]
        } else {
            &[
                kind::TSS_16,
                kind::LDT,
                kind::BUSY_TSS_16,
                kind::CALL_GATE_16,
                kind::TASK_GATE,
                kind::TSS_32,
                kind::BUSY_TSS_32,
                kind::CALL_GATE_32,
            ]
        };
        let found = self.visible_descriptor(selector, kinds)?;
        if let Some(descriptor) = found {
            // Bits 19:16 are undefined with Intel; AMD's processors give those of the limit.
            let mask = if self.system.is_amd() { 0x00ff_ff00 } else { 0x00f0_ff00 };
            let rights = descriptor.low >> 32 & mask;
            self.set_register(instruction.op0_register(), rights);
        }
        self.set_zero_flag(found.is_some());
        Ok(())
    }

    /// `lsl` (SDM 2A table 3-57).
    pub(crate) fn load_segment_limit(&mut self, instruction: &Instruction) -> Result<(), Trap> {
        self.require_protected()?;
        let selector = self.selector_operand(instruction, 1)?;
        let kinds: &[u8] = if self.context.regs.long_mode() {
            &[kind::LDT, kind::TSS_32, kind::BUSY_TSS_32]
        } else {
            &[kind::TSS_16, kind::LDT, kind::BUSY_TSS_16, kind::TSS_32, kind::BUSY_TSS_32]
        };
        let found = self.visible_descriptor(selector, kinds)?;
        if let Some(descriptor) = found {
            self.set_register(instruction.op0_register(), u64::from(descriptor.limit()));
        }
        self.set_zero_flag(found.is_some());
        Ok(())
    }

    /// `verr`, `verw`.
    pub(crate) fn verify_segment(&mut self, instruction: &Instruction) -> Result<(), Trap> {
        self.require_protected()?;
        let selector = self.selector_operand(instruction, 0)?;
        let found = self.visible_descriptor(selector, &[])?;
        let writing = instruction.mnemonic() == Mnemonic::Verw;
        let good = found.is_some_and(|descriptor| {
            if writing { descriptor.is_writable_data() } else { descriptor.is_readable() }
        });
        self.set_zero_flag(good);
        Ok(())
    }

    /// `arpl` (32-bit and 16-bit code only).
    pub(crate) fn adjust_rpl(&mut self, instruction: &Instruction) -> Result<(), Trap> {
        self.require_protected()?;
        let destination = self.selector_operand(instruction, 0)?;
        let source = self.register_value(instruction.op1_register()) as u16;
        let raised = rpl(destination) < rpl(source);
        let value = if raised { destination & !3 | source & 3 } else { destination };
        if !raised {
            // Nothing is stored, and the operand need not be writable.
        } else if instruction.op0_kind() == OpKind::Memory {
            let at = self.operand_linear(instruction, 2, Access::Write)?;
            self.write_u16(at, value, Privilege::Current)?;
        } else {
            let register = Register::AX + instruction.op0_register().number() as u32;
            self.set_register(register, u64::from(value));
        }
        self.set_zero_flag(raised);
        Ok(())
    }
}
