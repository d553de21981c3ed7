//! The `iret` hypercall (public/arch-x86/xen-x86_64.h, `struct iret_context`): from the kernel to where it came from.

use crate::architectural::Architectural;
use crate::exception::{Exception, Trap};
use crate::interpret::gp0;
use crate::memory::{Linear, Privilege};
use crate::state::{Attributes, Segment, SegmentRegister, rflags};
use crate::system::descriptor::gp;
use crate::system::{Event, Source};

use super::segments::{flat_code, flat_data};
use xen_abi::Wire;
use xen_abi::segment::selector;
use xen_abi::vcpu::{IretFrame, context};

impl Architectural {
    /// Take the frame from the kernel's stack, and load it. What the processor refuses of it faults where it leads.
    ///
    /// # Errors
    ///
    /// [`crate::Exit::Shutdown`] if the frame cannot be read, or there is no user mode to go to.
    pub(super) fn paravirtual_return(&mut self) -> Result<(), Trap> {
        let mut bytes = [0; IretFrame::BYTES];
        let at = Linear(self.context.regs.gpr[4]);
        if self.read_linear(at, &mut bytes, Privilege::Supervisor).is_err() {
            return Err(self.end_domain("the frame of an iret cannot be read"));
        }
        let frame = IretFrame::decode(&bytes);
        let to_user = frame.cs & 3 == 3;
        if to_user && self.paravirtual.as_ref().is_some_and(|state| state.user_root == 0) {
            return Err(self.end_domain("an iret to user mode without a root for it"));
        }
        self.context.regs.nmi_blocked = 0;
        self.mask_events(frame.rflags & rflags::IF == 0);
        let loaded = self.return_segments(&frame, to_user);
        let flags = frame.rflags & !(rflags::IOPL | rflags::VM) | rflags::IF;
        let is_of_system_call = frame.flags & context::IN_SYSCALL != 0;
        // Xen returns from a system call by `sysret`, which shows: that clears RF, and TF traps right behind it. What
        // an `iret` loads is for the instruction that it leads to.
        let cleared = if is_of_system_call { rflags::RF } else { 0 };
        if !is_of_system_call {
            self.system.set_returned();
        }
        let regs = &mut self.context.regs;
        regs.gpr[0] = frame.rax;
        (regs.gpr[11], regs.gpr[1]) =
            if is_of_system_call { (flags, frame.rip) } else { (frame.r11, frame.rcx) };
        if to_user {
            self.toggle();
        }
        let regs = &mut self.context.regs;
        (regs.rip, regs.gpr[4]) = (frame.rip, frame.rsp);
        regs.set_rflags(flags & !cleared);
        // What the frame of a fault will have.
        *regs.segment_mut(SegmentRegister::Cs) = flat_code(frame.cs as u16 | 3);
        *regs.segment_mut(SegmentRegister::Ss) = flat_data(frame.ss as u16 | 3);
        let (code, stack) = match loaded {
            Ok(_) if is_of_system_call && frame.cs as u16 | 3 != selector::CODE32 => {
                (flat_code(selector::CODE64), flat_data(selector::STACK64))
            }
            Ok(segments) => segments,
            Err(Trap::Exception(Exception { vector, error, .. })) => {
                let vector = vector as u8;
                return self.bounce_trap(Event { vector, error, source: Source::Other });
            }
            Err(exit) => return Err(exit),
        };
        *regs.segment_mut(SegmentRegister::Cs) = code;
        *regs.segment_mut(SegmentRegister::Ss) = stack;
        Ok(())
    }

    /// CS and SS of a frame, if it can be loaded: else the exception that the processor raises where it goes.
    fn return_segments(
        &mut self,
        frame: &IretFrame,
        to_user: bool,
    ) -> Result<(Segment, Segment), Trap> {
        let (code, stack) = (frame.cs as u16 | 3, frame.ss as u16 | 3);
        let (code, stack) = match to_user {
            false => (flat_code(code), flat_data(stack)),
            true => (self.user_code(code)?, self.user_stack(stack)?),
        };
        let is_64_bit = code.attributes.contains(Attributes::LONG);
        if is_64_bit && !Linear(frame.rip).is_canonical() {
            return Err(gp0());
        }
        Ok((code, stack))
    }

    fn user_code(&mut self, wanted: u16) -> Result<Segment, Trap> {
        match wanted {
            selector::CODE64 => Ok(flat_code(wanted)),
            _ => Ok(self.return_segment(wanted)?.segment(wanted)),
        }
    }

    fn user_stack(&mut self, wanted: u16) -> Result<Segment, Trap> {
        match wanted {
            selector::STACK64 => Ok(flat_data(wanted)),
            _ => self.stack_segment(wanted, 3, gp, gp),
        }
    }
}
