//! Hypercalls that concern nothing but the registers of the vCPU that makes them, of which a kernel makes several at
//! each switch between threads: the engine carries them out, and the guest goes on without an exit.
//!
//! The hypervisor has them too, for those who make them in a list (`multicall`), and it says what is wrong with
//! arguments: a call that would be refused is its own. So there is one place that refuses, and here only what cannot
//! fail.

use crate::architectural::Architectural;
use crate::memory::Linear;
use crate::state::{SegmentRegister, cr0};
use xen_abi::hypercall::number;
use xen_abi::segment::base;

/// The ring that the guest sees its kernel in.
const RING: u16 = 3;

impl Architectural {
    /// Carry out the hypercall that the registers have, if it is such a one, and that is possible.
    pub(crate) fn carry_out_own_call(&mut self) -> bool {
        let [call, _, _, _, _, _, second, first, ..] = self.context.regs.gpr;
        let is_done = match u32::try_from(call) {
            Ok(number::STACK_SWITCH) => {
                self.set_kernel_stack(first as u16 | RING, second);
                true
            }
            Ok(number::FPU_TASKSWITCH) => {
                self.set_task_switched(first != 0);
                true
            }
            Ok(number::SET_SEGMENT_BASE) => {
                Linear(second).is_canonical() && self.set_base_of(first as u32, second)
            }
            _ => false,
        };
        if is_done {
            self.context.regs.gpr[0] = 0;
        }
        is_done
    }

    /// The base that the argument of a hypercall means; whether it is one that takes an address.
    fn set_base_of(&mut self, which: u32, address: u64) -> bool {
        match which {
            base::FS => self.set_fs_base(address),
            base::GS_USER => self.set_gs_base(true, address),
            base::GS_KERNEL => self.set_gs_base(false, address),
            _ => return false,
        }
        true
    }

    /// The stack on which the kernel is entered from user mode.
    pub(super) fn set_kernel_stack(&mut self, selector: u16, pointer: u64) {
        if let Some(state) = self.paravirtual.as_deref_mut() {
            state.kernel_stack = (selector, pointer);
        }
    }

    /// CR0.TS.
    pub(super) fn set_task_switched(&mut self, is_set: bool) {
        let regs = &mut self.context.regs;
        regs.cr0 = if is_set { regs.cr0 | cr0::TS } else { regs.cr0 & !cr0::TS };
    }

    /// The base of FS.
    pub(super) fn set_fs_base(&mut self, base: u64) {
        self.context.regs.segment_mut(SegmentRegister::Fs).base = base;
    }

    /// The base of GS: that of user programs, or that of the kernel.
    pub(super) fn set_gs_base(&mut self, of_user: bool, base: u64) {
        let regs = &mut self.context.regs;
        let is_current = (regs.cpl != 0) == of_user;
        match is_current {
            true => regs.segment_mut(SegmentRegister::Gs).base = base,
            false => regs.kernel_gs_base = base,
        }
    }
}
