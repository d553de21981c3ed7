//! The interrupt command register: what one processor sends to others (SDM 3A 11.6).

use super::bits::{Base, Command, Errors};
use super::{Effect, LocalApic};
use crate::interrupts::message::{DeliveryMode, Destination, Message};

impl LocalApic {
    /// Send what the register says.
    pub(super) fn send_command(&mut self) -> Effect {
        let low = self.command as u32;
        let command = Command::from_bits_truncate(low);
        let mode = DeliveryMode::from_register(low);
        let vector = low as u8;
        let deasserts = command.contains(Command::LEVEL) && !command.contains(Command::ASSERT);
        if mode == DeliveryMode::Init && deasserts {
            return Effect::None;
        }
        if matches!(mode, DeliveryMode::Fixed | DeliveryMode::LowestPriority) && vector < 16 {
            self.report(Errors::SENT_ILLEGAL_VECTOR);
            return Effect::None;
        }
        let destination = self.destination(command);
        Effect::Send(Message { destination, mode, vector, level: false })
    }

    /// SELF IPI (SDM 3A 11.12.11).
    pub(super) fn send_to_self(&mut self, vector: u8) -> Effect {
        if vector < 16 {
            self.report(Errors::SENT_ILLEGAL_VECTOR);
        } else {
            self.accept_vector(vector, false);
        }
        Effect::None
    }

    fn destination(&self, command: Command) -> Destination {
        let own = self.id as usize;
        let x2apic = self.base.contains(Base::X2APIC);
        let high = (self.command >> 32) as u32;
        let (address, everybody) = if x2apic { (high, u32::MAX) } else { (high >> 24, 0xff) };
        match (command & Command::SHORTHAND).bits() >> 18 {
            1 => Destination::Processor(own),
            2 => Destination::All,
            3 => Destination::AllBut(own),
            _ if address == everybody => Destination::All,
            _ if command.contains(Command::LOGICAL) => Destination::Logical(address),
            _ => Destination::Physical(address),
        }
    }
}
