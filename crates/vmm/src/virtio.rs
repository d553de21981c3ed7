//! Plugs virtio devices in, each with its thread.

use std::sync::Arc;

use devices::virtio::entropy::Entropy;
use devices::virtio::{Device, Transport};
use machine::Platform;

use crate::configuration::{Configuration, Error};
use crate::device_memory::DeviceMemory;
use crate::io_thread::{Bell, IoThread};

/// Plug in what the configuration names, in the order of its fields.
///
/// # Errors
///
/// [`Error`] when the bus is full, or a thread cannot be had.
pub(crate) fn plug_in(
    platform: &mut Platform,
    configuration: &mut Configuration,
    memory: &DeviceMemory,
) -> Result<Vec<IoThread>, Error> {
    let mut threads = Vec::new();
    if configuration.entropy {
        let device = Entropy::new(Box::new(|bytes| crate::machine::fill(bytes).is_ok()));
        threads.push(plug_in_one(platform, "entropy", Box::new(device), memory)?);
    }
    Ok(threads)
}

fn plug_in_one(
    platform: &mut Platform,
    name: &str,
    device: Box<dyn Device>,
    memory: &DeviceMemory,
) -> Result<IoThread, Error> {
    let bell = Arc::new(Bell::default());
    let (its_memory, sender) = (Arc::new(memory.clone()), platform.message_sender());
    let transport = Transport::new(device, its_memory, Arc::clone(&bell) as _, sender);
    let shared = transport.shared();
    transport.plug_into(platform).map_err(|error| Error::Tables(error.to_string()))?;
    Ok(IoThread::start(name, bell, shared)?)
}
