//! Delivery of exceptions and interrupts through the IDT (SDM 3A 6.12, 6.14; 3B 20.1.4, 21.3).
//!
//! Delivery is all or nothing, like an instruction. When delivering an event raises an exception,
//! that exception is delivered in its place, or the two become a double fault, or the processor
//! shuts down (SDM 3A table 6-5).

use super::descriptor::{Descriptor, gp, is_null, kind, np, ss, ts};
use super::segment::{flat, null_segment};
use crate::architectural::Architectural;
use crate::exception::{Exception, Trap, Vector};
use crate::exit::Exit;
use crate::interpret::gp0;
use crate::memory::{Linear, Privilege};
use crate::state::{Attributes, Segment, SegmentRegister, cr4, rflags};

/// Bit 0 of a selector error code: the event was external to the program.
const EXTERNAL: u32 = 1;

/// Bit 1 of a selector error code: the index is into the IDT.
const IDT: u32 = 2;

/// Where an event comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// `int n`, `int3`, `into`: the gate's DPL is checked.
    Software,
    /// A fault: RIP is that of the instruction, RF is pushed as 1 (SDM 3B 18.3.1.1).
    Fault,
    /// A trap, an interrupt, an NMI or `int1`.
    Other,
}

/// Something to deliver.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Event {
    pub(crate) vector: u8,
    pub(crate) error: Option<u32>,
    pub(crate) source: Source,
}

/// How exceptions combine (SDM 3A table 6-4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Severity {
    Benign,
    Contributory,
    PageFault,
    DoubleFault,
}

fn severity(event: &Event) -> Severity {
    if event.source == Source::Software {
        return Severity::Benign;
    }
    match event.vector {
        0 | 10..=13 => Severity::Contributory,
        14 => Severity::PageFault,
        8 => Severity::DoubleFault,
        _ => Severity::Benign,
    }
}

/// What to deliver when delivering `first` raised `second`; `None` for shutdown.
fn combine(first: &Event, second: Event) -> Option<Event> {
    let serious = severity(&second) != Severity::Benign;
    match severity(first) {
        Severity::DoubleFault if serious => None,
        Severity::PageFault if serious => Some(DOUBLE_FAULT),
        Severity::Contributory if severity(&second) == Severity::Contributory => Some(DOUBLE_FAULT),
        _ => Some(second),
    }
}

const DOUBLE_FAULT: Event =
    Event { vector: Vector::DoubleFault as u8, error: Some(0), source: Source::Fault };

/// An exception about a gate in the IDT.
fn gate_fault(vector: Vector, number: u8) -> Trap {
    Exception::with_error(vector, (u32::from(number) * 8) | IDT).into()
}

/// A gate of interrupt or trap type, checked.
struct Gate {
    selector: u16,
    offset: u64,
    /// Bytes per item pushed.
    size: usize,
    /// Clears IF.
    interrupt: bool,
    /// Interrupt stack table index, IA-32e mode only.
    stack: u8,
}

/// What an IDT entry leads to.
enum Entry {
    Handler(Gate),
    /// A task, by the selector of its TSS.
    Task(u16),
}

impl Architectural {
    /// Deliver an exception that the instruction at RIP has raised.
    ///
    /// # Errors
    ///
    /// [`Exit::Shutdown`] on a triple fault.
    pub(crate) fn deliver_exception(&mut self, exception: Exception) -> Result<(), Trap> {
        let event = self.event_of(exception);
        self.deliver_event(event)
    }

    /// Deliver an external interrupt.
    ///
    /// # Errors
    ///
    /// As [`Self::deliver_exception`].
    pub(crate) fn deliver_interrupt(&mut self, vector: u8) -> Result<(), Trap> {
        self.deliver_event(Event { vector, error: None, source: Source::Other })
    }

    /// Deliver a non-maskable interrupt and block further ones until `iret`.
    ///
    /// # Errors
    ///
    /// As [`Self::deliver_exception`].
    pub(crate) fn deliver_nmi(&mut self) -> Result<(), Trap> {
        self.context.regs.nmi_blocked = 1;
        let vector = Vector::NonMaskable as u8;
        self.deliver_event(Event { vector, error: None, source: Source::Other })
    }

    /// Deliver an event and, if that fails, what comes of it.
    pub(super) fn deliver_event(&mut self, mut event: Event) -> Result<(), Trap> {
        loop {
            match self.try_deliver(event) {
                Err(Trap::Exception(second)) => {
                    let second = self.event_of(second);
                    event = combine(&event, second).ok_or(Trap::Exit(Exit::Shutdown))?;
                }
                done => return done,
            }
        }
    }

