//! Accesses to the I/O ports of the PC: the chip set dispatches each to a chip of its own or to a device that is
//! plugged in.

use super::chipset::Chipset;
use super::port_map::Target;
use crate::bus::{Decoder, Ports, Route, Size};
use crate::interrupts::Pic;

impl Decoder for Chipset {
    type Target = Target;

    fn ports(&self) -> &Ports<Target> {
        &self.port_bus.ports
    }

    fn read_target(&mut self, route: &Route<Target>, port: u16, size: Size) -> u32 {
        let offset = port - route.first;
        let clock = &*self.clock;
        let byte = match route.target {
            Target::Plugged(device) => return self.port_bus.read(device, offset, size),
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

    fn write_target(&mut self, route: &Route<Target>, port: u16, size: Size, value: u32) {
        let offset = port - route.first;
        let byte = value as u8;
        let clock = &*self.clock;
        match route.target {
            Target::Plugged(device) => self.port_bus.write(device, offset, size, value),
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
}

impl Chipset {
    /// What is done to the 8259 pair can change what it asks of the processors.
    fn with_pic<R>(&mut self, act: impl FnOnce(&mut Pic) -> R) -> R {
        self.controllers.synchronize();
        let result = act(self.controllers.pic());
        self.controllers.pic_changed();
        result
    }
}
