//! Model-specific registers that belong to the platform.

use super::Platform;
use crate::interrupts::{Fault, LocalApic};
use crate::paravirtual::msr as paravirtual;

/// IA32_APIC_BASE.
const APIC_BASE: u32 = 0x1b;
/// IA32_TSC_DEADLINE.
const TSC_DEADLINE: u32 = 0x6e0;
/// The x2APIC's registers.
const X2APIC: std::ops::RangeInclusive<u32> = 0x800..=0x8ff;

impl Platform {
    /// Whether a register is one of the platform's.
    pub const fn has_msr(index: u32) -> bool {
        matches!(
            index,
            APIC_BASE | TSC_DEADLINE | 0x800
                ..=0x8ff
                    | paravirtual::WALL_CLOCK_OLD
                    | paravirtual::SYSTEM_TIME_OLD
                    | paravirtual::WALL_CLOCK
                    | paravirtual::SYSTEM_TIME
        )
    }

    /// `rdmsr`.
    ///
    /// # Errors
    ///
    /// [`Fault`] where there is no such register, or not in this mode.
    #[inline]
    pub fn msr_read(&mut self, processor: usize, index: u32) -> Result<u64, Fault> {
        let clock = &*self.clock;
        let local = self.interrupts.local(processor).ok_or(Fault)?;
        let value = match index {
            APIC_BASE => Ok(local.base()),
            TSC_DEADLINE => Ok(local.tsc_deadline(clock)),
            _ if X2APIC.contains(&index) => local.read_msr(index, clock),
            _ => return self.paravirtual_clock.read(processor, index),
        };
        self.reschedule();
        value
    }

    /// `wrmsr`.
    ///
    /// # Errors
    ///
    /// [`Fault`] where there is no such register, or it cannot have that value.
    #[inline]
    pub fn msr_write(&mut self, processor: usize, index: u32, value: u64) -> Result<(), Fault> {
        if index == TSC_DEADLINE || X2APIC.contains(&index) || index == APIC_BASE {
            self.write_local(processor, index, value)
        } else {
            let (clock, memory) = (&*self.clock, &*self.memory);
            self.paravirtual_clock.write(processor, index, value, clock, memory)
        }
    }

    fn write_local(&mut self, processor: usize, index: u32, value: u64) -> Result<(), Fault> {
        let clock = &*self.clock;
        let local: &mut LocalApic = self.interrupts.local(processor).ok_or(Fault)?;
        match index {
            TSC_DEADLINE => local.set_tsc_deadline(value, clock),
            APIC_BASE => local.set_base(value)?,
            _ => {
                let effect = local.write_msr(index, value, clock)?;
                self.interrupts.carry_out(effect);
                self.interrupts.wake_others(processor);
            }
        }
        self.reschedule();
        Ok(())
    }
}
