//! What a slot of the PCI bus holds, as the bus sees it.

use super::configuration::Configuration;
use crate::bus::Size;
use crate::saved::{Busy, Parts, Unfit};

/// What is in a slot.
pub trait Function: Send {
    /// Its configuration space.
    fn configuration(&mut self) -> &mut Configuration;

    /// A load from its configuration space.
    fn read_configuration(&mut self, offset: usize, size: Size) -> u32 {
        self.configuration().read(offset, size)
    }

    /// A store to its configuration space.
    fn write_configuration(&mut self, offset: usize, size: Size, value: u32) {
        self.configuration().write(offset, size, value);
    }

    /// A load from the memory behind a base address.
    fn read(&mut self, bar: usize, offset: u64, size: Size) -> u64;

    /// A store to it.
    fn write(&mut self, bar: usize, offset: u64, size: Size, value: u64);

    /// As after power-on, but for its configuration space, which is the bus's to reset.
    fn reset(&mut self);

    /// Come to rest until [`Self::thaw`], and add what a machine that goes on from here has to know
    /// ([`crate::saved`]), but for the configuration space and the messages. No processor runs.
    ///
    /// # Errors
    ///
    /// [`Busy`] when it does not come to rest.
    fn save(&mut self, parts: &mut Parts) -> Result<(), Busy> {
        let _ = parts;
        Ok(())
    }

    /// End the rest.
    fn thaw(&mut self) {}

    /// Take what it has added, and go on from there. No processor runs yet.
    ///
    /// # Errors
    ///
    /// [`Unfit`] when that is no state of such a function.
    fn restore(&mut self, parts: &mut Parts) -> Result<(), Unfit> {
        let _ = parts;
        Ok(())
    }
}
