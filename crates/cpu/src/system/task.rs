//! Hardware task switches (SDM 3A chapter 7). Long mode has none.

use super::descriptor::{Descriptor, gp, is_null, kind, np, rpl, ss, ts};
use super::segment::null_segment;
use crate::architectural::Architectural;
use crate::exception::{Exception, Trap, Vector};
use crate::interpret::merge;
use crate::memory::{Access, Linear, Privilege};
use crate::state::{Segment, SegmentRegister, cr0, rflags};

/// Why a task is switched to: what becomes of busy bits, NT and the back link (SDM 3A table 7-2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    Jump,
    Call,
    Return,
    /// An exception or interrupt, through a task gate.
    Event,
}

impl Cause {
    fn nests(self) -> bool {
        matches!(self, Cause::Call | Cause::Event)
    }
}

/// Segment selectors in a TSS, in its order.
const SELECTORS: [SegmentRegister; 6] = [
    SegmentRegister::Es,
    SegmentRegister::Cs,
    SegmentRegister::Ss,
    SegmentRegister::Ds,
    SegmentRegister::Fs,
    SegmentRegister::Gs,
];

/// Where things are in a TSS (SDM 3A 7.2.1, 7.6).
struct Layout {
    wide: bool,
    /// Bytes per register.
    item: usize,
    /// Offset of the instruction pointer, which the flags and the eight registers follow.
    start: usize,
    /// Offset of the selectors, and their number; LDT selector.
    selectors: usize,
    count: usize,
    ldt: usize,
    /// Least limit.
    limit: u32,
}

const LAYOUT_16: Layout =
    Layout { wide: false, item: 2, start: 14, selectors: 34, count: 4, ldt: 42, limit: 43 };
const LAYOUT_32: Layout =
    Layout { wide: true, item: 4, start: 32, selectors: 72, count: 6, ldt: 96, limit: 103 };

fn layout(kind: u8) -> &'static Layout {
    if kind & 8 != 0 { &LAYOUT_32 } else { &LAYOUT_16 }
}

/// A TSS as read.
struct Image([u8; 104]);

impl Image {
    fn word(&self, at: usize) -> u16 {
        u16::from_le_bytes([self.0[at], self.0[at + 1]])
    }

    fn item(&self, at: usize, size: usize) -> u64 {
        let low = u64::from(self.word(at));
        if size == 2 { low } else { low | u64::from(self.word(at + 2)) << 16 }
    }
}

impl Architectural {
    /// `iret` with NT set: back to the task that this one interrupted.
    pub(crate) fn return_to_linked_task(&mut self) -> Result<(), Trap> {
        let at = Linear(self.context.regs.tr.base);
        let link = self.read_u16(at, Privilege::Supervisor)?;
        self.switch_task(link, Cause::Return)
    }

    /// Switch to the task of a TSS. RIP is what the old task will go on with.
    ///
    /// # Errors
    ///
    /// #TS, #NP or #GP about the TSS, before anything has changed. What is wrong with the new
    /// task's own segments is reported to that task.
    pub(crate) fn switch_task(&mut self, selector: u16, cause: Cause) -> Result<(), Trap> {
        let mut new = self.task_descriptor(selector, cause)?;
        let new_layout = layout(new.kind());
        let base = Linear(new.base());
        let mut image = Image([0; 104]);
        let length = new_layout.limit as usize + 1;
        self.read_linear(base, &mut image.0[..length], Privilege::Supervisor)?;
        self.probe_linear(base, length, Access::Write, Privilege::Supervisor)?;
        let old = self.context.regs.tr;
        self.leave_task(cause)?;
        if cause.nests() {
            self.write_u16(base, old.selector, Privilege::Supervisor)?;
        }
        if cause != Cause::Return {
            self.mark_busy(&mut new, true)?;
        }
        self.context.regs.tr = new.segment(selector);
        self.context.regs.cr0 |= cr0::TS;
        let trap = new_layout.wide && image.0[100] & 1 != 0;
        self.enter_task(&image, new_layout, cause)?;
        if trap {
            self.note_task_trap();
        }
        Ok(())
    }

    /// The descriptor of the TSS to switch to.
    fn task_descriptor(&mut self, selector: u16, cause: Cause) -> Result<Descriptor, Trap> {
        let returning = cause == Cause::Return;
        let fault = if returning { ts } else { gp };
        if is_null(selector) || self.context.regs.long_mode() {
            return Err(fault(selector));
        }
        let descriptor = self.global_descriptor(selector, fault)?;
        let wanted: [u8; 2] = if returning {
            [kind::BUSY_TSS_16, kind::BUSY_TSS_32]
        } else {
            [kind::TSS_16, kind::TSS_32]
        };
        if !descriptor.is_system() || !wanted.contains(&descriptor.kind()) {
            return Err(fault(selector));
        }
        if !descriptor.is_present() {
            return Err(np(selector));
        }
        if descriptor.limit() < layout(descriptor.kind()).limit {
            return Err(ts(selector));
        }
        Ok(descriptor)
    }

