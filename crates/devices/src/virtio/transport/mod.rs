//! The registers of a virtio device on the PCI bus (virtio 1.2, 4.1).

mod bits;
mod common;
mod shared;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use machine::Backplane;
use machine::bus::Size;
use machine::memory::Memory;
use machine::pci::{self, Configuration, Function, Identity, MessageSender, Vectors, capability};
use machine::saved::{Busy, Parts, Unfit};

use bits::{
    FIRST_DEVICE, MESSAGES, MESSAGES_BYTES, NOTIFY_MULTIPLIER, REGISTERS, REGISTERS_BYTES,
    REVISION, SUBSYSTEM, VENDOR, access, structure,
};
use common::{Agreement, Negotiation};
use shared::SavedDevice;
pub use shared::{Serving, Shared};

use super::{Device, Doorbell};

/// The kind of the transport's saved state, of which there is one behind each virtio device's own.
const TRANSPORT: &str = "virtio-pci";

/// A device's registers; [`Shared`] is the rest of it.
pub struct Transport {
    /// The device's kind.
    kind: &'static str,
    configuration: Configuration,
    /// Where the capability for access without memory is.
    access: usize,
    negotiation: Negotiation,
    doorbell: Arc<dyn Doorbell>,
    shared: Arc<Shared>,
}

impl Transport {
    /// The registers of `device`, whose thread listens to `doorbell` and calls [`Shared::serve`].
    pub fn new(
        device: Box<dyn Device>,
        memory: Arc<dyn Memory>,
        doorbell: Arc<dyn Doorbell>,
        sender: MessageSender,
    ) -> Self {
        let kind = device.kind();
        let identity = Identity {
            vendor: VENDOR,
            device: FIRST_DEVICE + kind.number,
            class: kind.class,
            revision: REVISION,
            subsystem: (VENDOR, SUBSYSTEM),
        };
        let mut configuration = Configuration::new(identity)
            .with_memory(REGISTERS, REGISTERS_BYTES)
            .with_memory(MESSAGES, MESSAGES_BYTES);
        // One for each queue, one for changes of the configuration.
        let vectors = Vectors::new(device.queue_sizes().len() as u16 + 1, sender);
        configuration.add_vectors(vectors.clone(), MESSAGES);
        let access = add_structures(&mut configuration);
        let negotiation = Negotiation::new(device.features(), device.queue_sizes());
        let shared = Arc::new(Shared::new(device, memory, vectors));
        Self { kind: kind.name, configuration, access, negotiation, doorbell, shared }
    }

    /// What the device's thread is to serve.
    pub fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.shared)
    }

    /// Plug it in; the number of its slot.
    ///
    /// # Errors
    ///
    /// [`pci::Error`] when the bus has no room.
    pub fn plug_into(self, board: &mut dyn Backplane) -> Result<u8, pci::Error> {
        board.add_pci_function(Box::new(self))
    }

    /// Whatever was rung for is looked at.
    fn ring_all(&self) {
        (0..self.negotiation.queues()).for_each(|queue| self.doorbell.ring(queue));
    }

    fn read_register(&mut self, at: u64, size: Size) -> u64 {
        if let Some(at) = within(structure::COMMON, at) {
            return self.negotiation.read(at, size, &self.shared);
        }
        if within(structure::ISR, at).is_some() {
            return self.shared.take_isr().into();
        }
        let Some(at) = within(structure::DEVICE, at) else { return 0 };
        self.shared.read_configuration(at as usize, size)
    }

    fn write_register(&mut self, at: u64, size: Size, value: u64) {
        if let Some(at) = within(structure::COMMON, at) {
            self.negotiation.write(at, size, value, &self.shared);
        } else if let Some(at) = within(structure::NOTIFY, at) {
            let queue = (at / u64::from(NOTIFY_MULTIPLIER)) as usize;
            if queue < self.negotiation.queues() {
                self.doorbell.ring(queue);
            }
        } else if let Some(at) = within(structure::DEVICE, at) {
            self.shared.write_configuration(at as usize, size, value);
        }
    }

    /// The register that the capability for access names, if `at` is its data.
    fn named(&self, at: usize, size: Size) -> Option<u64> {
        let read = |at: usize, size| self.configuration.read(self.access + at, size);
        let is_data = at == self.access + access::DATA;
        let is_ours = read(access::BAR, Size::Byte) as usize == REGISTERS;
        let fits = read(access::LENGTH, Size::Dword) == u32::from(size.bytes());
        let register = u64::from(read(access::OFFSET, Size::Dword));
        let aligned = register.is_multiple_of(u64::from(size.bytes()));
        (is_data && is_ours && fits && aligned && register < REGISTERS_BYTES).then_some(register)
    }
}

