//! What a device finds on the board while it is plugged in, and what it registers there.

use std::sync::Arc;

use devices::virtio::{self, Doorbell, Shared, Transport};
use host::GuestMemory;
use machine::bus::{PortDevice, Width};
use machine::memory::Memory;
use machine::{Backplane, Requests, acpi};

use super::collector::Collector;
use super::disk::errands::Disks;
use super::file_server::FileServers;
use super::io_thread::{IoThread, Notifier};
use crate::device_memory::DeviceMemory;
use crate::outcome::Error;

/// What devices have left for the vCPUs' threads to look at.
#[derive(Default)]
pub(crate) struct Polled {
    /// Shared directories, whose answers an idle vCPU watches for.
    pub(crate) file_servers: FileServers,
    /// Disks, whose I/O a vCPU may complete itself.
    pub(crate) disks: Disks,
    /// Output of serial ports that has not been flushed.
    pub(crate) collectors: Vec<Collector>,
}

/// What was plugged in.
#[derive(Default)]
pub(crate) struct Plugged {
    /// Threads that end when this is dropped, before what they use.
    pub(crate) threads: Vec<Box<dyn Send>>,
    pub(crate) polled: Polled,
    /// Disks on a bus of split devices.
    pub(crate) split_disks: u32,
    /// Slots of the PCI bus with disks, in their order.
    pub(crate) disks: Vec<u8>,
    /// What the firmware tables are to name.
    pub(crate) tables: acpi::Config,
}

/// The board's slots: where a device connects itself ([`super::Device::plug_in`]).
pub struct Slots<'a> {
    board: &'a mut dyn Backplane,
    /// Guest memory as devices write it.
    pub(crate) memory: &'a DeviceMemory,
    /// The file that is guest memory, for other processes.
    pub(crate) guest_memory: &'a GuestMemory,
    processors: usize,
    /// Bytes of the firmware of its own that the machine starts, if it does.
    pub(crate) firmware_bytes: Option<u64>,
    pub(crate) plugged: Plugged,
}

impl<'a> Slots<'a> {
    pub(crate) fn new(
        board: &'a mut dyn Backplane,
        memory: &'a DeviceMemory,
        guest_memory: &'a GuestMemory,
        firmware_bytes: Option<u64>,
    ) -> Self {
        let processors = board.processors();
        let plugged = Plugged::default();
        Self { board, memory, guest_memory, processors, firmware_bytes, plugged }
    }

    /// How many vCPUs the machine has.
    #[must_use]
    pub fn processors(&self) -> usize {
        self.processors
    }

    /// Guest memory. A device writes it through this only, which keeps translated code true to it.
    #[must_use]
    pub fn memory(&self) -> Arc<dyn Memory> {
        Arc::new(self.memory.clone())
    }

    /// Where the device leaves what the guest asks of the program that runs the machine.
    #[must_use]
    pub fn requests(&self) -> Requests {
        self.board.requests()
    }

    /// The board itself, for a device that connects itself to a bus or an interrupt line.
    pub fn board(&mut self) -> &mut dyn Backplane {
        self.board
    }

    /// Plug in a device that is reached through `count` I/O ports from `first` on.
    ///
    /// # Errors
    ///
    /// [`Error::Slot`] when the ports are taken.
    pub fn add_port_device(
        &mut self,
        name: &'static str,
        first: u16,
        count: u16,
        width: Width,
        device: Box<dyn PortDevice>,
    ) -> Result<(), Error> {
        Ok(self.board.add_port_device(name, first, count, width, device)?)
    }

    /// Plug in a virtio device. `doorbell` receives the guest's notifications, and the thread that listens to it calls
    /// [`Shared::serve`] on what is returned.
    ///
    /// # Errors
    ///
    /// [`Error::Slot`] when the PCI bus is full.
    pub fn add_virtio(
        &mut self,
        device: Box<dyn virtio::Device>,
        doorbell: Arc<dyn Doorbell>,
    ) -> Result<Arc<Shared>, Error> {
        self.add_virtio_in_slot(device, doorbell).map(|(shared, _)| shared)
    }

    /// The same, with the number of its slot.
    pub(crate) fn add_virtio_in_slot(
        &mut self,
        device: Box<dyn virtio::Device>,
        doorbell: Arc<dyn Doorbell>,
    ) -> Result<(Arc<Shared>, u8), Error> {
        let sender = self.board.message_sender()?;
        let transport = Transport::new(device, self.memory(), doorbell, sender);
        let shared = transport.shared();
        let slot = transport.plug_into(self.board)?;
        Ok((shared, slot))
    }

    /// Plug in a virtio device that a thread of its own serves, which is called through `notifier` and ends with the
    /// machine.
    ///
    /// # Errors
    ///
    /// [`Error::Slot`] when the PCI bus is full, [`Error::Host`] when the host has no thread.
    pub(crate) fn add_virtio_with_thread(
        &mut self,
        name: &str,
        device: Box<dyn virtio::Device>,
        notifier: Arc<Notifier>,
    ) -> Result<Arc<Shared>, Error> {
        let shared = self.add_virtio(device, Arc::clone(&notifier) as _)?;
        self.keep(IoThread::start(name, notifier, Arc::clone(&shared))?);
        Ok(shared)
    }

    /// Keep something as long as the machine lives; it is dropped, in the order of the devices, when no vCPU runs any
    /// more and before guest memory is.
    pub fn keep(&mut self, thing: impl Send + 'static) {
        self.plugged.threads.push(Box::new(thing));
    }
}