    /// Save the state of the current task in its TSS, and mark it as no longer busy unless the new
    /// task will return to it.
    fn leave_task(&mut self, cause: Cause) -> Result<(), Trap> {
        let regs = self.context.regs;
        let tr = regs.tr;
        let layout = layout((tr.attributes.bits() & 0xf) as u8);
        if tr.limit < layout.limit {
            return Err(ts(tr.selector));
        }
        let mut flags = regs.rflags();
        if cause == Cause::Return {
            flags &= !rflags::NT;
        }
        let mut bytes = Vec::with_capacity(72);
        let values = [regs.rip, flags].into_iter().chain(regs.gpr[..8].iter().copied());
        for value in values {
            bytes.extend_from_slice(&value.to_le_bytes()[..layout.item]);
        }
        for which in SELECTORS.into_iter().take(layout.count) {
            let selector = u64::from(regs.segment(which).selector);
            bytes.extend_from_slice(&selector.to_le_bytes()[..layout.item]);
        }
        let at = Linear(tr.base.wrapping_add(layout.start as u64));
        self.write_linear(at, &bytes, Privilege::Supervisor)?;
        if !cause.nests() {
            let mut descriptor = self.global_descriptor(tr.selector, ts)?;
            self.mark_busy(&mut descriptor, false)?;
        }
        Ok(())
    }

    /// Load the state of a task. From here on the new task is current: its faults are its own, and
    /// are delivered in it.
    fn enter_task(&mut self, image: &Image, layout: &Layout, cause: Cause) -> Result<(), Trap> {
        if layout.wide && self.context.regs.cr0 & cr0::PG != 0 {
            self.set_cr3(image.item(28, 4))?;
        }
        let item = |index: usize| image.item(layout.start + index * layout.item, layout.item);
        let regs = &mut self.context.regs;
        regs.rip = item(0);
        let nested = if cause.nests() { rflags::NT } else { 0 };
        let kept = if layout.wide { 0 } else { regs.rflags() & !0xffff & !rflags::VM };
        regs.set_rflags(item(1) | nested | kept);
        for number in 0..8 {
            let slot = &mut regs.gpr[number];
            *slot = merge(*slot, item(2 + number), layout.item);
        }
        regs.dr[7] &= !0x155;
        let mut selectors = [0; 6];
        for (slot, index) in selectors.iter_mut().zip(0..layout.count) {
            *slot = image.word(layout.selectors + index * layout.item);
        }
        self.load_task_segments(image.word(layout.ldt), selectors).or_else(|trap| {
            let Trap::Exception(exception) = trap else { return Err(trap) };
            self.deliver_exception(exception)
        })
    }

    fn load_task_segments(&mut self, ldt: u16, selectors: [u16; 6]) -> Result<(), Trap> {
        for (which, selector) in SELECTORS.into_iter().zip(selectors) {
            *self.context.regs.segment_mut(which) = null_segment(selector);
        }
        self.context.regs.ldtr = null_segment(ldt);
        self.context.regs.ldtr = self.local_table(ldt, ts)?;
        let [es, cs, stack, ds, fs, gs] = selectors;
        use SegmentRegister::{Cs, Ds, Es, Fs, Gs, Ss};
        if self.context.regs.rflags() & rflags::VM != 0 {
            self.context.regs.cpl = 3;
            for (which, selector) in SELECTORS.into_iter().zip(selectors) {
                let segment = self.paragraph(which, selector);
                *self.context.regs.segment_mut(which) = segment;
            }
            return Ok(());
        }
        self.context.regs.cpl = rpl(cs);
        *self.context.regs.segment_mut(Cs) = self.task_code(cs)?;
        let segment = self.stack_segment(stack, rpl(cs), ts, ts)?;
        *self.context.regs.segment_mut(Ss) = segment;
        for (which, selector) in [(Es, es), (Ds, ds), (Fs, fs), (Gs, gs)] {
            self.load_segment(which, selector).map_err(as_task_fault)?;
        }
        if self.context.regs.rip > u64::from(self.context.regs.segment(Cs).limit) {
            return Err(Exception::general_protection(0).into());
        }
        Ok(())
    }

    fn task_code(&mut self, selector: u16) -> Result<Segment, Trap> {
        if is_null(selector) {
            return Err(ts(selector));
        }
        let mut descriptor = self.descriptor_or(selector, ts)?;
        let fits = if descriptor.is_conforming() {
            descriptor.dpl() <= rpl(selector)
        } else {
            descriptor.dpl() == rpl(selector)
        };
        if !descriptor.is_code() || !fits {
            return Err(ts(selector));
        }
        if !descriptor.is_present() {
            return Err(np(selector));
        }
        self.mark_accessed(&mut descriptor)?;
        Ok(descriptor.segment(selector))
    }
}

/// What would be #GP when loading a segment is #TS during a task switch (SDM 3A table 7-1).
fn as_task_fault(trap: Trap) -> Trap {
    match trap {
        Trap::Exception(exception) if exception.vector == Vector::GeneralProtection => {
            ts(exception.error.unwrap_or(0) as u16)
        }
        Trap::Exception(exception) if exception.vector == Vector::StackFault => {
            ss(exception.error.unwrap_or(0) as u16)
        }
        other => other,
    }
}
