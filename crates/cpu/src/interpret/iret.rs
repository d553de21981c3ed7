//! `int n` and its relatives, `iret`, and what `iret` shares with far returns.

use iced_x86::{Code, Instruction, Mnemonic};

use super::operand::{gp0, merge, truncate};
use crate::architectural::Architectural;
use crate::exception::Trap;
use crate::memory::Linear;
use crate::state::{Attributes, SegmentRegister, rflags};
use crate::system::descriptor::{Descriptor, gp, is_null, np, rpl};
use crate::system::{Event, Source};

/// Where a return goes.
pub(super) struct Destination {
    pub(super) offset: u64,
    pub(super) selector: u16,
    /// RFLAGS as popped by `iret`.
    pub(super) flags: Option<u64>,
    /// Bytes per item on the stack.
    pub(super) size: usize,
    /// Bytes of parameters that `retf n` releases on both stacks.
    pub(super) released: u64,
}

impl Architectural {
    /// `int n`, `int3`, `into`, `int1` (SDM 2A "INT n").
    pub(crate) fn software_interrupt(&mut self, instruction: &Instruction) -> Result<(), Trap> {
        let flags = self.context.regs.rflags();
        let mut source = Source::Software;
        let vector = match instruction.mnemonic() {
            Mnemonic::Int => {
                if flags & rflags::VM != 0 && flags & rflags::IOPL != rflags::IOPL {
                    return Err(gp0());
                }
                instruction.immediate8()
            }
            Mnemonic::Int3 => 3,
            Mnemonic::Int1 => {
                source = Source::Other;
                self.report_deferred_hits();
                1
            }
            _ if flags & rflags::OF == 0 => return Ok(()),
            _ => 4,
        };
        self.try_deliver(Event { vector, error: None, source })
    }

    /// `iret`, `iretd`, `iretq` (SDM 2A "IRET").
    pub(crate) fn interrupt_return(&mut self, instruction: &Instruction) -> Result<(), Trap> {
        let size = match instruction.code() {
            Code::Iretw => 2,
            Code::Iretd => 4,
            _ => 8,
        };
        let flags = self.context.regs.rflags();
        self.context.regs.nmi_blocked = 0;
        if self.context.regs.real_or_v86() {
            if flags & rflags::VM != 0 && flags & rflags::IOPL != rflags::IOPL {
                return Err(gp0());
            }
            return self.return_to_paragraph(size);
        }
        if flags & rflags::NT != 0 {
            if self.context.regs.long_mode() {
                return Err(gp0());
            }
            return self.return_to_linked_task();
        }
        let offset = self.pop(size)?;
        let selector = self.pop(size)? as u16;
        let popped = self.pop(size)?;
        let to_v86 = popped & rflags::VM != 0 && size == 4 && self.context.regs.mode().is_kernel();
        if to_v86 && !self.context.regs.long_mode() {
            return self.return_to_v86(offset, selector, popped);
        }
        self.return_to(Destination { offset, selector, flags: Some(popped), size, released: 0 })
    }

    /// `iret` in real-address and virtual-8086 mode.
    fn return_to_paragraph(&mut self, size: usize) -> Result<(), Trap> {
        let offset = self.pop(size)?;
        let selector = self.pop(size)? as u16;
        let popped = self.pop(size)?;
        let segment = self.paragraph(SegmentRegister::Cs, selector);
        *self.context.regs.segment_mut(SegmentRegister::Cs) = segment;
        self.jump_to(offset)?;
        let mut changed = self.changeable_flags(size);
        if self.context.regs.protected() {
            changed &= !rflags::IOPL;
        }
        let old = self.context.regs.rflags();
        self.context.regs.set_rflags(old & !changed | popped & changed);
        Ok(())
    }

    /// From privilege level 0 into virtual-8086 mode (SDM 3B 21.2.5).
    fn return_to_v86(&mut self, offset: u64, selector: u16, flags: u64) -> Result<(), Trap> {
        use SegmentRegister::{Cs, Ds, Es, Fs, Gs, Ss};
        let pointer = self.pop(4)?;
        let mut selectors = [0; 5];
        for slot in &mut selectors {
            *slot = self.pop(4)? as u16;
        }
        let regs = &mut self.context.regs;
        regs.set_rflags(flags);
        regs.cpl = 3;
        let targets = [Ss, Es, Ds, Fs, Gs].into_iter().zip(selectors);
        for (which, selector) in targets.chain([(Cs, selector)]) {
            let segment = self.paragraph(which, selector);
            *self.context.regs.segment_mut(which) = segment;
        }
        self.context.regs.gpr[4] = truncate(pointer, 4);
        self.jump_to(offset & 0xffff)
    }

