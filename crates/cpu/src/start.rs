//! How a vCPU that is not the first is started, and what a machine with several vCPUs needs beyond
//! running each of them.

use std::time::Duration;

use crate::memory::Flush;
use crate::replay::Replay;
use crate::state::{Registers, cr0};
use crate::vcpu::{Pending, Vcpu};

impl Vcpu {
    /// Take INIT: as after RESET, but x87 and vector state, most model-specific registers and the
    /// caching bits of CR0 stay (SDM 3A table 9-1).
    pub fn initialize(&mut self) {
        let old = self.arch.context.regs;
        let caching = old.cr0 & (cr0::CD | cr0::NW);
        let mut new = Registers::reset();
        new.cr0 = new.cr0 & !(cr0::CD | cr0::NW) | caching;
        new.xcr0 = old.xcr0;
        (new.star, new.lstar, new.cstar, new.sfmask) = (old.star, old.lstar, old.cstar, old.sfmask);
        new.kernel_gs_base = old.kernel_gs_base;
        new.sysenter_cs = old.sysenter_cs;
        (new.sysenter_esp, new.sysenter_eip) = (old.sysenter_esp, old.sysenter_eip);
        (new.pat, new.misc_enable) = (old.pat, old.misc_enable);
        (new.tsc_aux, new.tsc_offset) = (old.tsc_aux, old.tsc_offset);
        self.arch.context.regs = new;
        self.arch.replay = Replay::default();
        self.pending = Pending::default();
        self.arch.context.window_wanted = 0;
        self.arch.flush_tlb(Flush::All);
    }

    /// Take a start-up message: go on in real mode at the start of a page below 1 MiB
    /// (SDM 3A 9.4.3).
    pub fn start_at(&mut self, page: u8) {
        let regs = self.registers_mut();
        let code = &mut regs.segments[1];
        code.selector = u16::from(page) << 8;
        code.base = u64::from(page) << 12;
        regs.rip = 0;
    }

    /// End a halt without an interrupt.
    pub fn end_halt(&mut self) {
        self.pending.halted = false;
    }

    /// Forget all address translations, as a write to CR3 and CR4.PGE would.
    pub fn forget_addresses(&mut self) {
        self.arch.flush_tlb(Flush::All);
    }

    /// Time of the host's cores that helper processes have spent on this processor's user code.
    pub fn helpers_time(&mut self) -> Duration {
        self.arch.spaces.as_mut().map_or(Duration::ZERO, |spaces| spaces.time())
    }

    /// Let another thread run the processor; to be called on the thread that has run it.
    pub fn leave_thread(&mut self) {
        self.registration = None;
    }
}
