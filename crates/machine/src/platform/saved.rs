//! The state of the machine without its processors and its memory ([`crate::saved`]).

use serde::{Deserialize, Serialize};

use super::chipset::Chipset;
use super::{Platform, Socket, lock};
use crate::interrupts::{SavedApic, SavedControllers};
use crate::paravirtual::{self, MachineClock};
use crate::pci::SavedRoot;
use crate::power::{Keyboard, Power};
use crate::saved::{self, Busy, CounterShift, Unfit};
use crate::timers::{Pit, Rtc};

/// What all processors share. (No device is reached through MMIO alone.)
#[derive(Debug, Serialize, Deserialize)]
struct Shared {
    clock: MachineClock,
    controllers: SavedControllers,
    ports: Vec<Vec<u8>>,
    pci: SavedRoot,
    pit: Pit,
    rtc: Rtc,
    power: Power,
    keyboard: Keyboard,
}

/// What belongs to one processor alone.
#[derive(Debug, Serialize, Deserialize)]
struct Own {
    apic: SavedApic,
    paravirtual: paravirtual::Processor,
}

impl Chipset {
    fn save(&mut self, clock: MachineClock) -> Result<Shared, Busy> {
        // Devices at rest first: their interrupts are in the local APICs' mailboxes then.
        let pci = self.pci.save().inspect_err(|_| self.pci.thaw())?;
        Ok(Shared {
            clock,
            pci,
            controllers: self.controllers.save(),
            ports: self.port_devices.iter().map(|device| device.save()).collect(),
            pit: self.pit.clone(),
            rtc: self.rtc.clone(),
            power: self.power.clone(),
            keyboard: self.keyboard.clone(),
        })
    }

    fn restore(&mut self, saved: Shared) -> Result<(), Unfit> {
        saved::check(saved.pit.makes_sense(), "the interval timer")?;
        saved::check(saved.ports.len() == self.port_devices.len(), "the I/O ports")?;
        self.pit = saved.pit;
        self.rtc = saved.rtc;
        self.power = saved.power.with_requests(&self.requests);
        self.keyboard = saved.keyboard.with_requests(&self.requests);
        self.controllers.restore(saved.controllers);
        // Devices find their lines as the controllers know them.
        for (device, state) in self.port_devices.iter_mut().zip(&saved.ports) {
            device.restore(state)?;
        }
        self.pci.restore(&saved.pci)
    }
}

impl Socket<'_> {
    /// Bring all devices to rest until [`Self::thaw`], and say what a platform that goes on from here has to know of
    /// what the processors share. All processors stand still.
    ///
    /// # Errors
    ///
    /// [`Busy`] when a device does not come to rest.
    pub fn save_shared(&mut self) -> Result<Vec<u8>, Busy> {
        let clock = lock(&self.platform.paravirtual_clock).clone();
        let saved = self.platform.with_chipset(Some(self.number), |chipset| chipset.save(clock))?;
        Ok(saved::encode(&saved))
    }

    /// Let devices go on, which are at rest since [`Self::save_shared`].
    pub fn thaw(&mut self) {
        self.platform.with_chipset(Some(self.number), |chipset| chipset.pci.thaw());
    }

    /// The same of what is this processor's own, after [`Self::save_shared`].
    pub fn save_own(&mut self) -> Vec<u8> {
        let paravirtual = self.local.paravirtual.clone();
        saved::encode(&Own { apic: self.local.apic.save(), paravirtual })
    }
}

/// Whether a processor that has said this ([`Socket::save_own`]) reads the time from the paravirtual clock.
///
/// # Errors
///
/// [`Unfit`] when that is no state of a processor's.
pub fn has_clock(own: &[u8]) -> Result<bool, Unfit> {
    let Own { paravirtual, .. } = saved::decode(own, "a processor's interrupts")?;
    Ok(paravirtual.has_clock())
}

impl Platform {
    /// Go on from what [`Socket::save_shared`] and each processor's [`Socket::save_own`] have said. No thread
    /// may have a [`Socket`].
    ///
    /// # Errors
    ///
    /// [`Unfit`] when that is no state of such a platform.
    pub fn restore(
        &self,
        shared: &[u8],
        own: &[Vec<u8>],
        shift: CounterShift,
    ) -> Result<(), Unfit> {
        let mut shared: Shared = saved::decode(shared, "the chip set")?;
        saved::check(own.len() == self.locals.len(), "the processors")?;
        let clock = std::mem::replace(&mut shared.clock, MachineClock::new(self.clock.now()));
        *lock(&self.paravirtual_clock) = clock.moved(shift);
        // Before devices: these may interrupt as soon as they are what they were.
        for (local, state) in self.locals.iter().zip(own) {
            let Own { apic, paravirtual } = saved::decode(state, "a processor's interrupts")?;
            let mut local = lock(local);
            local.apic.restore(apic, shift);
            local.paravirtual = paravirtual.moved(shift);
            local.paravirtual.has_been_stopped(self);
        }
        self.with_chipset(None, |chipset| chipset.restore(shared))
    }
}
