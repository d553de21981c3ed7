//! The `iret` hypercall (public/arch-x86/xen-x86_64.h, `struct iret_context`): from the kernel to where it came from.

use crate::architectural::Architectural;
use crate::exception::Trap;
use crate::memory::{Linear, Privilege};
use crate::state::{Segment, SegmentRegister, rflags};
use crate::system::descriptor::{is_null, rpl};
use crate::system::null_segment;

use super::Gate;
use super::segments::{flat_code, flat_data};
use xen_abi::Wire;
use xen_abi::callback::kind;
use xen_abi::segment::selector;
use xen_abi::vcpu::{IretFrame, context};

impl Architectural {
    /// Take the frame from the kernel's stack, and load it.
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
        let regs = &mut self.context.regs;
        regs.gpr[0] = frame.rax;
        if frame.flags & context::IN_SYSCALL == 0 {
            (regs.gpr[11], regs.gpr[1]) = (frame.r11, frame.rcx);
        }
        let Some((code, stack)) = loaded else { return self.fail_safe(&frame) };
        if to_user {
            self.toggle();
        }
        let regs = &mut self.context.regs;
        (regs.rip, regs.gpr[4]) = (frame.rip, frame.rsp);
        regs.set_rflags(frame.rflags & !(rflags::IOPL | rflags::VM | rflags::NT) | rflags::IF);
        *regs.segment_mut(SegmentRegister::Cs) = code;
        *regs.segment_mut(SegmentRegister::Ss) = stack;
        Ok(())
    }

    /// CS and SS of a frame, if it can be loaded.
    fn return_segments(&mut self, frame: &IretFrame, to_user: bool) -> Option<(Segment, Segment)> {
        let (code, stack) = (frame.cs as u16 | 3, frame.ss as u16 | 3);
        if !to_user {
            let is_canonical = Linear(frame.rip).is_canonical();
            return is_canonical.then(|| (flat_code(code), flat_data(stack)));
        }
        let code = self.user_code(code)?;
        let is_64_bit = code.attributes.contains(crate::state::Attributes::LONG);
        if is_64_bit && !Linear(frame.rip).is_canonical() {
            return None;
        }
        Some((code, self.user_stack(stack)?))
    }

    fn user_code(&mut self, wanted: u16) -> Option<Segment> {
        if wanted == selector::CODE64 {
            return Some(flat_code(wanted));
        }
        let mut descriptor = self.read_descriptor(wanted).ok()??;
        let fits = descriptor.is_code() && descriptor.is_present();
        let fits = fits && (descriptor.is_conforming() || descriptor.dpl() == rpl(wanted));
        if is_null(wanted) || !fits {
            return None;
        }
        self.mark_accessed(&mut descriptor).ok()?;
        Some(descriptor.segment(wanted))
    }

    fn user_stack(&mut self, wanted: u16) -> Option<Segment> {
        if wanted == selector::STACK64 {
            return Some(flat_data(wanted));
        }
        let mut descriptor = self.read_descriptor(wanted).ok()??;
        let fits = descriptor.is_writable_data() && descriptor.dpl() == 3;
        if is_null(wanted) || !fits || !descriptor.is_present() {
            return None;
        }
        self.mark_accessed(&mut descriptor).ok()?;
        Some(descriptor.segment(wanted))
    }

    /// The frame is no good: the kernel's failsafe callback finds it, below DS, ES, FS and GS.
    fn fail_safe(&mut self, frame: &IretFrame) -> Result<(), Trap> {
        let gate: Gate = self.callback(kind::FAILSAFE);
        if gate.address == 0 {
            return Err(self.end_domain("an iret with a bad frame, and no failsafe callback"));
        }
        let regs = &self.context.regs;
        let data =
            [SegmentRegister::Gs, SegmentRegister::Fs, SegmentRegister::Es, SegmentRegister::Ds]
                .map(|which| u64::from(regs.segment(which).selector));
        let code = frame.cs & 0xffff | self.mask_of_frame();
        let flags = self.flags_of_frame(frame.rflags);
        let mut words = vec![frame.ss & 0xffff, frame.rsp, flags, code, frame.rip];
        words.extend(data);
        let from_user = frame.cs & 3 == 3;
        let stack = match &self.paravirtual {
            Some(state) if from_user => state.kernel_stack.1,
            _ => frame.rsp,
        };
        self.push_and_enter(stack, words, gate)?;
        let regs = &mut self.context.regs;
        for which in [SegmentRegister::Ds, SegmentRegister::Es, SegmentRegister::Fs] {
            *regs.segment_mut(which) = null_segment(0);
        }
        Ok(())
    }
}
