//! QEMU's `isa-debug-exit`: a write ends the virtual machine monitor with status
//! `value << 1 | 1`, so that test kernels can report (QEMU, hw/misc/debugexit.c).

mod bits;
#[cfg(test)]
mod tests;

use machine::bus::{PortDevice, Size, Width};
use machine::{Backplane, Request, Requests, bus, layout};

/// The kind of the device, which its saved state is kept by (QEMU has the same name).
pub const KIND: &str = "isa-debug-exit";

/// The port.
#[derive(Debug)]
pub struct DebugExit {
    requests: Requests,
}

impl DebugExit {
    /// A port that leaves its requests there.
    pub fn new(requests: Requests) -> Self {
        Self { requests }
    }

    /// Plug one in where test kernels expect it.
    ///
    /// # Errors
    ///
    /// [`bus::Error`] when something else is there.
    pub fn plug_into(board: &mut dyn Backplane) -> Result<(), bus::Error> {
        let device = Box::new(Self::new(board.requests()));
        let first = layout::port::DEBUG_EXIT;
        board.add_port_device("debug exit", first, bits::PORTS, Width::Any, device)
    }
}

impl PortDevice for DebugExit {
    fn kind(&self) -> &'static str {
        KIND
    }

    fn read(&mut self, _offset: u16, _size: Size) -> u32 {
        0
    }

    fn write(&mut self, _offset: u16, _size: Size, value: u32) {
        self.requests.make(Request::DebugExit(value));
    }

    fn reset(&mut self) {}
}
