//! How a paravirtual kernel is entered: for exceptions, `int`, system calls and events.
//!
//! The frame is that of a 64-bit interrupt, with three differences: RCX and R11 are pushed below it, since
//! `syscall` by the kernel loses them; the slot of CS has the mask of events in its bits 32 to 39; and CS has RPL 0
//! if the kernel was interrupted, which is how it knows. IF in the frame is the opposite of the mask.

use std::sync::atomic::{AtomicU8, Ordering};

use crate::architectural::Architectural;
use crate::exception::{Exception, Trap, Vector};
use crate::exit::Exit;
use crate::memory::access::store;
use crate::memory::paging::load;
use crate::memory::{Linear, Physical, Privilege};
use crate::state::{SegmentRegister, rflags};
use crate::system::{Event, Source};

use super::Gate;
use super::gateway::{FRAME_BYTES, Gateway, info};
use super::segments::{flat_code, flat_data};
use xen_abi::callback::kind;
use xen_abi::segment::selector;

/// The kernel sees its IOPL in the flags of a frame (`vm_assist`).
const ARCHITECTURAL_IOPL: u64 = 1 << xen_abi::hypercall::assist::ARCHITECTURAL_IOPL;

/// The descriptors of 64-bit code and of data that users' selectors name as a rule, and where they are in the GDT:
/// flat, and accessed.
const USER_DESCRIPTORS: [(u64, u64); 2] =
    [(0x28, 0x00cf_f300_0000_ffff), (0x30, 0x00af_fb00_0000_ffff)];

/// Bit of a page fault's error code: from user mode.
const FROM_USER: u32 = 1 << 2;

/// Bytes of the largest frame: SS, RSP, RFLAGS, CS, RIP, an error code, R11, RCX.
const MAX_FRAME_BYTES: usize = 8 * 8;

/// What is pushed beside the registers.
struct Entry {
    gate: Gate,
    error: Option<u32>,
    /// RFLAGS as interrupted.
    flags: u64,
    /// Flags that are clear in the kernel.
    cleared: u64,
}

const CLEARED: u64 = rflags::TF | rflags::NT | rflags::RF | rflags::VM | rflags::AC;

impl Architectural {
    /// A byte of the vCPU's `vcpu_info`, as it is now; 0 if it has none.
    fn info_byte(&self, offset: u64) -> u8 {
        let Some(at) = self.paravirtual.as_ref().and_then(|state| state.info) else { return 0 };
        let Some(host) = self.ram.host(at.plus(offset)) else { return 0 };
        // SAFETY: RAM; a `vcpu_info` does not leave its page. The guest may change the byte at any time, hence the
        // atomic access.
        unsafe { (*host.cast::<AtomicU8>()).load(Ordering::SeqCst) }
    }

    fn set_info_bytes(&mut self, offset: u64, bytes: &[u8]) {
        let Some(at) = self.paravirtual.as_ref().and_then(|state| state.info) else { return };
        let at = Physical(at.0 + offset);
        if let Some(host) = self.ram.host(at) {
            self.write_beside_code(at, bytes.len(), || store(host, bytes));
        }
    }

    /// Whether events are masked.
    pub(super) fn masks_events(&self) -> bool {
        self.info_byte(info::MASK) != 0
    }

    /// Mask events, or do not.
    pub(super) fn mask_events(&mut self, is_masked: bool) {
        self.set_info_bytes(info::MASK, &[u8::from(is_masked)]);
    }

    /// The address of the last page fault.
    pub(super) fn fault_address(&self) -> u64 {
        let bytes = [0, 1, 2, 3, 4, 5, 6, 7].map(|byte| self.info_byte(info::CR2 + byte));
        u64::from_le_bytes(bytes)
    }

    pub(super) fn set_fault_address(&mut self, address: u64) {
        self.set_info_bytes(info::CR2, &address.to_le_bytes());
    }

    /// Whether an event is to be delivered before the next instruction.
    #[inline]
    pub(crate) fn has_event(&self) -> bool {
        self.paravirtual.is_some()
            && self.info_byte(info::PENDING) != 0
            && self.info_byte(info::MASK) == 0
    }

    /// Deliver it.
    ///
    /// # Errors
    ///
    /// [`Exit::Shutdown`] if that is impossible.
    pub(crate) fn deliver_upcall(&mut self) -> Result<(), Trap> {
        let flags = self.context.regs.rflags();
        let gate = Gate { masks_events: true, ..self.callback(kind::EVENT) };
        self.enter_kernel(&Entry { gate, error: None, flags, cleared: CLEARED })
    }

