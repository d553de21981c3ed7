//! The bridge between the processors and the bus, as QEMU's generic one identifies itself. It has
//! nothing to set: where the bus is, the ACPI tables say.

use super::configuration::{Configuration, Identity};
use super::function::Function;
use crate::bus::Size;

/// Red Hat, QEMU PCIe host bridge; class: bridge, host.
const IDENTITY: Identity =
    Identity { vendor: 0x1b36, device: 0x0008, class: 0x06_00_00, revision: 0, subsystem: (0, 0) };

pub(super) struct HostBridge(Configuration);

impl Default for HostBridge {
    fn default() -> Self {
        Self(Configuration::new(IDENTITY))
    }
}

impl Function for HostBridge {
    fn configuration(&mut self) -> &mut Configuration {
        &mut self.0
    }

    fn read(&mut self, _bar: usize, _offset: u64, _size: Size) -> u64 {
        u64::MAX
    }

    fn write(&mut self, _bar: usize, _offset: u64, _size: Size, _value: u64) {}

    fn reset(&mut self) {}
}
