//! The mode bits that translations assume, computed from a vCPU's registers.

use super::code_32::wide_segments;
use super::key::{Mode, Vectors};
use super::syscall;
use crate::architectural::Architectural;

impl Architectural {
    /// The mode bits that translations assume.
    pub(crate) fn translation_mode(&self) -> Mode {
        use crate::state::{cr0, cr4, efer};
        let regs = &self.context.regs;
        let vectors = if regs.cr0 & (cr0::EM | cr0::TS) != 0 || regs.cr4 & cr4::OSFXSR == 0 {
            Vectors::None
        } else if regs.cr4 & cr4::OSXSAVE == 0 || regs.xcr0 & 6 != 6 {
            Vectors::Legacy
        } else if regs.xcr0 == self.context.xsave_mask {
            Vectors::All
        } else {
            Vectors::Avx
        };
        let guest = regs.mode();
        let paravirtual = self.paravirtual.is_some();
        let fast_system_calls = !paravirtual
            && regs.efer & efer::SCE != 0
            && regs.sfmask & syscall::CLEARED_FLAGS == syscall::CLEARED_FLAGS;
        Mode {
            guest,
            vectors,
            fast_system_calls,
            star: if fast_system_calls { regs.star } else { 0 },
            smap: regs.cr4 & cr4::SMAP != 0,
            time_stamp_disabled: regs.cr4 & cr4::TSD != 0,
            native: self.uses_mirror(),
            user_open: self.uses_mirror() && self.is_user_open(),
            segment_bases: regs.cr4 & cr4::FSGSBASE != 0,
            paravirtual,
            wide: if guest.is_64_bit() { [false; 2] } else { wide_segments(regs) },
        }
    }
}