    /// The event for an exception, with CR2 and DR6 set (SDM 3A 6.15).
    fn event_of(&mut self, exception: Exception) -> Event {
        let mut source = Source::Fault;
        match exception.vector {
            // Unmasked SIMD exceptions need CR4.OSXMMEXCPT (SDM 3A 2.5).
            Vector::SimdFloatingPoint if self.context.regs.cr4 & cr4::OSXMMEXCPT == 0 => {
                return self.event_of(Exception::invalid_opcode());
            }
            Vector::PageFault => self.context.regs.cr2 = exception.payload,
            Vector::Debug => {
                self.record_debug_event(exception.payload);
                source = Source::Other;
            }
            _ => {}
        }
        Event { vector: exception.vector as u8, error: exception.error, source }
    }

    /// Deliver one event; nothing has changed when it fails.
    pub(crate) fn try_deliver(&mut self, event: Event) -> Result<(), Trap> {
        if self.paravirtual.is_some() {
            return self.bounce_trap(event);
        }
        let before = self.context.regs;
        let regs = &mut self.context.regs;
        regs.interrupt_shadow = 0;
        regs.debug_shadow = 0;
        let result = if !regs.protected() {
            self.deliver_real(event)
        } else if regs.long_mode() {
            self.deliver_long(event)
        } else {
            self.deliver_protected(event)
        };
        if let Err(trap) = result {
            self.context.regs = before;
            return Err(mark_external(trap, event));
        }
        Ok(())
    }

    /// RFLAGS as pushed for an event.
    fn flags_image(&self, event: Event) -> u64 {
        let flags = self.context.regs.rflags();
        match event.source {
            Source::Fault => flags | rflags::RF,
            _ => flags,
        }
    }

    /// Real-address mode: the interrupt vector table (SDM 3B 20.1.4).
    fn deliver_real(&mut self, event: Event) -> Result<(), Trap> {
        let table = self.context.regs.idtr;
        let offset = u64::from(event.vector) * 4;
        if offset + 3 > u64::from(table.limit) {
            return Err(gate_fault(Vector::GeneralProtection, event.vector));
        }
        let at = Linear(table.base.wrapping_add(offset) & 0xffff_ffff);
        let pointer = self.read_u32(at, Privilege::Supervisor)?;
        let regs = &self.context.regs;
        let code = u64::from(regs.segment(SegmentRegister::Cs).selector);
        let frame = [regs.rflags(), code, regs.rip];
        self.push_frame(&frame, 2)?;
        let segment = self.paragraph(SegmentRegister::Cs, (pointer >> 16) as u16);
        let regs = &mut self.context.regs;
        *regs.segment_mut(SegmentRegister::Cs) = segment;
        regs.rip = u64::from(pointer & 0xffff);
        let cleared = rflags::IF | rflags::TF | rflags::AC | rflags::RF;
        regs.set_rflags(regs.rflags() & !cleared);
        Ok(())
    }

    /// Look up and check the gate for an event.
    fn checked_gate(&mut self, event: Event) -> Result<Entry, Trap> {
        let fault = |vector| gate_fault(vector, event.vector);
        let long = self.context.regs.long_mode();
        let gate = self.read_gate(event.vector)?.ok_or(fault(Vector::GeneralProtection))?;
        let wide = matches!(gate.kind(), kind::INTERRUPT_GATE_32 | kind::TRAP_GATE_32);
        let narrow = matches!(gate.kind(), kind::INTERRUPT_GATE_16 | kind::TRAP_GATE_16);
        let task = gate.kind() == kind::TASK_GATE;
        if !gate.is_system() || !(wide || !long && (narrow || task)) {
            return Err(fault(Vector::GeneralProtection));
        }
        if event.source == Source::Software && gate.dpl() < self.context.regs.cpl {
            return Err(fault(Vector::GeneralProtection));
        }
        if !gate.is_present() {
            return Err(fault(Vector::SegmentNotPresent));
        }
        if task {
            return Ok(Entry::Task(gate.gate_selector()));
        }
        let offset = gate.gate_offset();
        Ok(Entry::Handler(Gate {
            selector: gate.gate_selector(),
            offset: if narrow { offset & 0xffff } else { offset },
            size: if long {
                8
            } else if wide {
                4
            } else {
                2
            },
            interrupt: gate.kind() & 1 == 0,
            stack: if long { (gate.low >> 32 & 7) as u8 } else { 0 },
        }))
    }