    pub(super) fn callback(&self, kind: u16) -> Gate {
        let callbacks = self.paravirtual.as_ref().map(|state| state.callbacks);
        callbacks
            .and_then(|callbacks| callbacks.get(usize::from(kind)).copied())
            .unwrap_or_default()
    }

    /// Deliver a trap by the kernel's table.
    ///
    /// # Errors
    ///
    /// #GP for an `int` that is not allowed, [`Exit::Shutdown`] if the kernel has no handler, or no stack.
    pub(crate) fn bounce_trap(&mut self, event: Event) -> Result<(), Trap> {
        let is_user = self.context.regs.cpl != 0;
        let Some(state) = &self.paravirtual else { return Ok(()) };
        let mut gate = state.traps[usize::from(event.vector)];
        if event.source == Source::Software {
            // The kernel counts as ring 1.
            let privilege = if is_user { 3 } else { 1 };
            if gate.privilege < privilege {
                return Err(Exception::general_protection(u32::from(event.vector) * 8 + 2).into());
            }
        }
        if event.vector == Vector::NonMaskable as u8 {
            gate = Gate { masks_events: true, ..self.callback(kind::NMI) };
            if gate.address == 0 {
                // A kernel that takes none does not hear of it.
                self.context.regs.nmi_blocked = 0;
                return Ok(());
            }
        }
        let mut error = event.error;
        if event.vector == Vector::PageFault as u8 {
            let user = if is_user { FROM_USER } else { 0 };
            error = error.map(|error| error & !FROM_USER | user);
            self.set_fault_address(self.context.regs.cr2);
        }
        let regs = &mut self.context.regs;
        (regs.interrupt_shadow, regs.debug_shadow) = (0, 0);
        let resume = if event.source == Source::Fault { rflags::RF } else { 0 };
        let flags = self.context.regs.rflags() | resume;
        self.enter_kernel(&Entry { gate, error, flags, cleared: CLEARED })
    }

    /// A user's `syscall` of this kind; RIP is behind the instruction.
    ///
    /// # Errors
    ///
    /// #UD if the kernel takes none, else as [`Self::bounce_trap`].
    pub(super) fn bounce_system_call(&mut self, kind: u16) -> Result<(), Trap> {
        let gate = self.callback(kind);
        if gate.address == 0 {
            return Err(Exception::invalid_opcode().into());
        }
        let regs = &mut self.context.regs;
        let flags = regs.rflags() & !rflags::RF;
        // `sysenter` leaves them alone: RCX is an argument.
        if kind != kind::SYSENTER {
            (regs.gpr[1], regs.gpr[11]) = (regs.rip, flags);
        }
        *regs.segment_mut(SegmentRegister::Cs) = flat_code(selector::CODE64);
        *regs.segment_mut(SegmentRegister::Ss) = flat_data(selector::STACK64);
        self.enter_kernel(&Entry { gate, error: None, flags, cleared: CLEARED | rflags::DF })
    }

    /// Tell translated code how the kernel is entered and left.
    pub(crate) fn open_gateway(&mut self) {
        let nowhere = std::ptr::from_ref(&self.context.gateway.nowhere) as u64;
        let Some(state) = &self.paravirtual else { return };
        let place = state.info.and_then(|at| Some((at, self.ram.host(at)?)));
        let obstacle = place.is_none_or(|(at, _)| self.ram.has_code(at));
        let call = state.callbacks[usize::from(kind::SYSCALL)];
        let cannot_call = call.address == 0 || !Linear(call.address).is_canonical();
        let table = state.gdt[0];
        let is_usual = |(offset, wanted): (u64, u64)| load(&self.ram, table + offset, 8) == wanted;
        self.context.gateway = Gateway {
            info: place.map_or(nowhere, |(_, host)| host as u64),
            frame: (state.kernel_stack.1 & !15).wrapping_sub(FRAME_BYTES),
            system_call: call.address,
            kernel_root: state.kernel_root,
            user_root: state.user_root,
            kept_flags: !(CLEARED | rflags::DF) & rflags::DEFINED | rflags::FIXED,
            system_call_masks: u8::from(call.masks_events),
            call_obstacle: u8::from(obstacle || cannot_call || self.shows_iopl()),
            user_obstacle: u8::from(state.user_root == 0),
            selector_obstacle: u8::from(table == 0 || !USER_DESCRIPTORS.into_iter().all(is_usual)),
            ..self.context.gateway
        };
        self.context.return_obstacle = u8::from(obstacle || self.context.regs.nmi_blocked != 0);
    }

