//! Which I/O port of the PC belongs to which chip.

use crate::bus::{self, Plugged, Ports, Width};
use crate::layout::port;
use crate::power;

/// What decodes a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    Pic(u8),
    PicLevelControl,
    Pit,
    ControlB,
    KeyboardData,
    KeyboardCommand,
    Rtc,
    ControlA,
    Power,
    ResetControl,
    PciAddress,
    PciData,
    Plugged(Plugged),
}

impl From<Plugged> for Target {
    fn from(device: Plugged) -> Self {
        Self::Plugged(device)
    }
}

/// Claim the ports of the chip set's own chips, of which firmware expects some elsewhere.
pub(super) fn claim(ports: &mut Ports<Target>, firmware: bool) -> Result<(), bus::Error> {
    let bytes = [
        ("8259", port::PIC_PRIMARY, 2, Target::Pic(0)),
        ("8259", port::PIC_SECONDARY, 2, Target::Pic(1)),
        ("ELCR", port::PIC_EDGE_LEVEL, 2, Target::PicLevelControl),
        ("8254", port::PIT, 4, Target::Pit),
        ("system control port B", port::SYSTEM_CONTROL_B, 1, Target::ControlB),
        ("keyboard controller", port::KEYBOARD_DATA, 1, Target::KeyboardData),
        ("keyboard controller", port::KEYBOARD_COMMAND, 1, Target::KeyboardCommand),
        ("RTC", port::RTC, 2, Target::Rtc),
        ("system control port A", port::SYSTEM_CONTROL_A, 1, Target::ControlA),
        ("reset control", port::RESET, 1, Target::ResetControl),
    ];
    for (name, first, count, target) in bytes {
        ports.claim(name, first, count, Width::Byte, target)?;
    }
    ports.claim("PCI address", port::PCI_ADDRESS, 1, Width::Any, Target::PciAddress)?;
    ports.claim("PCI data", port::PCI_DATA, 4, Width::Any, Target::PciData)?;
    let power = power::offset::END;
    if firmware {
        let also = port::POWER_OF_PIIX4;
        ports.claim("power management", also, power, Width::Any, Target::Power)?;
    }
    ports.claim("power management", port::POWER, power, Width::Any, Target::Power)
}