    /// The handler's code segment.
    fn handler_segment(&mut self, gate: &Gate) -> Result<Descriptor, Trap> {
        let selector = gate.selector;
        if is_null(selector) {
            return Err(gp0());
        }
        let mut descriptor = self.descriptor_or(selector, gp)?;
        let regs = &self.context.regs;
        let size_bits = descriptor.attributes() & (Attributes::LONG | Attributes::BIG);
        let wrong_size = regs.long_mode() && size_bits != Attributes::LONG;
        if !descriptor.is_code() || descriptor.dpl() > regs.cpl || wrong_size {
            return Err(gp(selector));
        }
        if !descriptor.is_present() {
            return Err(np(selector));
        }
        self.mark_accessed(&mut descriptor)?;
        Ok(descriptor)
    }

    /// Go to the handler's code segment at privilege level `cpl`.
    fn enter_handler(&mut self, gate: &Gate, descriptor: &Descriptor, cpl: u8) {
        let regs = &mut self.context.regs;
        let selector = gate.selector & !3 | u16::from(cpl);
        *regs.segment_mut(SegmentRegister::Cs) = descriptor.segment(selector);
        regs.cpl = cpl;
        regs.rip = gate.offset;
        let mut cleared = rflags::TF | rflags::NT | rflags::RF | rflags::VM;
        if gate.interrupt {
            cleared |= rflags::IF;
        }
        regs.set_rflags(regs.rflags() & !cleared);
    }

    /// IA-32e mode (SDM 3A 6.14).
    fn deliver_long(&mut self, event: Event) -> Result<(), Trap> {
        let Entry::Handler(gate) = self.checked_gate(event)? else { return Err(gp0()) };
        let descriptor = self.handler_segment(&gate)?;
        let old = self.context.regs;
        let inner = !descriptor.is_conforming() && descriptor.dpl() < old.cpl;
        let cpl = if inner { descriptor.dpl() } else { old.cpl };
        let stack = if gate.stack != 0 {
            self.task_field64(0x24 + 8 * (u32::from(gate.stack) - 1))?
        } else if inner {
            self.task_field64(4 + 8 * u32::from(cpl))?
        } else {
            old.gpr[4]
        };
        let flags = self.flags_image(event);
        if !Linear(gate.offset).is_canonical() {
            return Err(gp0());
        }
        self.enter_handler(&gate, &descriptor, cpl);
        let regs = &mut self.context.regs;
        if inner {
            *regs.segment_mut(SegmentRegister::Ss) = flat(u16::from(cpl), 0x93);
        }
        regs.gpr[4] = stack & !15;
        let old_ss = u64::from(old.segment(SegmentRegister::Ss).selector);
        let old_cs = u64::from(old.segment(SegmentRegister::Cs).selector);
        let error = u64::from(event.error.unwrap_or(0));
        let frame = [old_ss, old.gpr[4], flags, old_cs, old.rip, error];
        let length = if event.error.is_some() { 6 } else { 5 };
        self.push_frame(&frame[..length], 8)
    }

    /// A stack pointer in the 64-bit TSS, which must be canonical (SDM 2A "INT n", "CALL").
    fn task_field64(&mut self, offset: u32) -> Result<u64, Trap> {
        let tr = self.context.regs.tr;
        if offset + 7 > tr.limit {
            return Err(ts(tr.selector));
        }
        let at = Linear(tr.base.wrapping_add(u64::from(offset)));
        let pointer = self.read_u64(at, Privilege::Supervisor)?;
        if !Linear(pointer).is_canonical() {
            return Err(ss(0));
        }
        Ok(pointer)
    }

    /// The stack for a privilege level, from the TSS of legacy modes (SDM 3A 7.2.1).
    pub(crate) fn inner_stack(&mut self, cpl: u8) -> Result<(u16, u64), Trap> {
        let tr = self.context.regs.tr;
        let wide = tr.attributes.bits() & 8 != 0;
        let item = if wide { 4 } else { 2 };
        let offset = item + 2 * item * u32::from(cpl);
        if offset + 2 * item - 1 > tr.limit {
            return Err(ts(tr.selector));
        }
        let at = Linear(tr.base.wrapping_add(u64::from(offset)));
        let mut bytes = [0; 8];
        self.read_linear(at, &mut bytes[..2 * item as usize], Privilege::Supervisor)?;
        let word = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        if wide {
            let pointer = u64::from(word(0)) | u64::from(word(2)) << 16;
            return Ok((word(4), pointer));
        }
        Ok((word(2), u64::from(word(0))))
    }

