//! The PC with KVM's interface, the first [`Board`]: everything that a vCPU reaches by leaving its own registers and
//! memory.
//!
//! # Locks
//!
//! In this order: a vCPU's own part (its thread holds the lock as long as it runs), then the chip set, then the locks
//! of devices. The lock of the paravirtual clock comes last. Interrupts between vCPUs, interrupt lines and
//! [`Requests`](crate::Requests) need no lock.

mod chipset;
mod local;
mod pc;
mod port_map;
mod ports;
mod saved;
#[cfg(test)]
mod tests;
mod vcpu;

use std::ops::RangeInclusive;

use locks::Unpoisoned;

use crate::board::{Board, Hypervisor};
pub use crate::board::{Config, Error, Surroundings};
use crate::paravirtual::{self, MachineClock};
use crate::saved::{CounterShift, Unfit};
use chipset::Chipset;
pub use pc::Platform;
pub use saved::has_clock;
pub use vcpu::PcVcpu;

impl Board for Platform {
    type Vcpu<'a> = PcVcpu<'a>;

    const HAS_FIRMWARE: bool = true;
    const STARTS_FIRMWARE: bool = true;
    const MSRS: &'static [RangeInclusive<u32>] = &vcpu::MSRS;
    const HYPERVISOR: Option<Hypervisor> = Some(paravirtual::HYPERVISOR);

    fn new(config: Config, surroundings: Surroundings) -> Result<Self, Error> {
        Self::assemble(config, surroundings)
    }

    fn vcpu(&self, number: usize) -> PcVcpu<'_> {
        PcVcpu::take(self, number)
    }

    /// As a PC's firmware: the 8259s at vectors 08h and 70h, the PIT ticking (PC/AT BIOS).
    fn initialize_as_firmware(&self) {
        self.with_chipset(None, Chipset::initialize_as_firmware);
    }

    fn reset(&self) {
        *self.paravirtual_clock.lock().unpoisoned() = MachineClock::new(self.clock.now());
        for local in &self.locals {
            let mut local = local.lock().unpoisoned();
            local.apic.reset();
            local.paravirtual = paravirtual::Processor::default();
        }
        self.with_chipset(None, Chipset::reset);
        self.requests.take();
    }

    fn restore(
        &self,
        shared: &[u8],
        processors: &[Vec<u8>],
        shift: CounterShift,
    ) -> Result<(), Unfit> {
        self.restore_chipset(shared, processors, shift)
    }
}
