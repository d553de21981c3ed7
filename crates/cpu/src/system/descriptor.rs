//! Segment and system descriptors, and reading them from the descriptor tables (SDM 3A 3.4, 3.5).

use crate::architectural::Architectural;
use crate::exception::{Exception, Trap, Vector};
use crate::memory::{Linear, Privilege};
use crate::state::{Attributes, Segment, TableRegister};

/// Types of system descriptors (SDM 3A table 3-2).
pub(crate) mod kind {
    pub(crate) const TSS_16: u8 = 1;
    pub(crate) const LDT: u8 = 2;
    pub(crate) const BUSY_TSS_16: u8 = 3;
    pub(crate) const CALL_GATE_16: u8 = 4;
    pub(crate) const TASK_GATE: u8 = 5;
    pub(crate) const INTERRUPT_GATE_16: u8 = 6;
    pub(crate) const TRAP_GATE_16: u8 = 7;
    pub(crate) const TSS_32: u8 = 9;
    pub(crate) const BUSY_TSS_32: u8 = 11;
    pub(crate) const CALL_GATE_32: u8 = 12;
    pub(crate) const INTERRUPT_GATE_32: u8 = 14;
    pub(crate) const TRAP_GATE_32: u8 = 15;
}

/// The TI bit of a selector: the descriptor is in the LDT.
const LOCAL: u16 = 4;

/// Whether a selector names no descriptor.
pub(crate) fn is_null(selector: u16) -> bool {
    selector & !3 == 0
}

/// The requested privilege level.
pub(crate) fn rpl(selector: u16) -> u8 {
    (selector & 3) as u8
}

/// An exception whose error code is a selector (SDM 3A 6.13).
pub(crate) fn selector_fault(vector: Vector, selector: u16) -> Trap {
    Exception::with_error(vector, u32::from(selector & !3)).into()
}

/// #GP(selector).
pub(crate) fn gp(selector: u16) -> Trap {
    selector_fault(Vector::GeneralProtection, selector)
}

/// #NP(selector).
pub(crate) fn np(selector: u16) -> Trap {
    selector_fault(Vector::SegmentNotPresent, selector)
}

/// #TS(selector).
pub(crate) fn ts(selector: u16) -> Trap {
    selector_fault(Vector::InvalidTss, selector)
}

/// #SS(selector).
pub(crate) fn ss(selector: u16) -> Trap {
    selector_fault(Vector::StackFault, selector)
}

/// A descriptor as it lies in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Descriptor {
    /// The first eight bytes.
    pub(crate) low: u64,
    /// Bits 63:32 of the base or offset: the second half of a system descriptor in IA-32e mode.
    pub(crate) high: u32,
    /// Where it lies.
    at: Linear,
}

impl Descriptor {
    /// The attributes in the layout of [`Attributes`].
    pub(crate) fn attributes(&self) -> Attributes {
        Attributes::from_bits_retain((self.low >> 40) as u16 & 0xf0ff)
    }

    /// The base address of a segment.
    pub(crate) fn base(&self) -> u64 {
        self.low >> 16 & 0x00ff_ffff | self.low >> 32 & 0xff00_0000 | u64::from(self.high) << 32
    }

    /// The limit in bytes.
    pub(crate) fn limit(&self) -> u32 {
        let raw = (self.low & 0xffff | self.low >> 32 & 0x000f_0000) as u32;
        if self.attributes().contains(Attributes::GRANULAR) { raw << 12 | 0xfff } else { raw }
    }

    /// Descriptor privilege level.
    pub(crate) fn dpl(&self) -> u8 {
        (self.low >> 45 & 3) as u8
    }

    /// P.
    pub(crate) fn is_present(&self) -> bool {
        self.attributes().contains(Attributes::PRESENT)
    }

    /// Not code or data.
    pub(crate) fn is_system(&self) -> bool {
        !self.attributes().contains(Attributes::NOT_SYSTEM)
    }

    /// The type field.
    pub(crate) fn kind(&self) -> u8 {
        (self.low >> 40 & 0xf) as u8
    }

    /// A code segment.
    pub(crate) fn is_code(&self) -> bool {
        self.attributes().contains(Attributes::NOT_SYSTEM | Attributes::CODE)
    }

    /// A code segment that does not change the privilege level.
    pub(crate) fn is_conforming(&self) -> bool {
        self.is_code() && self.attributes().contains(Attributes::EXPAND_DOWN)
    }

    /// A data segment that may be written.
    pub(crate) fn is_writable_data(&self) -> bool {
        self.attributes() & (Attributes::NOT_SYSTEM | Attributes::CODE | Attributes::WRITABLE)
            == Attributes::NOT_SYSTEM | Attributes::WRITABLE
    }

    /// A data segment, or a code segment that may be read.
    pub(crate) fn is_readable(&self) -> bool {
        let attributes = self.attributes();
        attributes.contains(Attributes::NOT_SYSTEM)
            && (!attributes.contains(Attributes::CODE) || attributes.contains(Attributes::WRITABLE))
    }

    /// The selector in a gate.
    pub(crate) fn gate_selector(&self) -> u16 {
        (self.low >> 16) as u16
    }

