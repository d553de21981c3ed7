//! Accesses to the I/O ports of a board, and the devices that are plugged in there. Every board has the same rules: an
//! access belongs to the device that decodes its first port; a device with a data path of one byte is accessed byte by
//! byte.

use super::ports::{PortDevice, Ports, Route, Width};
use super::{Error, Size};
use crate::saved::{Parts, Unfit};

/// A device that is plugged in, as [`Ports`] names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Plugged(u8);

/// The ports of a board, of which a chip or a device `T` decodes each, and the devices that are plugged in.
pub(crate) struct PortBus<T> {
    pub ports: Ports<T>,
    devices: Vec<Box<dyn PortDevice>>,
}

impl<T: Copy> Default for PortBus<T> {
    fn default() -> Self {
        Self { ports: Ports::default(), devices: Vec::new() }
    }
}

impl<T: Copy + From<Plugged>> PortBus<T> {
    /// Plug in a device that decodes `count` ports from `first` on.
    pub fn add(
        &mut self,
        name: &'static str,
        first: u16,
        count: u16,
        width: Width,
        device: Box<dyn PortDevice>,
    ) -> Result<(), Error> {
        // Each device has a range of its own, of which there are fewer than 256 (`MAX_BUS_DEVICES`).
        let number = Plugged(self.devices.len() as u8);
        self.ports.claim(name, first, count, width, number.into())?;
        self.devices.push(device);
        Ok(())
    }
}

impl<T> PortBus<T> {
    /// `in` from a device that is plugged in.
    pub fn read(&mut self, Plugged(number): Plugged, offset: u16, size: Size) -> u32 {
        let device = self.devices.get_mut(usize::from(number));
        device.map_or(u32::MAX, |device| device.read(offset, size))
    }

    /// `out` to a device that is plugged in.
    pub fn write(&mut self, Plugged(number): Plugged, offset: u16, size: Size, value: u32) {
        if let Some(device) = self.devices.get_mut(usize::from(number)) {
            device.write(offset, size, value);
        }
    }

    /// All devices as after power-on.
    pub fn reset(&mut self) {
        self.devices.iter_mut().for_each(|device| device.reset());
    }

    /// Add the state of each device.
    pub fn save(&self, parts: &mut Parts) {
        for device in &self.devices {
            parts.add_bytes(device.kind(), device.version(), device.save());
        }
    }

    /// Go on from what [`Self::save`] has added.
    pub fn restore(&mut self, parts: &mut Parts) -> Result<(), Unfit> {
        for device in &mut self.devices {
            let saved = parts.take_versions(device.kind(), device.version())?;
            device.restore(saved.version, &saved.bytes)?;
        }
        Ok(())
    }
}

/// What decodes the I/O ports of a board: the chips `Target` of its own, and what is plugged in.
pub(crate) trait Decoder {
    /// Names a chip or a device.
    type Target: Copy;

    /// Which target decodes which port.
    fn ports(&self) -> &Ports<Self::Target>;

    /// `in` from a target, as it takes accesses. Bits beyond `size` are ignored.
    fn read_target(&mut self, route: &Route<Self::Target>, port: u16, size: Size) -> u32;

    /// `out` to a target, as it takes accesses. Bits of `value` beyond `size` are zero.
    fn write_target(&mut self, route: &Route<Self::Target>, port: u16, size: Size, value: u32);

    /// `in`: `size` is 1, 2 or 4.
    #[inline]
    fn port_read(&mut self, port: u16, size: u8) -> u32 {
        let Some(size) = port_size(size) else { return u32::MAX };
        let mask = size.mask() as u32;
        let value = match self.ports().find(port).copied() {
            None => mask,
            Some(route) if route.takes_whole(size) => self.read_target(&route, port, size),
            Some(_) => self.read_bytes(port, size),
        };
        value & mask
    }

    /// `out`: `size` is 1, 2 or 4.
    #[inline]
    fn port_write(&mut self, port: u16, size: u8, value: u32) {
        let Some(size) = port_size(size) else { return };
        let value = value & size.mask() as u32;
        match self.ports().find(port).copied() {
            None => {}
            Some(route) if route.takes_whole(size) => self.write_target(&route, port, size, value),
            Some(_) => self.write_bytes(port, size, value),
        }
    }

    /// One byte at a time; what does not belong to a device of one byte reads as ones.
    fn read_bytes(&mut self, port: u16, size: Size) -> u32 {
        (0..size.bytes()).fold(0, |value, n| {
            let at = port.wrapping_add(n.into());
            let byte = match self.byte_wide(at) {
                Some(route) => self.read_target(&route, at, Size::Byte) & 0xff,
                None => 0xff,
            };
            value | byte << (8 * n)
        })
    }

    /// Likewise.
    fn write_bytes(&mut self, port: u16, size: Size, value: u32) {
        for n in 0..size.bytes() {
            let at = port.wrapping_add(n.into());
            if let Some(route) = self.byte_wide(at) {
                self.write_target(&route, at, Size::Byte, value >> (8 * n) & 0xff);
            }
        }
    }

    /// The target that decodes `port`, if its data path is one byte wide.
    fn byte_wide(&self, port: u16) -> Option<Route<Self::Target>> {
        self.ports().find(port).filter(|route| route.width == Width::Byte).copied()
    }
}

/// `in` and `out` move 1, 2 or 4 bytes.
#[inline]
fn port_size(bytes: u8) -> Option<Size> {
    Size::from_bytes(bytes).filter(|size| *size <= Size::Dword)
}