/// How far into a structure an offset is.
fn within((_, start, bytes): (u8, u64, u64), at: u64) -> Option<u64> {
    let within = at.wrapping_sub(start);
    (within < bytes).then_some(within)
}

/// Say where everything is (4.1.4); where the capability for access is.
fn add_structures(configuration: &mut Configuration) -> usize {
    let body = |kind: u8, offset: u64, bytes: u64, more: &[u8]| {
        let length = 16 + more.len() as u8;
        let mut body = vec![length, kind, REGISTERS as u8, 0, 0, 0];
        body.extend((offset as u32).to_le_bytes());
        body.extend((bytes as u32).to_le_bytes());
        body.extend(more);
        body
    };
    for (kind, offset, bytes) in [structure::COMMON, structure::ISR, structure::DEVICE] {
        configuration.add_capability(capability::VENDOR, &body(kind, offset, bytes, &[]));
    }
    let (kind, offset, bytes) = structure::NOTIFY;
    let multiplier = NOTIFY_MULTIPLIER.to_le_bytes();
    configuration.add_capability(capability::VENDOR, &body(kind, offset, bytes, &multiplier));
    let access_body = body(structure::CONFIGURATION_ACCESS, 0, 0, &[0; 4]);
    let at = configuration.add_capability(capability::VENDOR, &access_body);
    configuration.allow_writes(at + access::BAR, &[0xff]);
    configuration.allow_writes(at + access::OFFSET, &[0xff; 8]);
    at
}

impl Function for Transport {
    fn configuration(&mut self) -> &mut Configuration {
        &mut self.configuration
    }

    fn read_configuration(&mut self, offset: usize, size: Size) -> u32 {
        match self.named(offset, size) {
            Some(register) => self.read_register(register, size) as u32,
            None => self.configuration.read(offset, size),
        }
    }

    fn write_configuration(&mut self, offset: usize, size: Size, value: u32) {
        match self.named(offset, size) {
            Some(register) => self.write_register(register, size, value.into()),
            None => self.configuration.write(offset, size, value),
        }
    }

    fn read(&mut self, bar: usize, offset: u64, size: Size) -> u64 {
        if bar == REGISTERS { self.read_register(offset, size) } else { u64::MAX }
    }

    fn write(&mut self, bar: usize, offset: u64, size: Size, value: u64) {
        if bar == REGISTERS {
            self.write_register(offset, size, value);
        }
    }

    fn reset(&mut self) {
        self.shared.reset();
        self.negotiation.reset();
    }

    fn save(&mut self, parts: &mut Parts) -> Result<(), Busy> {
        let agreement = self.negotiation.save(&self.shared)?;
        let (device, own) = self.shared.save()?;
        // A machine that lacks the device is told of the first of its parts.
        parts.add_bytes(self.kind, own.version, own.bytes);
        parts.add(TRANSPORT, 1, &(agreement, device));
        Ok(())
    }

    fn thaw(&mut self) {
        self.shared.thaw();
        self.ring_all();
    }

    fn restore(&mut self, parts: &mut Parts) -> Result<(), Unfit> {
        let (agreement, device): (Agreement, SavedDevice) = parts.take(TRANSPORT)?;
        let own = parts.take_versions(self.kind, self.shared.version())?;
        self.negotiation.restore(agreement)?;
        self.shared.restore(&device, &own, self.negotiation.agreed())?;
        self.ring_all();
        Ok(())
    }
}
