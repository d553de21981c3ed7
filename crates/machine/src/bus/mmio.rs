//! Devices in guest-physical address space.

use vm_memory::GuestAddress;

use super::{Error, Size};
use crate::limits::MAX_BUS_DEVICES;

/// A device that is reached through memory addresses.
pub trait MmioDevice: Send {
    /// A load at `offset` from the device's first address. Bits beyond `size` are ignored.
    fn read(&mut self, offset: u64, size: Size) -> u64;

    /// A store; bits of `value` beyond `size` are zero.
    fn write(&mut self, offset: u64, size: Size, value: u64);

    /// As after power-on; what is connected to the device stays.
    fn reset(&mut self);
}

struct Slot {
    start: u64,
    /// The last address: a device may end where the address space does.
    last: u64,
    name: &'static str,
    device: Box<dyn MmioDevice>,
}

/// Which address belongs to which device, in rising order.
#[derive(Default)]
pub struct Mmio {
    slots: Vec<Slot>,
}

impl Mmio {
    /// Put `device` at the `size` bytes from `start` on.
    ///
    /// # Errors
    ///
    /// [`Error`] when the range is not free or not a range.
    pub fn register(
        &mut self,
        name: &'static str,
        start: GuestAddress,
        size: u64,
        device: Box<dyn MmioDevice>,
    ) -> Result<(), Error> {
        let last = size.checked_sub(1).and_then(|more| start.0.checked_add(more));
        let last = last.ok_or(Error::BadRange { name, address: start.0 })?;
        if let Some(other) = self.slots.iter().find(|s| s.start <= last && start.0 <= s.last) {
            let address = other.start.max(start.0);
            return Err(Error::Taken { name, address, other: other.name });
        }
        if self.slots.len() >= MAX_BUS_DEVICES {
            return Err(Error::Full { name });
        }
        let at = self.slots.partition_point(|slot| slot.start < start.0);
        self.slots.insert(at, Slot { start: start.0, last, name, device });
        Ok(())
    }

    /// A load by the guest.
    pub fn read(&mut self, address: GuestAddress, size: Size) -> u64 {
        match self.find(address) {
            Some(slot) => slot.device.read(address.0 - slot.start, size) & size.mask(),
            None => size.mask(),
        }
    }

    /// A store by the guest.
    pub fn write(&mut self, address: GuestAddress, size: Size, value: u64) {
        if let Some(slot) = self.find(address) {
            slot.device.write(address.0 - slot.start, size, value & size.mask());
        }
    }

    /// Reset every device.
    pub fn reset(&mut self) {
        for slot in &mut self.slots {
            slot.device.reset();
        }
    }

    fn find(&mut self, address: GuestAddress) -> Option<&mut Slot> {
        let after = self.slots.partition_point(|slot| slot.start <= address.0);
        let slot = self.slots.get_mut(after.checked_sub(1)?)?;
        (address.0 <= slot.last).then_some(slot)
    }
}
