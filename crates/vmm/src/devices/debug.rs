//! The ports that test kernels speak to: the debug console, which firmware has at a port of its own, and debug exit.

use std::fmt;
use std::io::Write;

use machine::layout::port;

use super::collector::Collector;
use super::{Device, Slots};
use crate::outcome::Error;

/// The debug console at port 0xe9, and at 0x402 in a machine with firmware.
pub struct DebugConsole(Box<dyn Write + Send>);

impl DebugConsole {
    /// One whose characters go to `output`.
    #[must_use]
    pub fn new(output: Box<dyn Write + Send>) -> Self {
        Self(output)
    }
}

impl fmt::Debug for DebugConsole {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("DebugConsole")
    }
}

impl Device for DebugConsole {
    fn kind(&self) -> &'static str {
        devices::debug_console::KIND
    }

    fn plug_in(self: Box<Self>, slots: &mut Slots<'_>) -> Result<(), Error> {
        let collector = Collector::new(Some(self.0));
        let has_log = slots.firmware_bytes.map(|_| port::FIRMWARE_LOG);
        for first in [port::DEBUG_CONSOLE].into_iter().chain(has_log) {
            let output = Box::new(collector.clone());
            devices::DebugConsole::plug_into(slots.board(), first, output)?;
        }
        slots.plugged.polled.collectors.push(collector);
        Ok(())
    }
}

/// The debug-exit port at 0xf4.
#[derive(Debug, Default)]
pub struct DebugExit;

impl Device for DebugExit {
    fn kind(&self) -> &'static str {
        devices::debug_exit::KIND
    }

    fn plug_in(self: Box<Self>, slots: &mut Slots<'_>) -> Result<(), Error> {
        Ok(devices::DebugExit::plug_into(slots.board())?)
    }
}
