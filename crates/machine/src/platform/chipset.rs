//! What all processors share and one at a time may use: buses, devices, the interrupt controllers
//! that lines lead to, and the timers that belong to no processor.

use std::sync::Arc;

use vm_memory::GuestAddress;

use super::port_map::Target;
use crate::board::Config;
use crate::bus::{MemoryBus, PortBus, Size};
use crate::interrupts::Controllers;
use crate::layout::{APIC_BYTES, DEVICE_HOLE, HIGH_MEMORY, IO_APIC, irq};
use crate::pci::Root;
use crate::power::{Keyboard, Power};
use crate::request::Requests;
use crate::time::{Clock, Nanoseconds};
use crate::timers::{Pit, Rtc};

/// The chip set and what is plugged in.
pub(super) struct Chipset {
    pub clock: Arc<dyn Clock>,
    pub controllers: Controllers,
    pub port_bus: PortBus<Target>,
    pub memory_bus: MemoryBus,
    pub pci: Root,
    pub pit: Pit,
    pub rtc: Rtc,
    pub power: Power,
    pub keyboard: Keyboard,
    pub(super) requests: Requests,
}

impl Chipset {
    /// Just switched on, with nothing plugged in.
    pub fn new(
        clock: Arc<dyn Clock>,
        controllers: Controllers,
        requests: Requests,
        pci: Root,
    ) -> Self {
        let now = clock.now();
        Self {
            clock,
            controllers,
            port_bus: PortBus::default(),
            memory_bus: MemoryBus::default(),
            pci,
            pit: Pit::default(),
            rtc: Rtc::default(),
            power: Power::new(requests.clone(), now),
            keyboard: Keyboard::new(requests.clone()),
            requests,
        }
    }

    /// As after power-on; devices stay plugged in, the clock keeps the time.
    pub fn reset(&mut self) {
        let now = self.clock.now();
        self.port_bus.reset();
        self.memory_bus.reset();
        self.pci.reset();
        self.pit = Pit::default();
        self.rtc.reset();
        self.power = Power::new(self.requests.clone(), now);
        self.keyboard = Keyboard::new(self.requests.clone());
        self.drive_own_lines();
        self.controllers.reset();
    }

    /// What a PC's firmware has set up when it hands over.
    pub fn initialize_as_firmware(&mut self) {
        let now = self.clock.now();
        self.pit.initialize_as_firmware(now);
        self.controllers.pic().initialize_as_firmware();
        self.controllers.pic_changed();
    }

    /// When the first timer has something to do.
    #[inline]
    pub fn next_deadline(&self) -> Nanoseconds {
        let chips = self.pit.next_deadline().min(self.rtc.next_deadline());
        chips.min(self.power.next_deadline())
    }

    /// Do what is due.
    pub fn expire(&mut self, now: Nanoseconds) {
        if self.pit.advance(now) {
            self.controllers.pulse_input(irq::PIT);
        }
        if now >= self.rtc.next_deadline() {
            self.rtc.advance(&*self.clock);
        }
        if now >= self.power.next_deadline() {
            self.power.advance(now);
        }
        self.drive_own_lines();
    }

    /// The clock's and the power block's lines follow their state.
    pub fn drive_own_lines(&mut self) {
        self.controllers.set_input(irq::RTC, self.rtc.interrupts());
        self.controllers.set_input(irq::SCI, self.power.interrupts());
    }

    /// A load that is not the local APIC's; one where no device is reads as all ones.
    pub fn mmio_read(&mut self, address: GuestAddress, size: Size) -> u64 {
        let within = address.0 & (APIC_BYTES - 1);
        if address.0 - within == IO_APIC.0 {
            self.controllers.synchronize();
            return part_of(self.controllers.read_io_apic(within & !3), within, size);
        }
        if let Some(value) = self.memory_bus.read(address, size) {
            return value;
        }
        if self.pci.is_at(address) {
            return self.pci.read(address, size) & size.mask();
        }
        size.mask()
    }

    /// A store that is not the local APIC's; one where no device is is lost.
    pub fn mmio_write(&mut self, address: GuestAddress, size: Size, value: u64) {
        let within = address.0 & (APIC_BYTES - 1);
        if address.0 - within == IO_APIC.0 {
            if is_whole(within, size) {
                self.controllers.synchronize();
                self.controllers.write_io_apic(within, value as u32);
            }
        } else if !self.memory_bus.write(address, size, value) && self.pci.is_at(address) {
            self.pci.write(address, size, value & size.mask());
        }
    }

    /// The sizes that firmware leaves in the clock's memory (QEMU, hw/i386/pc.c).
    pub fn describe_memory(&mut self, config: &Config) {
        let low = config.memory_bytes.min(DEVICE_HOLE.0);
        let high = config.memory_bytes - low;
        let conventional = [0x15, 0x16];
        let extended = [0x17, 0x18, 0x30, 0x31];
        let above_16m = [0x34, 0x35];
        let above_4g = [0x5b, 0x5c, 0x5d];
        let kib = (low.saturating_sub(HIGH_MEMORY.0) >> 10).min(0xffff) as u16;
        let chunks = (low.saturating_sub(16 << 20) >> 16).min(0xffff) as u16;
        let bytes = |value: u64| (0..8).map(move |n| (value >> (8 * n)) as u8);
        let kib_twice = u64::from(kib) << 16 | u64::from(kib);
        let all = conventional.into_iter().zip(bytes(640));
        let all = all.chain(extended.into_iter().zip(bytes(kib_twice)));
        let all = all.chain(above_16m.into_iter().zip(bytes(chunks.into())));
        for (at, value) in all.chain(above_4g.into_iter().zip(bytes(high >> 16))) {
            self.rtc.set_memory(at, value);
        }
        // The number of the last processor (QEMU, the same).
        self.rtc.set_memory(0x5f, config.processors.saturating_sub(1) as u8);
    }
}

/// Any part of a register of an APIC may be loaded.
pub(super) fn part_of(register: u32, within: u64, size: Size) -> u64 {
    u64::from(register) >> (8 * (within & 3)) & size.mask()
}

/// The APICs take aligned stores of 4 bytes or more, of which the low 4 count; the manual leaves the
/// others undefined (SDM 3A 11.4.1), and they are lost.
#[inline]
pub(super) fn is_whole(within: u64, size: Size) -> bool {
    within & 3 == 0 && size >= Size::Dword
}
