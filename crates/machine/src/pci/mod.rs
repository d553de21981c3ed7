//! One PCI root bus: configuration space through ECAM and through ports 0xcf8 and 0xcfc, functions
//! with base addresses in one window, interrupts as messages.
//!
//! 1. *There is no firmware*: functions are where the machine puts them, and decode memory from the
//!    start. A guest may move them within the window. (Where there is firmware, it moves them first, to wherever no RAM
//!    is; it finds the chip set that it knows, an Intel 440FX, which has no ECAM: `chips`.)
//! 2. *Interrupts are messages* ([`Vectors`]). No function has an interrupt pin, so none needs
//!    routing, and a device's thread interrupts a processor without the chip set.
//! 3. *Every slot has one function*, the first is the host bridge. (The second slot of a 440FX has two.)
//! 4. What nobody decodes reads as ones, and writes to it are lost.

mod bits;
mod chips;
mod configuration;
mod function;
#[cfg(test)]
mod tests;
mod vectors;

use vm_memory::GuestAddress;

pub use bits::{BARS, capability};
use bits::{CONFIGURATION_BYTES, Mechanism};
pub use configuration::{Configuration, Identity};
pub use function::Function;
pub use vectors::{MessageSender, Vectors};

use crate::bus::Size;
use crate::layout::{PCI_CONFIGURATION, PCI_CONFIGURATION_BYTES, PCI_WINDOW, PCI_WINDOW_BYTES};
use crate::limits::MAX_PCI_FUNCTIONS;
use crate::saved::{Busy, Parts, Unfit};
use chips::Chip;
use configuration::SavedConfiguration;

/// Why a function cannot be plugged in.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is none.
    #[error("this board has no PCI bus; use another board, or no virtio devices")]
    NoBus,
    /// See [`MAX_PCI_FUNCTIONS`].
    #[error("the PCI bus is full with {MAX_PCI_FUNCTIONS} devices; remove one")]
    Full,
    /// The window has no room for its memory.
    #[error("there is no room for another {0} bytes of PCI devices' registers; remove a device")]
    NoRoom(u64),
}

/// The kinds of the bus's own state, and of each function's configuration space, whose instance is its slot.
const ROOT: &str = "pci-root";
const FUNCTION: &str = "pci-function";

/// A function, and where it is.
struct Placed {
    /// The number of its slot, and its own there in bits 2:0.
    place: u8,
    function: Box<dyn Function>,
}

/// The root bus.
pub(crate) struct Root {
    /// In the order of their places.
    functions: Vec<Placed>,
    mechanism: Mechanism,
    /// Where the window is free.
    free: u64,
    /// Firmware knows it: there is no ECAM, and functions may be anywhere.
    has_firmware: bool,
}

impl Default for Root {
    fn default() -> Self {
        Self::with_chips([(0, Chip::host_bridge())], false)
    }
}

impl Root {
    /// One on which firmware finds the chips that it knows.
    pub fn of_firmware() -> Self {
        Self::with_chips(Chip::for_firmware(), true)
    }

    fn with_chips(chips: impl IntoIterator<Item = (u8, Chip)>, has_firmware: bool) -> Self {
        let placed = |(place, chip)| Placed { place, function: Box::new(chip) as _ };
        let functions = chips.into_iter().map(placed).collect();
        Self { functions, mechanism: Mechanism(0), free: PCI_WINDOW.0, has_firmware }
    }

    /// Plug in a function; the number of its slot.
    pub fn plug_in(&mut self, mut function: Box<dyn Function>) -> Result<u8, Error> {
        let slot = self.functions.last().map_or(0, |last| (last.place >> 3) + 1);
        if usize::from(slot) > MAX_PCI_FUNCTIONS {
            return Err(Error::Full);
        }
        let mut free = self.free;
        for (bar, size) in function.configuration().sizes() {
            let at = free.next_multiple_of(size);
            free = at.saturating_add(size);
            if free > PCI_WINDOW.0 + PCI_WINDOW_BYTES {
                return Err(Error::NoRoom(size));
            }
            function.configuration().place(bar, at);
        }
        self.free = free;
        self.functions.push(Placed { place: slot << 3, function });
        Ok(slot)
    }

    /// Everything as after power-on.
    pub fn reset(&mut self) {
        self.mechanism = Mechanism(0);
        for Placed { function, .. } in &mut self.functions {
            function.configuration().reset();
            function.reset();
        }
    }

    /// Add what a bus that goes on from here has to know.
    pub fn save(&mut self, parts: &mut Parts) -> Result<(), Busy> {
        parts.add(ROOT, 1, &self.mechanism);
        for Placed { function, .. } in &mut self.functions {
            // At rest first: then it sends no more messages.
            function.save(parts)?;
            parts.add(FUNCTION, 1, &function.configuration().save());
        }
        Ok(())
    }

