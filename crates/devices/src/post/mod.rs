//! Port 0x80: firmware shows its progress there, and Linux writes to it to pass a microsecond. It
//! remembers the last byte, as the page register of the chip set does that it belongs to.

mod bits;
#[cfg(test)]
mod tests;

use machine::bus::{PortDevice, Size, Width};
use machine::{Backplane, bus, layout};

/// The kind of the device, which its saved state is kept by.
pub const KIND: &str = "post";

/// The port.
#[derive(Debug, Default)]
pub struct Post {
    code: u8,
}

impl Post {
    /// Plug one in.
    ///
    /// # Errors
    ///
    /// [`bus::Error`] when something else is there.
    pub fn plug_into(board: &mut dyn Backplane) -> Result<(), bus::Error> {
        let device = Box::new(Self::default());
        board.add_port_device("POST", layout::port::POST, bits::PORTS, Width::Byte, device)
    }
}

impl PortDevice for Post {
    fn kind(&self) -> &'static str {
        KIND
    }

    fn read(&mut self, _offset: u16, _size: Size) -> u32 {
        self.code.into()
    }

    fn write(&mut self, _offset: u16, _size: Size, value: u32) {
        self.code = value as u8;
    }

    fn reset(&mut self) {
        self.code = bits::AFTER_RESET;
    }
}
