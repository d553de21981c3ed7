//! The port bus of the platform: its own devices and those that are plugged in.

use super::chipset::Chipset;
use crate::bus::{self, Route, Size, Width};
use crate::interrupts::Pic;
use crate::layout::port;
use crate::power;

/// Who decodes a port.
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
    Plugged(u8),
}

impl Chipset {
    /// `in`: `size` is 1, 2 or 4.
    #[inline]
    pub fn port_read(&mut self, port: u16, size: u8) -> u32 {
        let Some(size) = port_size(size) else { return u32::MAX };
        let mask = size.mask() as u32;
        let value = match self.ports.find(port).copied() {
            None => mask,
            Some(route) if route.takes_whole(size) => self.read_port_of(&route, port, size),
            Some(_) => self.read_bytes(port, size),
        };
        value & mask
    }

    /// `out`: `size` is 1, 2 or 4.
    #[inline]
    pub fn port_write(&mut self, port: u16, size: u8, value: u32) {
        let Some(size) = port_size(size) else { return };
        let value = value & size.mask() as u32;
        match self.ports.find(port).copied() {
            None => {}
            Some(route) if route.takes_whole(size) => self.write_port_of(&route, port, size, value),
            Some(_) => self.write_bytes(port, size, value),
        }
    }

    pub(super) fn claim_own_ports(&mut self) -> Result<(), bus::Error> {
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
            self.ports.claim(name, first, count, Width::Byte, target)?;
        }
        self.ports.claim("PCI address", port::PCI_ADDRESS, 1, Width::Any, Target::PciAddress)?;
        self.ports.claim("PCI data", port::PCI_DATA, 4, Width::Any, Target::PciData)?;
        let power = power::offset::END;
        self.ports.claim("power management", port::POWER, power, Width::Any, Target::Power)
    }

    /// One byte at a time; what does not belong to a device of one byte reads as ones.
    fn read_bytes(&mut self, port: u16, size: Size) -> u32 {
        (0..size.bytes()).fold(0, |value, n| {
            let at = port.wrapping_add(n.into());
            let byte = match self.byte_wide(at) {
                Some(route) => self.read_port_of(&route, at, Size::Byte) & 0xff,
                None => 0xff,
            };
            value | byte << (8 * n)
        })
    }

    fn write_bytes(&mut self, port: u16, size: Size, value: u32) {
        for n in 0..size.bytes() {
            let at = port.wrapping_add(n.into());
            if let Some(route) = self.byte_wide(at) {
                self.write_port_of(&route, at, Size::Byte, value >> (8 * n) & 0xff);
            }
        }
    }

    fn byte_wide(&self, port: u16) -> Option<Route<Target>> {
        self.ports.find(port).filter(|route| route.width == Width::Byte).copied()
    }

    fn read_port_of(&mut self, route: &Route<Target>, port: u16, size: Size) -> u32 {
        let offset = port - route.first;
        let clock = &*self.clock;
        let byte = match route.target {
            Target::Plugged(index) => {
                let device = self.port_devices.get_mut(usize::from(index));
                return device.map_or(u32::MAX, |device| device.read(offset, size));
            }
            Target::PciAddress => return self.pci.read_mechanism(size),
            Target::PciData => return self.pci.read_data(offset, size),
            Target::Power => return self.power.read(offset, size, clock),
            Target::Pic(chip) => self.with_pic(|pic| pic.read(chip.into(), offset)),
            Target::PicLevelControl => self.controllers.pic().read_level_control(offset.into()),
            Target::Pit => self.pit.read(offset, clock.now()),
            Target::ControlB => self.pit.read_control_b(clock.now()),
            Target::KeyboardData => self.keyboard.read_data(),
            Target::KeyboardCommand => self.keyboard.read_status(),
            Target::Rtc => {
                let value = self.rtc.read(offset, clock);
                self.drive_own_lines();
                value
            }
            Target::ControlA => self.power.read_control_a(),
            Target::ResetControl => self.power.read_reset_control(),
        };
        byte.into()
    }

    fn write_port_of(&mut self, route: &Route<Target>, port: u16, size: Size, value: u32) {
        let offset = port - route.first;
        let byte = value as u8;
        let clock = &*self.clock;
        match route.target {
            Target::Plugged(index) => {
                if let Some(device) = self.port_devices.get_mut(usize::from(index)) {
                    device.write(offset, size, value);
                }
            }
            Target::PciAddress => self.pci.write_mechanism(size, value),
            Target::PciData => self.pci.write_data(offset, size, value),
            Target::Pic(chip) => self.with_pic(|pic| pic.write(chip.into(), offset, byte)),
            Target::PicLevelControl => {
                self.with_pic(|pic| pic.write_level_control(offset.into(), byte));
            }
            Target::Pit => self.pit.write(offset, byte, clock.now()),
            Target::ControlB => self.pit.write_control_b(byte, clock.now()),
            Target::KeyboardData => self.keyboard.write_data(byte),
            Target::KeyboardCommand => self.keyboard.write_command(byte),
            Target::Rtc => {
                self.rtc.write(offset, byte, clock);
                self.drive_own_lines();
            }
            Target::ControlA => self.power.write_control_a(byte),
            Target::Power => {
                self.power.write(offset, size, value, clock);
                self.drive_own_lines();
            }
            Target::ResetControl => self.power.write_reset_control(byte),
        }
    }

    /// What is done to the 8259 pair can change what it asks of the processors.
    fn with_pic<R>(&mut self, act: impl FnOnce(&mut Pic) -> R) -> R {
        self.controllers.synchronize();
        let result = act(self.controllers.pic());
        self.controllers.pic_changed();
        result
    }
}

/// `in` and `out` move 1, 2 or 4 bytes.
#[inline]
fn port_size(bytes: u8) -> Option<Size> {
    Size::from_bytes(bytes).filter(|size| *size <= Size::Dword)
}
