//! Far jumps, calls and returns: code segments, call gates and tasks (SDM 3A 5.8; 2A "CALL", "JMP").

use iced_x86::{Code, Instruction, Mnemonic, OpKind};

use super::iret::Destination;
use super::operand::{gp0, truncate};
use crate::architectural::Architectural;
use crate::exception::Trap;
use crate::memory::{Access, Privilege};
use crate::state::{Attributes, SegmentRegister};
use crate::system::descriptor::{Descriptor, gp, is_null, kind, np, rpl, ts};
use crate::system::{Cause, flat};

/// A far transfer to be made.
#[derive(Debug, Clone, Copy)]
struct Transfer {
    selector: u16,
    offset: u64,
    /// Operand size: bytes per item pushed by a call.
    size: usize,
    call: bool,
}

impl Architectural {
    /// `jmp ptr16:32`, `call ptr16:16` and so on.
    pub(crate) fn far_direct(&mut self, instruction: &Instruction) -> Result<(), Trap> {
        let wide = instruction.op0_kind() == OpKind::FarBranch32;
        let offset = if wide {
            u64::from(instruction.far_branch32())
        } else {
            u64::from(instruction.far_branch16())
        };
        self.transfer(Transfer {
            selector: instruction.far_branch_selector(),
            offset,
            size: if wide { 4 } else { 2 },
            call: instruction.mnemonic() == Mnemonic::Call,
        })
    }

    /// `jmp m16:32`, `call m16:64` and so on.
    pub(crate) fn far_indirect(&mut self, instruction: &Instruction) -> Result<(), Trap> {
        let size = match instruction.code() {
            Code::Jmp_m1616 | Code::Call_m1616 => 2,
            Code::Jmp_m1632 | Code::Call_m1632 => 4,
            // AMD's processors have no far pointers with 64-bit offsets (APM 3 "JMP (Far)").
            _ if self.system.is_amd() => 4,
            _ => 8,
        };
        let (offset, selector) = self.read_far_pointer(instruction, size)?;
        let call = instruction.mnemonic() == Mnemonic::Call;
        self.transfer(Transfer { selector, offset, size, call })
    }

    fn transfer(&mut self, transfer: Transfer) -> Result<(), Trap> {
        let Transfer { selector, offset, size, call } = transfer;
        if self.context.regs.real_or_v86() {
            if call {
                self.push_return(size)?;
            }
            let segment = self.paragraph(SegmentRegister::Cs, selector);
            *self.context.regs.segment_mut(SegmentRegister::Cs) = segment;
            return self.jump_to(offset);
        }
        if is_null(selector) {
            return Err(gp0());
        }
        let descriptor = self.descriptor_or(selector, gp)?;
        if !descriptor.is_system() {
            return self.transfer_to_code(transfer, descriptor);
        }
        self.transfer_through_system(transfer, descriptor)
    }

    fn push_return(&mut self, size: usize) -> Result<(), Trap> {
        let regs = &self.context.regs;
        let code = u64::from(regs.segment(SegmentRegister::Cs).selector);
        self.push_frame(&[code, regs.rip], size)
    }

    /// Directly to a code segment of the current privilege.
    fn transfer_to_code(
        &mut self,
        transfer: Transfer,
        mut descriptor: Descriptor,
    ) -> Result<(), Trap> {
        let Transfer { selector, offset, size, call } = transfer;
        let cpl = self.context.regs.cpl;
        let privileged = if descriptor.is_conforming() {
            descriptor.dpl() <= cpl
        } else {
            rpl(selector) <= cpl && descriptor.dpl() == cpl
        };
        let both = Attributes::LONG | Attributes::BIG;
        let impossible = self.context.regs.long_mode() && descriptor.attributes().contains(both);
        if !descriptor.is_code() || !privileged || impossible {
            return Err(gp(selector));
        }
        if !descriptor.is_present() {
            return Err(np(selector));
        }
        self.check_entry(&descriptor, offset)?;
        if call {
            self.push_return(size)?;
        }
        self.mark_accessed(&mut descriptor)?;
        self.enter_code(&descriptor, selector, offset, cpl);
        Ok(())
    }

    fn enter_code(&mut self, descriptor: &Descriptor, selector: u16, offset: u64, cpl: u8) {
        let regs = &mut self.context.regs;
        let selector = selector & !3 | u16::from(cpl);
        *regs.segment_mut(SegmentRegister::Cs) = descriptor.segment(selector);
        regs.cpl = cpl;
        regs.rip = offset;
    }

    /// Through a call gate, a task gate or a TSS.
    fn transfer_through_system(
        &mut self,
        transfer: Transfer,
        mut descriptor: Descriptor,
    ) -> Result<(), Trap> {
        let selector = transfer.selector;
        let cause = if transfer.call { Cause::Call } else { Cause::Jump };
        let long = self.context.regs.long_mode();
        let privilege = self.context.regs.cpl.max(rpl(selector));
        let (gate, task) = match descriptor.kind() {
            kind::CALL_GATE_32 => (true, false),
            kind::CALL_GATE_16 if !long => (true, false),
            kind::TASK_GATE | kind::TSS_16 | kind::TSS_32 if !long => (false, true),
            _ => (false, false),
        };
        if !(gate || task) || descriptor.dpl() < privilege {
            return Err(gp(selector));
        }
        if !descriptor.is_present() {
            return Err(np(selector));
        }
        if gate {
            self.extend_descriptor(&mut descriptor, selector, gp)?;
            return self.transfer_through_gate(transfer, descriptor);
        }
        let target = match descriptor.kind() {
            kind::TASK_GATE => descriptor.gate_selector(),
            _ => selector,
        };
        self.switch_task(target, cause)
    }