    /// Let all functions go on.
    pub fn thaw(&mut self) {
        self.functions.iter_mut().for_each(|placed| placed.function.thaw());
    }

    /// Go on from there.
    pub fn restore(&mut self, parts: &mut Parts) -> Result<(), Unfit> {
        self.mechanism = parts.take(ROOT)?;
        for Placed { function, .. } in &mut self.functions {
            let configuration: SavedConfiguration = parts.take(FUNCTION)?;
            function.configuration().restore(&configuration)?;
            function.restore(parts)?;
        }
        Ok(())
    }

    /// Whether an address, where neither RAM nor an APIC is, is the bus's.
    pub fn is_at(&self, address: GuestAddress) -> bool {
        let within = |start: GuestAddress, size| address.0.wrapping_sub(start.0) < size;
        self.has_firmware
            || within(PCI_CONFIGURATION, PCI_CONFIGURATION_BYTES)
            || within(PCI_WINDOW, PCI_WINDOW_BYTES)
    }

    /// A load from one of the bus's addresses.
    pub fn read(&mut self, address: GuestAddress, size: Size) -> u64 {
        if let Some((target, register)) = self.in_configuration(address) {
            return self.read_configuration(target, register, size);
        }
        let Some((function, bar, offset)) = self.decoder(address.0) else { return u64::MAX };
        match function.configuration().vectors_at(bar) {
            Some(vectors) => vectors.read(offset, size),
            None => function.read(bar, offset, size),
        }
    }

    /// A store to one of the bus's addresses.
    pub fn write(&mut self, address: GuestAddress, size: Size, value: u64) {
        if let Some((target, register)) = self.in_configuration(address) {
            return self.write_configuration(target, register, size, value);
        }
        let Some((function, bar, offset)) = self.decoder(address.0) else { return };
        match function.configuration().vectors_at(bar) {
            Some(vectors) => vectors.write(offset, size, value),
            None => function.write(bar, offset, size, value),
        }
    }

    /// Port 0xcf8.
    pub fn read_mechanism(&self, size: Size) -> u32 {
        if size == Size::Dword { self.mechanism.0 } else { u32::MAX }
    }

    /// Port 0xcf8: only whole.
    pub fn write_mechanism(&mut self, size: Size, value: u32) {
        if size == Size::Dword {
            self.mechanism = Mechanism::written(value);
        }
    }

    /// Ports 0xcfc to 0xcff.
    pub fn read_data(&mut self, offset: u16, size: Size) -> u32 {
        let Some((target, register)) = self.mechanism.target() else { return u32::MAX };
        self.read_configuration(target, register + u64::from(offset), size) as u32
    }

    /// Likewise.
    pub fn write_data(&mut self, offset: u16, size: Size, value: u32) {
        if let Some((target, register)) = self.mechanism.target() {
            self.write_configuration(target, register + u64::from(offset), size, value.into());
        }
    }

    /// The function and register that an address of ECAM is (PCI Express Base 7.2.2).
    fn in_configuration(&self, address: GuestAddress) -> Option<(u32, u64)> {
        let at = address.0.wrapping_sub(PCI_CONFIGURATION.0);
        (at < PCI_CONFIGURATION_BYTES && !self.has_firmware)
            .then_some(((at >> 12) as u32, at & 0xfff))
    }

    /// Bus, device and function as one number; only bus 0 is there. A register may not leave its 4 bytes.
    fn function(
        &mut self,
        target: u32,
        register: u64,
        size: Size,
    ) -> Option<&mut Box<dyn Function>> {
        let whole = (register & 3) + u64::from(size.bytes()) <= 4;
        if register >= CONFIGURATION_BYTES as u64 || !whole {
            return None;
        }
        let found = self.functions.iter_mut().find(|placed| u32::from(placed.place) == target);
        found.map(|placed| &mut placed.function)
    }

    fn read_configuration(&mut self, target: u32, register: u64, size: Size) -> u64 {
        match self.function(target, register, size) {
            Some(function) => function.read_configuration(register as usize, size).into(),
            None => u64::MAX,
        }
    }

    fn write_configuration(&mut self, target: u32, register: u64, size: Size, value: u64) {
        if let Some(function) = self.function(target, register, size) {
            function.write_configuration(register as usize, size, value as u32);
        }
    }

    /// The function that decodes an address of the window: the first one, if a guest has put two in one place.
    fn decoder(&mut self, address: u64) -> Option<(&mut Box<dyn Function>, usize, u64)> {
        self.functions.iter_mut().find_map(|Placed { function, .. }| {
            let (bar, offset) = function.configuration().decode(address)?;
            Some((function, bar, offset))
        })
    }
}
