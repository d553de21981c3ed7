//! The state of the machine without its processors and its memory ([`crate::saved`]).

use locks::Unpoisoned;

use super::chipset::Chipset;
use super::pc::Platform;
use super::vcpu::PcVcpu;
use crate::interrupts::{SavedApic, SavedControllers};
use crate::paravirtual::{self, MachineClock};
use crate::power::{Keyboard, Power};
use crate::saved::{self, Busy, CounterShift, Parts, Unfit};
use crate::timers::Pit;
use crate::xen::SAVED_VCPU;

/// The kinds of what is the board's own, with QEMU's names where it has the same.
mod kind {
    pub const CLOCK: &str = "kvmclock";
    pub const CONTROLLERS: &str = "interrupt-controllers";
    pub const PIT: &str = "i8254";
    pub const RTC: &str = "mc146818rtc";
    pub const POWER: &str = "acpi-pm";
    pub const KEYBOARD: &str = "i8042";
    /// Of each vCPU.
    pub const APIC: &str = "apic";
    pub const PARAVIRTUAL: &str = "kvm-vcpu";
}

impl Chipset {
    fn save(&mut self, parts: &mut Parts) -> Result<(), Busy> {
        // Devices at rest first: their interrupts are in the local APICs' mailboxes then.
        self.pci.save(parts).inspect_err(|_| self.pci.thaw())?;
        parts.add(kind::CONTROLLERS, 1, &self.controllers.save());
        parts.add(kind::PIT, 1, &self.pit);
        parts.add(kind::RTC, 1, &self.rtc);
        parts.add(kind::POWER, 1, &self.power);
        parts.add(kind::KEYBOARD, 1, &self.keyboard);
        self.port_bus.save(parts);
        Ok(())
    }

    fn restore(&mut self, parts: &mut Parts) -> Result<(), Unfit> {
        let pit: Pit = parts.take(kind::PIT)?;
        saved::check(pit.makes_sense(), "the interval timer")?;
        self.pit = pit;
        self.rtc = parts.take(kind::RTC)?;
        self.power = parts.take::<Power>(kind::POWER)?.with_requests(&self.requests);
        self.keyboard = parts.take::<Keyboard>(kind::KEYBOARD)?.with_requests(&self.requests);
        self.controllers.restore(parts.take::<SavedControllers>(kind::CONTROLLERS)?);
        // Devices find their lines as the controllers know them.
        self.port_bus.restore(parts)?;
        self.pci.restore(parts)
    }
}

impl PcVcpu<'_> {
    /// Bring all devices to rest until [`Self::thaw_chipset`], and say what a platform that goes on from here has
    /// to know of what the processors share: the bytes of [`Parts`]. All processors stand still.
    ///
    /// # Errors
    ///
    /// [`Busy`] when a device does not come to rest.
    pub(super) fn save_chipset(&mut self) -> Result<Vec<u8>, Busy> {
        let mut parts = Parts::default();
        parts.add(kind::CLOCK, 1, &*self.platform.paravirtual_clock.lock().unpoisoned());
        let save = |chipset: &mut Chipset| chipset.save(&mut parts);
        self.platform.with_chipset(Some(self.number), save)?;
        Ok(parts.to_bytes())
    }

    /// Let devices go on, which are at rest since [`Self::save_chipset`].
    pub(super) fn thaw_chipset(&mut self) {
        self.platform.with_chipset(Some(self.number), |chipset| chipset.pci.thaw());
    }

    /// The same of what is this processor's own, after [`Self::save_chipset`].
    pub(super) fn save_local(&mut self) -> Vec<u8> {
        let mut parts = Parts::default();
        parts.add(kind::APIC, 1, &self.local.apic.save());
        parts.add(kind::PARAVIRTUAL, 1, &self.local.paravirtual);
        parts.to_bytes()
    }
}

/// A processor's own state ([`PcVcpu::save_local`]).
fn own(bytes: &[u8]) -> Result<(SavedApic, paravirtual::Processor), Unfit> {
    let mut parts = Parts::from_bytes(bytes, "a processor's interrupts")?;
    let own = (parts.take(kind::APIC)?, parts.take(kind::PARAVIRTUAL)?);
    parts.finish()?;
    Ok(own)
}

/// Whether a processor that has said this ([`PcVcpu::save_local`]) reads the time from the paravirtual clock; on a
/// board that has none, it does not. A domain's vCPU always has Xen's.
///
/// # Errors
///
/// [`Unfit`] when that is no state of a processor's.
pub fn has_clock(bytes: &[u8]) -> Result<bool, Unfit> {
    let mut parts = Parts::from_bytes(bytes, "a processor's interrupts")?;
    if parts.has(SAVED_VCPU) {
        return Ok(true);
    }
    let has = parts.has(kind::PARAVIRTUAL);
    Ok(has && parts.take::<paravirtual::Processor>(kind::PARAVIRTUAL)?.has_clock())
}

impl Platform {
    /// The inverse of [`PcVcpu::save_chipset`] and each processor's [`PcVcpu::save_local`]. No thread may have a
    /// [`PcVcpu`].
    ///
    /// # Errors
    ///
    /// [`Unfit`] when that is no state of such a platform: it names the device.
    pub(super) fn restore_chipset(
        &self,
        shared: &[u8],
        processors: &[Vec<u8>],
        shift: CounterShift,
    ) -> Result<(), Unfit> {
        let mut parts = Parts::from_bytes(shared, "the chip set")?;
        saved::check(processors.len() == self.locals.len(), "the processors")?;
        let clock: MachineClock = parts.take(kind::CLOCK)?;
        *self.paravirtual_clock.lock().unpoisoned() = clock.moved(shift);
        // Before devices: these may interrupt as soon as they are what they were.
        for (local, state) in self.locals.iter().zip(processors) {
            let (apic, paravirtual) = own(state)?;
            let mut local = local.lock().unpoisoned();
            local.apic.restore(apic, shift);
            local.paravirtual = paravirtual.moved(shift);
            local.paravirtual.has_been_stopped(self.paravirtual());
        }
        self.with_chipset(None, |chipset| chipset.restore(&mut parts))?;
        parts.finish()
    }
}