    /// The code segment of a return (SDM 2B "RET", "IRET").
    pub(crate) fn return_segment(&mut self, selector: u16) -> Result<Descriptor, Trap> {
        if is_null(selector) {
            return Err(gp0());
        }
        let mut descriptor = self.descriptor_or(selector, gp)?;
        let level = rpl(selector);
        let fits = if descriptor.is_conforming() {
            descriptor.dpl() <= level
        } else {
            descriptor.dpl() == level
        };
        let both = Attributes::LONG | Attributes::BIG;
        let impossible = self.context.regs.long_mode() && descriptor.attributes().contains(both);
        if level < self.context.regs.cpl || !descriptor.is_code() || !fits || impossible {
            return Err(gp(selector));
        }
        if !descriptor.is_present() {
            return Err(np(selector));
        }
        self.mark_accessed(&mut descriptor)?;
        Ok(descriptor)
    }

    /// Return to a code segment, to this or an outer privilege level. The stack pointer is behind
    /// the items popped so far.
    pub(super) fn return_to(&mut self, to: Destination) -> Result<(), Trap> {
        let regs = &self.context.regs;
        let (old_cpl, level) = (regs.cpl, rpl(to.selector));
        let from_64 = self.in_64_bit_mode();
        let outer = level > old_cpl;
        self.adjust_stack(to.released);
        let mut stack = None;
        if level != old_cpl || to.flags.is_some() && from_64 {
            let pointer = self.pop(to.size)?;
            stack = Some((pointer, self.pop(to.size)? as u16));
        }
        let descriptor = self.return_segment(to.selector)?;
        // Without VME, which is not announced, VIF and VIP are reserved.
        let changed = self.changeable_flags(to.size);
        let regs = &mut self.context.regs;
        *regs.segment_mut(SegmentRegister::Cs) = descriptor.segment(to.selector);
        regs.cpl = level;
        let rip = if self.in_64_bit_mode() { to.offset } else { truncate(to.offset, 4) };
        self.jump_to(rip)?;
        if let Some((pointer, selector)) = stack {
            self.return_stack(selector, pointer.wrapping_add(to.released), level)?;
        }
        if outer {
            self.drop_inner_segments(level);
        }
        if let Some(flags) = to.flags {
            let old = self.context.regs.rflags();
            self.context.regs.set_rflags(old & !changed | flags & changed);
        }
        Ok(())
    }

    fn return_stack(&mut self, selector: u16, pointer: u64, level: u8) -> Result<(), Trap> {
        let segment = self.stack_segment(selector, level, gp, gp)?;
        *self.context.regs.segment_mut(SegmentRegister::Ss) = segment;
        let width = self.stack_address_size();
        let slot = &mut self.context.regs.gpr[4];
        *slot = merge(*slot, pointer, width);
        Ok(())
    }

    /// Segment registers that the outer level may not use become null (SDM 3A 5.8.6), and a null
    /// selector loses its RPL, which user code on AMD's and Intel's processors can see. That is no
    /// load of a null selector: base and limit stay (SDM 2A "IRET", 2B "RET").
    fn drop_inner_segments(&mut self, level: u8) {
        use SegmentRegister::{Ds, Es, Fs, Gs};
        for which in [Es, Ds, Fs, Gs] {
            let segment = self.context.regs.segment_mut(which);
            let attributes = segment.attributes;
            let conforming = attributes.contains(Attributes::CODE | Attributes::EXPAND_DOWN);
            let usable = !attributes.contains(Attributes::UNUSABLE);
            if !usable {
                segment.selector = 0;
            } else if !conforming && segment.dpl() < level {
                segment.selector = 0;
                segment.attributes = Attributes::UNUSABLE;
            }
        }
    }

    /// Whether an offset may be entered in a code segment.
    pub(super) fn check_entry(&self, descriptor: &Descriptor, offset: u64) -> Result<(), Trap> {
        let long =
            self.context.regs.long_mode() && descriptor.attributes().contains(Attributes::LONG);
        let reachable = if long {
            Linear(offset).is_canonical()
        } else {
            offset <= u64::from(descriptor.limit())
        };
        if reachable { Ok(()) } else { Err(gp0()) }
    }
}
