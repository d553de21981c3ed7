//! The saved state of a vCPU, which another vCPU can restore: what the guest can see, and an instruction that has not
//! completed. What the engine has learned (translations, TLBs, which threads execute directly) is not
//! part of it; the other vCPU learns it again.
//!
//! Saved state is untrusted. It may be anything that a guest could have made of its vCPU, however
//! odd. State that no guest can make, and state that the host's processor would refuse to load, is refused here.

use serde::{Deserialize, Serialize};

use crate::context::XSAVE_BYTES;
use crate::replay::Replay;
use crate::state::{Registers, cr0, efer, rflags};
use crate::system::{SavedSystem, cpuid};
use crate::vcpu::{Pending, Vcpu};

/// The state of a vCPU.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Saved {
    /// What the guest was told that its processor is.
    identity: Vec<[u32; 4]>,
    registers: Registers,
    /// The standard format of XSAVE.
    extended: Vec<u8>,
    pending: Pending,
    window_wanted: bool,
    replay: Replay,
    system: SavedSystem,
}

/// Why a vCPU cannot be restored from a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// CPUID has shown the guest another processor, whose features this one lacks.
    #[error("it is of a machine with another kind of processor than this host's")]
    AnotherProcessor,
    /// No processor can be in that state.
    #[error("the state of a processor in it makes no sense")]
    Nonsense,
}

impl Saved {
    /// Whether this host has the kind of processor that the guest was told of.
    ///
    /// # Errors
    ///
    /// [`Unfit::AnotherProcessor`].
    pub fn check_host(&self) -> Result<(), Unfit> {
        if self.identity == cpuid::identity() { Ok(()) } else { Err(Unfit::AnotherProcessor) }
    }

    /// How far the guest's time-stamp counter was ahead of that of the host where it was saved (mod 2^64).
    #[must_use]
    pub fn tsc_offset(&self) -> u64 {
        self.registers.tsc_offset
    }
}

impl Vcpu {
    /// The state that another vCPU needs to go on from here. To be called between two runs.
    pub fn save(&self) -> Saved {
        Saved {
            identity: cpuid::identity(),
            registers: self.arch.context.regs,
            extended: self.arch.context.xsave.0.to_vec(),
            pending: self.pending.clone(),
            window_wanted: self.arch.context.window_wanted != 0,
            replay: self.arch.replay.clone(),
            system: self.arch.system.save(),
        }
    }

    /// Restore the state, in memory as it was then. `shift` is added to the difference between the guest's
    /// time-stamp counter and the host's (mod 2^64).
    ///
    /// # Errors
    ///
    /// [`Unfit`]; the vCPU is as it was.
    pub fn restore(&mut self, saved: Saved, shift: u64) -> Result<(), Unfit> {
        saved.check_host()?;
        let Ok(extended) = <[u8; XSAVE_BYTES]>::try_from(saved.extended) else {
            return Err(Unfit::Nonsense);
        };
        let components = self.arch.system.components();
        let is_sane = makes_sense(&saved.registers, components)
            && crate::interpret::can_be_loaded(&extended, components);
        if !is_sane {
            return Err(Unfit::Nonsense);
        }
        self.reset();
        self.arch.context.regs = saved.registers;
        self.arch.context.regs.tsc_offset = saved.registers.tsc_offset.wrapping_add(shift);
        self.arch.context.xsave.0 = extended;
        self.arch.context.window_wanted = saved.window_wanted.into();
        self.pending = saved.pending;
        self.arch.replay = saved.replay;
        self.arch.system.restore(saved.system);
        self.arch.clear_cpuid_cache();
        self.arch.flush_tlb(crate::memory::Flush::All);
        self.note_direct_wanted();
        Ok(())
    }
}

/// Whether a guest could have made them so, as far as it matters outside of the guest.
pub(crate) fn makes_sense(regs: &Registers, components: u64) -> bool {
    let is_bit = |value: u8| value <= 1;
    let bits = [
        regs.interrupt_flag,
        regs.alignment_flag,
        regs.interrupt_shadow,
        regs.debug_shadow,
        regs.nmi_blocked,
    ];
    let mut flags = *regs;
    flags.set_rflags(regs.rflags());
    let is_long = regs.efer & efer::LME != 0 && regs.cr0 & cr0::PG != 0;
    bits.into_iter().all(is_bit)
        && flags.rflags() == regs.rflags()
        && regs.rflags() & rflags::FIXED != 0
        && regs.cpl <= 3
        && (regs.efer & efer::LMA != 0) == is_long
        && (regs.cr0 & cr0::PG == 0 || regs.cr0 & cr0::PE != 0)
        && regs.xcr0 & 1 != 0
        && regs.xcr0 & !components == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    const CONFIG: Config = Config {
        apic_id: 0,
        processors: 1,
        tsc_khz: 1_000_000,
        interpret_only: false,
        board: crate::board::TEST_PC,
    };

    fn processor() -> Vcpu {
        let memory = host::GuestMemory::new(&[(0, 1 << 20)]).unwrap();
        Vcpu::in_memory(CONFIG, &memory).unwrap()
    }

    /// What becomes of a state in which `change` was made.
    fn check(change: impl FnOnce(&mut Saved), expected: Result<(), Unfit>) {
        let mut saved = processor().save();
        change(&mut saved);
        let mut cpu = processor();
        assert_eq!(cpu.restore(saved, 0), expected);
    }

    #[test]
    fn what_was_saved_is_restored() {
        let mut cpu = processor();
        cpu.registers_mut().gpr[3] = 0x1234;
        cpu.registers_mut().tsc_offset = 5;
        cpu.extended_state_mut()[160] = 7;
        cpu.inject_nmi();
        let mut other = processor();
        other.restore(cpu.save(), 10).unwrap();
        assert_eq!(other.registers().gpr[3], 0x1234);
        assert_eq!(other.registers().tsc_offset, 15);
        assert_eq!(other.extended_state()[160], 7);
        assert!(other.save().pending.nmi);
    }

    #[test]
    fn what_no_guest_can_make_is_refused() {
        check(|_| (), Ok(()));
        check(|saved| saved.registers.cpl = 4, Err(Unfit::Nonsense));
        check(|saved| saved.registers.interrupt_flag = 2, Err(Unfit::Nonsense));
        check(|saved| saved.registers.efer = efer::LMA, Err(Unfit::Nonsense));
        check(|saved| saved.registers.cr0 = cr0::PG, Err(Unfit::Nonsense));
        check(|saved| saved.registers.xcr0 = 1 << 40 | 1, Err(Unfit::Nonsense));
        check(|saved| saved.extended.truncate(512), Err(Unfit::Nonsense));
        // MXCSR with a reserved bit, a component that there is not, the compacted format.
        check(|saved| saved.extended[27] = 0x80, Err(Unfit::Nonsense));
        check(|saved| saved.extended[519] = 0x40, Err(Unfit::Nonsense));
        check(|saved| saved.extended[527] = 0x80, Err(Unfit::Nonsense));
        check(|saved| saved.identity[0][0] ^= 1, Err(Unfit::AnotherProcessor));
    }
}
