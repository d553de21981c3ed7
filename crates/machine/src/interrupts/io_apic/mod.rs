//! The I/O APIC: 24 pins, each redirected to local APICs by an entry of a table (Intel 82093AA data sheet).
//!
//! It sends nothing itself: it returns the messages, and its owner, which knows the local APICs, delivers them. An edge
//! on a masked pin is lost, as on the real one.

mod bits;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

use bits::{Redirection, VERSION, index, offset};

use super::lines::INPUTS;
use super::message::{DeliveryMode, Destination, Message};

/// Pins.
pub const PINS: usize = INPUTS as usize;

/// Messages that one access or one edge of many pins makes.
#[derive(Debug, Default)]
pub struct Messages {
    /// One bit per pin that sends.
    pins: u32,
}

/// The I/O APIC.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct IoApic {
    id: u8,
    select: u8,
    entries: [Redirection; PINS],
    level: u32,
}

impl Default for IoApic {
    fn default() -> Self {
        Self { id: 0, select: 0, entries: [Redirection::RESET; PINS], level: 0 }
    }
}

impl IoApic {
    /// As after power-on; the devices still drive their lines.
    pub fn reset(&mut self) {
        *self = Self { level: self.level, ..Self::default() };
    }

    /// Drive `pin`; the message that goes out.
    pub fn set_pin(&mut self, pin: u8, level: bool) -> Option<Message> {
        let entry = *self.entries.get(usize::from(pin))?;
        let rises = level && self.level & 1 << pin == 0;
        self.level = if level { self.level | 1 << pin } else { self.level & !(1 << pin) };
        let sends = if entry.is_level() { level } else { rises };
        if sends { self.send(usize::from(pin)) } else { None }
    }

    /// An interrupt with `vector` has ended; the pins that still assert it send again.
    pub fn end_of_interrupt(&mut self, vector: u8) -> Messages {
        let mut pins = 0;
        for (pin, entry) in self.entries.iter_mut().enumerate() {
            if entry.awaits_end() && entry.vector() == vector {
                entry.set_awaits_end(false);
                pins |= 1 << pin;
            }
        }
        Messages { pins: pins & self.level }
    }

    /// The next message of an access, until there is none.
    pub fn next_message(&mut self, messages: &mut Messages) -> Option<Message> {
        while messages.pins != 0 {
            let pin = messages.pins.trailing_zeros() as usize;
            messages.pins &= messages.pins - 1;
            if let Some(message) = self.send(pin) {
                return Some(message);
            }
        }
        None
    }

    /// A 32-bit load from the MMIO page.
    pub fn read(&self, at: u64) -> u32 {
        match at {
            offset::SELECT => self.select.into(),
            offset::WINDOW => self.read_selected(),
            _ => 0,
        }
    }

    /// A 32-bit store to the MMIO page.
    pub fn write(&mut self, at: u64, value: u32) -> Messages {
        match at {
            offset::SELECT => self.select = value as u8,
            offset::WINDOW => return self.write_selected(value),
            offset::END_OF_INTERRUPT => return self.end_of_interrupt(value as u8),
            _ => {}
        }
        Messages::default()
    }

    fn read_selected(&self) -> u32 {
        match self.select {
            index::ID | index::ARBITRATION => u32::from(self.id) << 24,
            index::VERSION => VERSION | (PINS as u32 - 1) << 16,
            _ => match self.selected_entry() {
                Some((pin, shift)) => (self.entries[pin].0 >> shift) as u32,
                None => 0,
            },
        }
    }

    fn write_selected(&mut self, value: u32) -> Messages {
        if self.select == index::ID {
            self.id = (value >> 24) as u8 & 0xf;
        }
        let Some((pin, shift)) = self.selected_entry() else { return Messages::default() };
        let entry = &mut self.entries[pin];
        entry.set_written(entry.0 & !(0xffff_ffff << shift) | u64::from(value) << shift);
        let still_asserted = entry.is_level() && self.level & 1 << pin != 0;
        Messages { pins: u32::from(still_asserted) << pin }
    }

    /// Which entry is selected, and which half: the shift to it.
    fn selected_entry(&self) -> Option<(usize, u32)> {
        let half = self.select.checked_sub(index::REDIRECTION)?;
        let pin = usize::from(half / 2);
        (pin < PINS).then_some((pin, u32::from(half % 2) * 32))
    }

    /// Send what `pin` is redirected to, if it may.
    fn send(&mut self, pin: usize) -> Option<Message> {
        let entry = &mut self.entries[pin];
        if entry.is_masked() || entry.awaits_end() {
            return None;
        }
        let mode = DeliveryMode::from_register(entry.0 as u32);
        let level = entry.is_level();
        let counted = matches!(mode, DeliveryMode::Fixed | DeliveryMode::LowestPriority);
        entry.set_awaits_end(level && counted);
        let address = u32::from(entry.destination());
        let destination = match (entry.is_logical(), address) {
            (_, 0xff) => Destination::All,
            (true, address) => Destination::Logical(address),
            (false, address) => Destination::Physical(address),
        };
        Some(Message { destination, mode, vector: entry.vector(), level })
    }
}
