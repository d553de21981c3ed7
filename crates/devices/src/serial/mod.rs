//! A 16550 serial port: what the guest writes goes to a [`Write`], what it is to read comes through
//! an [`Input`] from any thread.
//!
//! The registers, the FIFO and the loop-back are `vm-superio`'s. Interrupts are identified here,
//! because its identification register forgets received data when it is read, and a driver that
//! takes one byte per interrupt would wait for ever.
//!
//! Nothing is lost and nobody is hurried: bytes are sent at once, and the FIFO takes input only when
//! the guest has enabled the receive interrupt, or polls for it. (A driver empties the FIFO when it
//! starts; what was typed before that stays with the sender.)
//!
//! Known differences: the divisor has no effect, there are no line errors and no modem, and the
//! FIFO holds 64 bytes whatever its trigger level.

mod bits;
mod input;
#[cfg(test)]
mod tests;
mod uart;

use std::io::Write;
use std::sync::Arc;

use input::Shared;
pub use input::{Closed, Input};
use machine::bus::{PortDevice, Size, Width};
use machine::layout::{irq, port};
use machine::saved::Unfit;
use machine::{Backplane, InterruptLine, bus};
use uart::Uart;

/// The kind of the device, which its saved state is kept by (QEMU has the same name).
pub const KIND: &str = "isa-serial";

/// The guest's side of the port; register it with [`Width::Byte`].
pub struct Serial {
    shared: Arc<Shared>,
}

/// Where PCs have serial ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ComPort {
    /// 0x3f8, interrupt 4.
    Com1,
    /// 0x2f8, interrupt 3.
    Com2,
}

impl Serial {
    /// A port that interrupts on `line`, and its other end. `output` is written and flushed for
    /// every byte, on the processor's thread: it must not wait for long.
    pub fn new(line: InterruptLine, output: Box<dyn Write + Send>) -> (Self, Input) {
        let shared = Arc::new(Shared::new(Uart::new(output), line));
        (Self { shared: Arc::clone(&shared) }, Input::new(shared))
    }

    /// Plug a port in and return its other end.
    ///
    /// # Errors
    ///
    /// [`bus::Error`] when something else is there.
    pub fn plug_into(
        board: &mut dyn Backplane,
        place: ComPort,
        output: Box<dyn Write + Send>,
    ) -> Result<Input, bus::Error> {
        let (name, first, input) = match place {
            ComPort::Com1 => ("COM1", port::COM1, irq::COM1),
            ComPort::Com2 => ("COM2", port::COM2, irq::COM2),
        };
        let (serial, other_end) = Self::new(board.line(input), output);
        let device = Box::new(serial);
        board.add_port_device(name, first, bits::PORTS, Width::Byte, device)?;
        Ok(other_end)
    }
}

impl PortDevice for Serial {
    fn kind(&self) -> &'static str {
        KIND
    }

    fn read(&mut self, offset: u16, _size: Size) -> u32 {
        self.shared.with_uart(|uart| uart.read(offset as u8)).into()
    }

    fn write(&mut self, offset: u16, _size: Size, value: u32) {
        self.shared.with_uart(|uart| uart.write(offset as u8, value as u8));
    }

    fn reset(&mut self) {
        self.shared.with_uart(Uart::reset);
    }

    fn save(&self) -> Vec<u8> {
        self.shared.look_at_uart(Uart::save)
    }

    fn restore(&mut self, _: u32, state: &[u8]) -> Result<(), Unfit> {
        self.shared.with_uart(|uart| uart.restore(state))?;
        self.shared.drive_line();
        Ok(())
    }
}
