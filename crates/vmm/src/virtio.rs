//! Plugs virtio devices in, each with its thread.

use std::sync::Arc;

use devices::limits::MAX_BLOCK_QUEUES;
use devices::virtio::balloon::Balloon as Inflatable;
use devices::virtio::block::Block;
use devices::virtio::console::Console;
use devices::virtio::entropy::Entropy;
use devices::virtio::port::Port;
use devices::virtio::socket::Socket;
use devices::virtio::{Device, Doorbell, Shared, Transport};
use machine::Platform;

use crate::balloon::Balloon;
use crate::configuration::{Configuration, Error, MAX_PROCESSORS};
use crate::console::Window;
use crate::device_memory::DeviceMemory;
use crate::disk::errands::Disks;
use crate::disk::workers::{Front, Workers, Workplace};
use crate::io_thread::{Bell, IoThread};

// A disk has a queue for each processor.
const _: () = assert!(MAX_PROCESSORS <= MAX_BLOCK_QUEUES);

/// What a guest's programs can find the port by.
const CHANNEL: &str = "bivouac.channel";

/// Devices with a thread each, and what others may do to them.
#[derive(Default)]
pub(crate) struct Plugged {
    threads: Vec<IoThread>,
    /// The console's.
    pub(crate) window: Option<Window>,
    /// The balloon.
    pub(crate) balloon: Option<Balloon>,
}

/// Plug in what the configuration names, in the order of its fields.
///
/// # Errors
///
/// [`Error`] when the bus is full, or a thread cannot be had.
pub(crate) fn plug_in(
    platform: &mut Platform,
    configuration: &mut Configuration,
    memory: &DeviceMemory,
) -> Result<Plugged, Error> {
    let mut plugged = Plugged::default();
    let threads = &mut plugged.threads;
    if configuration.balloon {
        let (taker, balloon) = crate::balloon::taker(memory);
        let (device, bell) = (Box::new(Inflatable::new(Box::new(taker))), Arc::<Bell>::default());
        let shared = plug_in_device(platform, device, memory, Arc::clone(&bell) as _)?;
        plugged.balloon = Some(balloon(Arc::clone(&bell), Arc::clone(&shared)));
        threads.push(IoThread::start("balloon", bell, shared)?);
    }
    if let Some(port) = configuration.virtio_console.take() {
        let (ends, bell, window) = crate::console::terminal(port)?;
        let device = Box::new(Console::new(Box::new(ends)));
        threads.push(plug_in_with(platform, "console", device, memory, bell)?);
        plugged.window = Some(window);
    }
    if let Some(port) = configuration.virtio_port.take() {
        let (ends, bell, _) = crate::console::terminal(port)?;
        let device = Box::new(Port::new(CHANNEL, Box::new(ends), Arc::clone(&bell) as _));
        threads.push(plug_in_with(platform, "port", device, memory, bell)?);
    }
    if let Some(sockets) = configuration.sockets.take() {
        let (stream, bell) = crate::sockets::stream(sockets.cable)?;
        let device = Box::new(Socket::new(sockets.address.into(), Box::new(stream)));
        threads.push(plug_in_with(platform, "sockets", device, memory, bell)?);
    }
    if configuration.entropy {
        let device = Entropy::new(Box::new(|bytes| crate::machine::fill(bytes).is_ok()));
        threads.push(plug_in_one(platform, "entropy", Box::new(device), memory)?);
    }
    if let Some(network) = configuration.network.take() {
        let (device, sources) = crate::network::card(network, memory);
        let bell = Bell::with_sources(&sources)?;
        threads.push(plug_in_with(platform, "network", Box::new(device), memory, bell.into())?);
    }
    Ok(plugged)
}

/// Plug the disks in, in order: their threads, and what the processors see.
///
/// # Errors
///
/// [`Error`] when the bus is full, or a thread cannot be had.
pub(crate) fn plug_in_disks(
    platform: &mut Platform,
    configuration: &mut Configuration,
    memory: &DeviceMemory,
) -> Result<(Vec<Workers>, Disks), Error> {
    let (mut threads, mut disks) = (Vec::new(), Disks::default());
    // Each processor is to be interrupted for what it has asked for, and by nothing else.
    let queues = configuration.processors;
    for disk in std::mem::take(&mut configuration.disks) {
        let place = Workplace::new(disk, memory.clone(), disks.rung());
        let device = Box::new(Block::new(Box::new(Front(Arc::clone(&place))), queues));
        let shared = plug_in_device(platform, device, memory, Arc::clone(&place) as _)?;
        threads.push(Workers::start(Arc::clone(&place), &shared)?);
        disks.add(place, shared);
    }
    Ok((threads, disks))
}

fn plug_in_one(
    platform: &mut Platform,
    name: &str,
    device: Box<dyn Device>,
    memory: &DeviceMemory,
) -> Result<IoThread, Error> {
    plug_in_with(platform, name, device, memory, Arc::default())
}

/// The same, with a thread that is called as `bell` has it.
fn plug_in_with(
    platform: &mut Platform,
    name: &str,
    device: Box<dyn Device>,
    memory: &DeviceMemory,
    bell: Arc<Bell>,
) -> Result<IoThread, Error> {
    let shared = plug_in_device(platform, device, memory, Arc::clone(&bell) as _)?;
    Ok(IoThread::start(name, bell, shared)?)
}

/// Plug a device in, whose doorbell this is.
///
/// # Errors
///
/// [`Error`] when the bus is full.
pub(crate) fn plug_in_device(
    platform: &mut Platform,
    device: Box<dyn Device>,
    memory: &DeviceMemory,
    doorbell: Arc<dyn Doorbell>,
) -> Result<Arc<Shared>, Error> {
    let (its_memory, sender) = (Arc::new(memory.clone()), platform.message_sender());
    let transport = Transport::new(device, its_memory, doorbell, sender);
    let shared = transport.shared();
    transport.plug_into(platform).map_err(|error| Error::Tables(error.to_string()))?;
    Ok(shared)
}