    /// Whether frames have an IOPL.
    fn shows_iopl(&self) -> bool {
        self.paravirtual.as_ref().is_some_and(|state| state.assists & ARCHITECTURAL_IOPL != 0)
    }

    /// Push the frame, and go to the handler.
    fn enter_kernel(&mut self, entry: &Entry) -> Result<(), Trap> {
        let old = self.context.regs;
        let is_user = old.cpl != 0;
        let Some(state) = &self.paravirtual else { return Ok(()) };
        if entry.gate.address == 0 {
            return Err(self.end_domain("a trap came for which the kernel has no handler"));
        }
        let stack = if is_user { state.kernel_stack.1 } else { old.gpr[4] };
        let selector_of = |which| u64::from(old.segment(which).selector);
        let code = selector_of(SegmentRegister::Cs) & !if is_user { 0 } else { 3 };
        let stack_selector = selector_of(SegmentRegister::Ss);
        let flags = self.flags_of_frame(entry.flags);
        let code = code | self.mask_of_frame();
        let error = u64::from(entry.error.unwrap_or_default());
        let frame = [stack_selector, old.gpr[4], flags, code, old.rip, error];
        let frame = &frame[..if entry.error.is_some() { 6 } else { 5 }];
        if is_user {
            self.toggle();
        }
        if let Err(trap) = self.push_and_enter(stack, frame, entry.gate) {
            self.context.regs = old;
            return Err(trap);
        }
        let regs = &mut self.context.regs;
        regs.set_rflags(regs.rflags() & !entry.cleared | rflags::IF);
        Ok(())
    }

    /// RFLAGS as a frame has them: IF says whether events were masked.
    pub(super) fn flags_of_frame(&self, flags: u64) -> u64 {
        let iopl = match &self.paravirtual {
            Some(state) if state.assists & ARCHITECTURAL_IOPL != 0 => {
                u64::from(state.io_privilege) << 12
            }
            _ => 0,
        };
        let interrupts = if self.masks_events() { 0 } else { rflags::IF };
        flags & !(rflags::IF | rflags::IOPL) | interrupts | iopl
    }

    /// The mask of events, as the slot of CS has it.
    pub(super) fn mask_of_frame(&self) -> u64 {
        u64::from(self.info_byte(info::MASK)) << 32
    }

    /// Push a frame onto a stack of the kernel's, with R11 and RCX below it, and go to a handler.
    fn push_and_enter(&mut self, stack: u64, frame: &[u64], gate: Gate) -> Result<(), Trap> {
        let below = [self.context.regs.gpr[11], self.context.regs.gpr[1]];
        let mut bytes = [0; MAX_FRAME_BYTES];
        let (words, _) = bytes.as_chunks_mut::<8>();
        let pushed = frame.iter().chain(&below).rev();
        words.iter_mut().zip(pushed).for_each(|(place, word)| *place = word.to_le_bytes());
        let bytes = &bytes[..8 * (frame.len() + below.len())];
        let pointer = (stack & !15).wrapping_sub(bytes.len() as u64);
        if self.write_linear(Linear(pointer), bytes, Privilege::Supervisor).is_err() {
            return Err(self.end_domain("the kernel's stack cannot be written"));
        }
        if gate.masks_events {
            self.mask_events(true);
        }
        let regs = &mut self.context.regs;
        (regs.rip, regs.gpr[4]) = (gate.address, pointer);
        *regs.segment_mut(SegmentRegister::Cs) = flat_code(selector::CODE64);
        *regs.segment_mut(SegmentRegister::Ss) = flat_data(selector::STACK64);
        Ok(())
    }

    /// From the kernel to its users, or back: the other root, the other base of GS.
    pub(super) fn toggle(&mut self) {
        let Some(state) = &self.paravirtual else { return };
        let (kernel, user) = (state.kernel_root, state.user_root);
        let regs = &mut self.context.regs;
        let is_user = regs.cpl != 0;
        regs.cpl = if is_user { 0 } else { 3 };
        regs.cr3 = if is_user { kernel } else { user };
        let gs = &mut regs.segments[SegmentRegister::Gs as usize];
        std::mem::swap(&mut gs.base, &mut regs.kernel_gs_base);
    }

    /// The domain has ended by its own fault.
    pub(super) fn end_domain(&mut self, why: &'static str) -> Trap {
        if let Some(state) = &mut self.paravirtual {
            state.crash = Some(why);
        }
        Trap::Exit(Exit::Shutdown)
    }
}