    /// The 64-bit stack pointer for a privilege level.
    pub(crate) fn inner_stack64(&mut self, cpl: u8) -> Result<u64, Trap> {
        self.task_field64(4 + 8 * u32::from(cpl))
    }

    /// Protected mode and virtual-8086 mode (SDM 3A 6.12, 3B 21.3).
    fn deliver_protected(&mut self, event: Event) -> Result<(), Trap> {
        let gate = match self.checked_gate(event)? {
            Entry::Handler(gate) => gate,
            Entry::Task(selector) => return self.deliver_through_task(selector, event),
        };
        let descriptor = self.handler_segment(&gate)?;
        let regs = &self.context.regs;
        let from_v86 = regs.rflags() & rflags::VM != 0;
        let inner = !descriptor.is_conforming() && descriptor.dpl() < regs.cpl;
        if from_v86 && (!inner || descriptor.dpl() != 0) {
            return Err(gp(gate.selector));
        }
        if gate.offset > u64::from(descriptor.limit()) {
            return Err(gp0());
        }
        if inner {
            return self.deliver_to_inner(event, &gate, &descriptor);
        }
        let flags = self.flags_image(event);
        let regs = &self.context.regs;
        let (cpl, rip) = (regs.cpl, regs.rip);
        let code = u64::from(regs.segment(SegmentRegister::Cs).selector);
        let error = u64::from(event.error.unwrap_or(0));
        let frame = [flags, code, rip, error];
        let length = if event.error.is_some() { 4 } else { 3 };
        self.enter_handler(&gate, &descriptor, cpl);
        self.push_frame(&frame[..length], gate.size)
    }

    /// To a handler with more privilege, on its own stack.
    fn deliver_to_inner(
        &mut self,
        event: Event,
        gate: &Gate,
        descriptor: &Descriptor,
    ) -> Result<(), Trap> {
        let old = self.context.regs;
        let flags = self.flags_image(event);
        let from_v86 = flags & rflags::VM != 0;
        let cpl = descriptor.dpl();
        let (selector, pointer) = self.inner_stack(cpl)?;
        self.enter_handler(gate, descriptor, cpl);
        let stack = self.stack_segment(selector, cpl, ts, ts)?;
        let regs = &mut self.context.regs;
        *regs.segment_mut(SegmentRegister::Ss) = stack;
        let selector_of = |which| u64::from(old.segment(which).selector);
        let mut frame = Vec::with_capacity(10);
        if from_v86 {
            use SegmentRegister::{Ds, Es, Fs, Gs};
            for which in [Gs, Fs, Ds, Es] {
                frame.push(selector_of(which));
                *regs.segment_mut(which) = null_segment(0);
            }
        }
        let (code, rip) = (selector_of(SegmentRegister::Cs), old.rip);
        frame.extend([selector_of(SegmentRegister::Ss), old.gpr[4], flags, code, rip]);
        frame.extend(event.error.map(u64::from));
        self.set_stack_pointer(pointer);
        self.push_frame(&frame, gate.size).map_err(|trap| on_stack(trap, &stack))
    }

    /// Push an error code onto the stack of the task that handles an event.
    fn deliver_through_task(&mut self, selector: u16, event: Event) -> Result<(), Trap> {
        let flags = self.flags_image(event);
        self.context.regs.set_rflags(flags);
        self.switch_task(selector, super::task::Cause::Event)?;
        if let Some(error) = event.error {
            let wide = self.context.regs.tr.attributes.bits() & 8 != 0;
            self.push(u64::from(error), if wide { 4 } else { 2 })?;
        }
        Ok(())
    }
}

/// A fault on a new stack has its selector as error code.
fn on_stack(trap: Trap, stack: &Segment) -> Trap {
    match trap {
        Trap::Exception(exception) if exception.vector == Vector::StackFault => ss(stack.selector),
        other => other,
    }
}

/// Selector error codes say whether the event was the program's own doing (SDM 3A 6.13).
fn mark_external(trap: Trap, event: Event) -> Trap {
    let Trap::Exception(mut exception) = trap else { return trap };
    let about_selector = matches!(
        exception.vector,
        Vector::InvalidTss
            | Vector::SegmentNotPresent
            | Vector::StackFault
            | Vector::GeneralProtection
    );
    if about_selector && event.source != Source::Software {
        exception.error = exception.error.map(|error| error | EXTERNAL);
    }
    Trap::Exception(exception)
}
