//! The port 0xe9 of Bochs and QEMU's `isa-debugcon`: every byte written is a character.

mod bits;
#[cfg(test)]
mod tests;

use std::io::Write;

use machine::bus::{PortDevice, Size, Width};
use machine::{Backplane, bus};

/// The kind of the device, which its saved state is kept by (QEMU has the same name).
pub const KIND: &str = "isa-debugcon";

/// The port.
pub struct DebugConsole {
    output: Box<dyn Write + Send>,
}

impl DebugConsole {
    /// A port whose characters go there. What cannot be written is lost.
    pub fn new(output: Box<dyn Write + Send>) -> Self {
        Self { output }
    }

    /// Plug one in where kernels expect it, or at another port: that of firmware's log.
    ///
    /// # Errors
    ///
    /// [`bus::Error`] when something else is there.
    pub fn plug_into(
        board: &mut dyn Backplane,
        first: u16,
        output: Box<dyn Write + Send>,
    ) -> Result<(), bus::Error> {
        let device = Box::new(Self::new(output));
        board.add_port_device("debug console", first, bits::PORTS, Width::Byte, device)
    }
}

impl PortDevice for DebugConsole {
    fn kind(&self) -> &'static str {
        KIND
    }

    fn read(&mut self, _offset: u16, _size: Size) -> u32 {
        bits::PRESENT
    }

    fn write(&mut self, _offset: u16, _size: Size, value: u32) {
        let written = self.output.write_all(&[value as u8]).and_then(|()| self.output.flush());
        if let Err(error) = written {
            tracing::debug!(%error, "the debug console lost a character");
        }
    }

    fn reset(&mut self) {}
}
