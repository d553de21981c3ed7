//! Port 0x80: firmware shows its progress there, and Linux writes to it to pass a microsecond. It
//! remembers the last byte, as the page register of the chip set does that it belongs to.

mod bits;
#[cfg(test)]
mod tests;

use machine::bus::{PortDevice, Size};

/// The port; register it with [`machine::bus::Width::Byte`].
#[derive(Debug, Default)]
pub struct Post {
    code: u8,
}

impl PortDevice for Post {
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