    fn transfer_through_gate(&mut self, transfer: Transfer, gate: Descriptor) -> Result<(), Trap> {
        let selector = gate.gate_selector();
        let long = self.context.regs.long_mode();
        let wide = gate.kind() == kind::CALL_GATE_32;
        let offset = if wide { gate.gate_offset() } else { gate.gate_offset() & 0xffff };
        if is_null(selector) {
            return Err(gp0());
        }
        let mut code = self.descriptor_or(selector, gp)?;
        let cpl = self.context.regs.cpl;
        let size_bits = code.attributes() & (Attributes::LONG | Attributes::BIG);
        let wrong_size = long && size_bits != Attributes::LONG;
        let inward = !code.is_conforming() && code.dpl() < cpl;
        let forbidden = code.dpl() > cpl || inward && !transfer.call;
        if !code.is_code() || forbidden || wrong_size {
            return Err(gp(selector));
        }
        if !code.is_present() {
            return Err(np(selector));
        }
        self.check_entry(&code, offset)?;
        self.mark_accessed(&mut code)?;
        let size = if long {
            8
        } else if wide {
            4
        } else {
            2
        };
        if inward {
            return self.call_inner(&gate, &code, offset, size);
        }
        if transfer.call {
            self.push_return(size)?;
        }
        self.enter_code(&code, selector, offset, cpl);
        Ok(())
    }

    /// A call to more privilege, on the stack that the TSS has for it (SDM 3A 5.8.5).
    fn call_inner(
        &mut self,
        gate: &Descriptor,
        code: &Descriptor,
        offset: u64,
        size: usize,
    ) -> Result<(), Trap> {
        let old = self.context.regs;
        let cpl = code.dpl();
        let selector = gate.gate_selector();
        let old_stack = u64::from(old.segment(SegmentRegister::Ss).selector);
        let old_code = u64::from(old.segment(SegmentRegister::Cs).selector);
        let mut frame = vec![old_stack, old.gpr[4]];
        if size == 8 {
            let pointer = self.inner_stack64(cpl)?;
            self.enter_code(code, selector, offset, cpl);
            *self.context.regs.segment_mut(SegmentRegister::Ss) = flat(u16::from(cpl), 0x93);
            self.context.regs.gpr[4] = pointer;
        } else {
            let count = gate.low >> 32 & 31;
            frame.extend(self.gate_parameters(count as usize, size)?);
            let (stack, pointer) = self.inner_stack(cpl)?;
            self.enter_code(code, selector, offset, cpl);
            let segment = self.stack_segment(stack, cpl, ts, ts)?;
            *self.context.regs.segment_mut(SegmentRegister::Ss) = segment;
            self.set_stack_pointer(pointer);
        }
        frame.extend([old_code, old.rip]);
        self.push_frame(&frame, size)
    }

    /// The parameters on the caller's stack, deepest first.
    fn gate_parameters(&mut self, count: usize, size: usize) -> Result<Vec<u64>, Trap> {
        let width = self.stack_address_size();
        let mut parameters = Vec::with_capacity(count);
        for number in (0..count).rev() {
            let offset = truncate(self.stack_pointer() + (number * size) as u64, width);
            let at = self.segmented(SegmentRegister::Ss, offset, size as u32, Access::Read)?;
            parameters.push(self.read_sized(at, size, Privilege::Current)?);
        }
        Ok(parameters)
    }

    /// An offset and a selector from the stack; a fault is that of the selector, if it has one.
    fn pop_far_pointer(&mut self, size: usize) -> Result<(u64, u16), Trap> {
        let start = self.context.regs.gpr[4];
        self.adjust_stack(size as u64);
        let selector = self.pop(size)? as u16;
        let end = std::mem::replace(&mut self.context.regs.gpr[4], start);
        let offset = self.pop(size)?;
        self.context.regs.gpr[4] = end;
        Ok((offset, selector))
    }

    /// `retf`, `retf n`.
    pub(crate) fn return_far(&mut self, instruction: &Instruction) -> Result<(), Trap> {
        let released = match instruction.op_count() {
            0 => 0,
            _ => u64::from(instruction.immediate16()),
        };
        let size = match instruction.code() {
            Code::Retfw | Code::Retfw_imm16 => 2,
            Code::Retfd | Code::Retfd_imm16 => 4,
            _ => 8,
        };
        // The selector is read first, and the outer stack before the selector is looked at.
        let (offset, selector) = self.pop_far_pointer(size)?;
        if self.context.regs.real_or_v86() {
            let segment = self.paragraph(SegmentRegister::Cs, selector);
            *self.context.regs.segment_mut(SegmentRegister::Cs) = segment;
            self.adjust_stack(released);
            return self.jump_to(offset);
        }
        self.return_to(Destination { offset, selector, flags: None, size, released })
    }
}
