//! The functions that are chips of the board itself, and have nothing but a configuration space.
//!
//! Without firmware that is the bridge between the processors and the bus, as QEMU's generic one identifies itself. It
//! has nothing to set: where the bus is, the ACPI tables say.
//!
//! Firmware for QEMU's PC asks the host bridge which chip set there is, and then relies on what that has (edk2,
//! OvmfPkg/Include/OvmfPlatforms.h). It finds the older one of QEMU's:
//!
//! 1. *An Intel 440FX* (82441FX; PMC). Its attribute registers say what of 0xc_0000 to 0xf_ffff is RAM; they can be
//!    written, and it is RAM always.
//! 2. *An ISA bridge* (PIIX3), by which firmware knows that there are serial ports. Its routes of interrupt pins are
//!    fixed: no function has a pin.
//! 3. *Power management* (PIIX4), a second function of the same slot. It is enabled at the ports where firmware would
//!    put it, because the ACPI tables, which are there before firmware runs, name its ports.

use super::configuration::{Configuration, Identity};
use super::function::Function;
use crate::bus::Size;
use crate::layout::port;

/// Red Hat, QEMU PCIe host bridge; class: bridge, host.
const HOST_BRIDGE: Identity =
    Identity { vendor: 0x1b36, device: 0x0008, class: 0x06_00_00, revision: 0, subsystem: (0, 0) };

/// Red Hat, QEMU virtual machine.
const QEMU: (u16, u16) = (0x1af4, 0x1100);

/// Intel 82441FX; class: bridge, host.
const I440FX: Identity =
    Identity { vendor: 0x8086, device: 0x1237, class: 0x06_00_00, revision: 2, subsystem: QEMU };

/// Intel 82371SB, function 0; class: bridge, ISA.
const PIIX3: Identity =
    Identity { vendor: 0x8086, device: 0x7000, class: 0x06_01_00, revision: 0, subsystem: QEMU };

/// Intel 82371AB, function 3; class: bridge, another.
const PIIX4_PM: Identity =
    Identity { vendor: 0x8086, device: 0x7113, class: 0x06_80_00, revision: 3, subsystem: QEMU };

/// Their registers.
mod offset {
    pub use crate::pci::bits::offset::COMMAND;

    /// Of the 440FX: the attributes of 0xc_0000 to 0xf_ffff, PAM0 to PAM6 at 0x59 and above.
    pub const ATTRIBUTES: [usize; 2] = [0x58, 0x5c];
    /// Of the PIIX3: where the four pins' interrupts go.
    pub const ROUTES: usize = 0x60;
    /// Of the PIIX4: the first port of power management, and what enables these.
    pub const POWER: usize = 0x40;
    pub const POWER_ENABLE: usize = 0x80;
}

/// Commands that are carried out for good: memory, and being a master; and ports.
const DECODES_MEMORY: u32 = 0x06;
const DECODES_ALL: u32 = 0x07;

/// A base address of ports.
const IS_PORTS: u32 = 1;

/// The interrupts of pins go nowhere (PIIX3, PIRQRC).
const NO_ROUTES: u32 = 0x8080_8080;

/// A chip.
pub(super) struct Chip(Configuration);

impl Chip {
    /// The host bridge of a board without firmware.
    pub(super) fn host_bridge() -> Self {
        Self(Configuration::new(HOST_BRIDGE))
    }

    /// What firmware finds, and where.
    pub(super) fn for_firmware() -> [(u8, Self); 3] {
        let power_ports = u32::from(port::POWER_OF_PIIX4) | IS_PORTS;
        let bridge = Configuration::new(I440FX)
            .with_register(offset::COMMAND, DECODES_MEMORY, 0)
            .with_register(offset::ATTRIBUTES[0], 0, 0xffff_ff00)
            .with_register(offset::ATTRIBUTES[1], 0, u32::MAX);
        let isa = Configuration::new(PIIX3)
            .of_several()
            .with_register(offset::COMMAND, DECODES_ALL, 0)
            .with_register(offset::ROUTES, NO_ROUTES, 0);
        let power = Configuration::new(PIIX4_PM)
            .of_several()
            .with_register(offset::COMMAND, DECODES_ALL, 0)
            .with_register(offset::POWER, power_ports, 0)
            .with_register(offset::POWER_ENABLE, 1, 0);
        [(0, Self(bridge)), (1 << 3, Self(isa)), (1 << 3 | 3, Self(power))]
    }
}

impl Function for Chip {
    fn configuration(&mut self) -> &mut Configuration {
        &mut self.0
    }

    fn read(&mut self, _bar: usize, _offset: u64, _size: Size) -> u64 {
        u64::MAX
    }

    fn write(&mut self, _bar: usize, _offset: u64, _size: Size, _value: u64) {}

    fn reset(&mut self) {}
}
