//! The 65536 I/O ports. Finding a device is one load from a table.

use super::{Error, Size};
use crate::limits::MAX_BUS_DEVICES;
use crate::saved::{self, Unfit};

/// A device that is reached through I/O ports.
pub trait PortDevice: Send {
    /// Its kind, the name that its saved state has.
    fn kind(&self) -> &'static str;

    /// `in`: the value at `offset` from the first port. Bits beyond `size` are ignored.
    fn read(&mut self, offset: u16, size: Size) -> u32;

    /// `out`: bits of `value` beyond `size` are zero.
    fn write(&mut self, offset: u16, size: Size, value: u32);

    /// As after power-on; what is connected to the device stays.
    fn reset(&mut self);

    /// What a machine that goes on from here has to know ([`crate::saved`]).
    fn save(&self) -> Vec<u8> {
        Vec::new()
    }

    /// The newest version of that; [`Self::restore`] is given any from 1 up to it.
    fn version(&self) -> u32 {
        1
    }

    /// Go on from there, and drive lines as that has it.
    ///
    /// # Errors
    ///
    /// [`Unfit`] when that is no state of such a device.
    fn restore(&mut self, version: u32, state: &[u8]) -> Result<(), Unfit> {
        saved::check(version == 1 && state.is_empty(), self.kind())
    }
}

/// How wide a device's data path is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Width {
    /// A wider access is made of several of one byte each, at rising ports, which may belong to
    /// other devices of one byte (the chips of the PC/AT).
    Byte,
    /// The device is given accesses as they are.
    Any,
}

/// What decodes a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route<T> {
    /// The device.
    pub target: T,
    /// Its first port.
    pub first: u16,
    /// Its last port.
    pub last: u16,
    /// How it is to be accessed.
    pub width: Width,
    /// For people.
    pub name: &'static str,
}

/// Which port belongs to which `T`.
#[derive(Debug)]
pub struct Ports<T> {
    /// Index into `routes` plus one; 0 where no device is.
    slots: Box<[u8]>,
    routes: Vec<Route<T>>,
}

impl<T: Copy> Default for Ports<T> {
    fn default() -> Self {
        Self { slots: vec![0; 1 << 16].into_boxed_slice(), routes: Vec::new() }
    }
}

impl<T: Copy> Ports<T> {
    /// Give `count` ports from `first` on to `target`.
    ///
    /// # Errors
    ///
    /// [`Error`] when the range is not free or not a range.
    pub fn claim(
        &mut self,
        name: &'static str,
        first: u16,
        count: u16,
        width: Width,
        target: T,
    ) -> Result<(), Error> {
        let address = u64::from(first);
        let last = count.checked_sub(1).and_then(|more| first.checked_add(more));
        let last = last.ok_or(Error::BadRange { name, address })?;
        if let Some(port) = (first..=last).find(|&port| self.find(port).is_some()) {
            let other = self.find(port).map_or("another device", |route| route.name);
            return Err(Error::Taken { name, address: u64::from(port), other });
        }
        if self.routes.len() >= MAX_BUS_DEVICES {
            return Err(Error::Full { name });
        }
        self.routes.push(Route { target, first, last, width, name });
        self.slots[usize::from(first)..=usize::from(last)].fill(self.routes.len() as u8);
        Ok(())
    }

    /// What decodes `port`.
    #[inline]
    pub fn find(&self, port: u16) -> Option<&Route<T>> {
        let slot = usize::from(self.slots[usize::from(port)]);
        self.routes.get(slot.wrapping_sub(1))
    }
}

impl<T> Route<T> {
    /// Whether an access goes to the device as it is, not byte by byte.
    #[inline]
    pub fn takes_whole(&self, size: Size) -> bool {
        size == Size::Byte || self.width == Width::Any
    }
}