    /// The offset in a gate.
    pub(crate) fn gate_offset(&self) -> u64 {
        self.low & 0xffff | self.low >> 32 & 0xffff_0000 | u64::from(self.high) << 32
    }

    /// The hidden part of a segment register for this descriptor.
    pub(crate) fn segment(&self, selector: u16) -> Segment {
        Segment { base: self.base(), limit: self.limit(), selector, attributes: self.attributes() }
    }
}

impl Architectural {
    /// The table a selector points into: base and limit.
    fn table_of(&self, selector: u16) -> (u64, u32) {
        let regs = &self.context.regs;
        if selector & LOCAL == 0 {
            return (regs.gdtr.base, u32::from(regs.gdtr.limit));
        }
        let ldtr = &regs.ldtr;
        if ldtr.attributes.contains(Attributes::UNUSABLE) {
            // No offset fits in a table whose limit is below any descriptor's end.
            return (0, 0);
        }
        (ldtr.base, ldtr.limit)
    }

    fn descriptor_at(&mut self, base: u64, offset: u32) -> Result<Descriptor, Trap> {
        let mut at = Linear(base.wrapping_add(u64::from(offset)));
        if !self.context.regs.long_mode() {
            at.0 &= 0xffff_ffff;
        }
        let low = self.read_u64(at, Privilege::Supervisor)?;
        Ok(Descriptor { low, high: 0, at })
    }

    /// The descriptor a selector names; `None` when it lies beyond the table's limit.
    ///
    /// # Errors
    ///
    /// A page fault on the table.
    pub(crate) fn read_descriptor(&mut self, selector: u16) -> Result<Option<Descriptor>, Trap> {
        if let Some(low) = self.own_descriptor(selector) {
            return Ok(Some(Descriptor { low, high: 0, at: Linear(0) }));
        }
        let (base, limit) = self.table_of(selector);
        let offset = u32::from(selector & !7);
        if limit < 7 || offset > limit - 7 {
            return Ok(None);
        }
        self.descriptor_at(base, offset).map(Some)
    }

    /// The same, or the given exception with the selector as its error code.
    pub(crate) fn descriptor_or(
        &mut self,
        selector: u16,
        fault: fn(u16) -> Trap,
    ) -> Result<Descriptor, Trap> {
        self.read_descriptor(selector)?.ok_or_else(|| fault(selector))
    }

    /// Read the second half of a system descriptor, which it has in IA-32e mode (SDM 3A 3.5.2).
    pub(crate) fn extend_descriptor(
        &mut self,
        descriptor: &mut Descriptor,
        selector: u16,
        fault: fn(u16) -> Trap,
    ) -> Result<(), Trap> {
        if !self.context.regs.long_mode() {
            return Ok(());
        }
        let (_, limit) = self.table_of(selector);
        if limit < 15 || u32::from(selector & !7) > limit - 15 {
            return Err(fault(selector));
        }
        let high = self.read_u64(Linear(descriptor.at.0.wrapping_add(8)), Privilege::Supervisor)?;
        // The type field of the second half must be zero (SDM 3A 5.8.3.1).
        if high >> 40 & 0x1f != 0 {
            return Err(fault(selector));
        }
        descriptor.high = high as u32;
        Ok(())
    }

    /// The gate for a vector in the IDT; `None` beyond its limit.
    pub(crate) fn read_gate(&mut self, vector: u8) -> Result<Option<Descriptor>, Trap> {
        let TableRegister { base, limit } = self.context.regs.idtr;
        let long = self.context.regs.long_mode();
        let size = if long { 16 } else { 8 };
        let offset = u32::from(vector) * size;
        if offset + size - 1 > u32::from(limit) {
            return Ok(None);
        }
        let mut gate = self.descriptor_at(base, offset)?;
        if long {
            let at = Linear(gate.at.0.wrapping_add(8));
            gate.high = self.read_u32(at, Privilege::Supervisor)?;
        }
        Ok(Some(gate))
    }

    /// Set the accessed bit of a code or data descriptor, in memory too if it is clear there.
    pub(crate) fn mark_accessed(&mut self, descriptor: &mut Descriptor) -> Result<(), Trap> {
        const ACCESSED: u64 = 1 << 40;
        if descriptor.low & ACCESSED == 0 {
            descriptor.low |= ACCESSED;
            self.write_type_byte(descriptor)?;
        }
        Ok(())
    }

    /// Set or clear the busy bit of a TSS descriptor.
    pub(crate) fn mark_busy(
        &mut self,
        descriptor: &mut Descriptor,
        busy: bool,
    ) -> Result<(), Trap> {
        const BUSY: u64 = 1 << 41;
        descriptor.low = descriptor.low & !BUSY | if busy { BUSY } else { 0 };
        self.write_type_byte(descriptor)
    }

    fn write_type_byte(&mut self, descriptor: &Descriptor) -> Result<(), Trap> {
        let at = Linear(descriptor.at.0.wrapping_add(5));
        self.write_u8(at, (descriptor.low >> 40) as u8, Privilege::Supervisor)
    }
}
