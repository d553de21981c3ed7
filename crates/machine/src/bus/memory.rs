//! Devices at memory addresses that are theirs from the start. (Those on the PCI bus are where the guest puts them, and
//! the interrupt controllers are the board's own.)

use vm_memory::GuestAddress;

use super::{Error, Size};
use crate::limits::MAX_BUS_DEVICES;

/// A device that is reached through memory addresses. No snapshot has its state.
pub trait MemoryDevice: Send {
    /// A load at `offset` from the first address. Bits beyond `size` are ignored.
    fn read(&mut self, offset: u64, size: Size) -> u64;

    /// A store: bits of `value` beyond `size` are zero.
    fn write(&mut self, offset: u64, size: Size, value: u64);

    /// As after power-on; what is connected to the device, and what it keeps without power, stays.
    fn reset(&mut self);
}

/// A device and its addresses.
struct Placed {
    name: &'static str,
    first: u64,
    last: u64,
    device: Box<dyn MemoryDevice>,
}

/// All of a board's. An access belongs to the device at its first byte.
#[derive(Default)]
pub(crate) struct MemoryBus(Vec<Placed>);

impl MemoryBus {
    /// Plug in a device that decodes `bytes` addresses from `first` on.
    pub fn add(
        &mut self,
        name: &'static str,
        first: GuestAddress,
        bytes: u64,
        device: Box<dyn MemoryDevice>,
    ) -> Result<(), Error> {
        let GuestAddress(first) = first;
        let last = bytes.checked_sub(1).and_then(|more| first.checked_add(more));
        let last = last.ok_or(Error::BadRange { name, address: first })?;
        if let Some(other) = self.0.iter().find(|it| it.first <= last && first <= it.last) {
            let address = first.max(other.first);
            return Err(Error::Taken { name, address, other: other.name });
        }
        if self.0.len() >= MAX_BUS_DEVICES {
            return Err(Error::Full { name });
        }
        self.0.push(Placed { name, first, last, device });
        Ok(())
    }

    /// All devices as after power-on.
    pub fn reset(&mut self) {
        self.0.iter_mut().for_each(|placed| placed.device.reset());
    }

    /// A load, if a device is there. Bits beyond `size` are zero.
    #[inline]
    pub fn read(&mut self, GuestAddress(address): GuestAddress, size: Size) -> Option<u64> {
        let placed = self.find(address)?;
        Some(placed.device.read(address - placed.first, size) & size.mask())
    }

    /// A store; whether a device is there.
    #[inline]
    pub fn write(&mut self, GuestAddress(at): GuestAddress, size: Size, value: u64) -> bool {
        let Some(placed) = self.find(at) else { return false };
        placed.device.write(at - placed.first, size, value & size.mask());
        true
    }

    fn find(&mut self, address: u64) -> Option<&mut Placed> {
        self.0.iter_mut().find(|placed| (placed.first..=placed.last).contains(&address))
    }
}
