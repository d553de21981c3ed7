//! The shared directories of a machine: a virtio file system device for each, and one process that serves all.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use devices::limits::MAX_REQUEST_QUEUES;
use devices::virtio::file_system::{self, FileSystem};

use super::{Device, Slots};
use crate::limits::MAX_PROCESSORS;
use crate::outcome::Error;

const _: () = assert!(MAX_PROCESSORS <= MAX_REQUEST_QUEUES);

/// A directory of the host's in a machine.
#[derive(Debug)]
pub struct SharedDirectory {
    /// By what name the guest mounts it; at most 36 bytes.
    pub tag: String,
    /// What it is.
    pub share: files::Share,
}

/// The directories of a machine, and the process that serves them.
#[derive(Debug)]
pub struct SharedDirectories {
    /// At its other end is a process in [`files::server::serve`]; it ends when this is closed.
    pub control: OwnedFd,
    /// The directories.
    pub directories: Vec<SharedDirectory>,
}

impl Device for SharedDirectories {
    fn kind(&self) -> &'static str {
        file_system::KIND.name
    }

    /// Plug in a virtio file system device for each directory.
    fn plug_in(self: Box<Self>, slots: &mut Slots<'_>) -> Result<(), Error> {
        let memory = slots.guest_memory;
        let regions: Vec<_> = memory
            .regions()
            .iter()
            .map(|region| (region.guest, region.size, region.file_offset))
            .collect();
        let (tags, shares): (Vec<_>, Vec<_>) =
            self.directories.into_iter().map(|directory| (directory.tag, directory.share)).unzip();
        let memory_file = memory.file().as_fd();
        let control = self.control.as_fd();
        let connections = files::client::introduce(control, memory_file, &regions, &shares)?;
        let control = Arc::new(self.control);
        for (number, (tag, connection)) in tags.iter().zip(connections).enumerate() {
            let ends = slots.plugged.polled.file_servers.join(connection);
            let place = (Arc::clone(&control), number);
            let backend = Box::new(ends.backend(place, slots.memory.clone()));
            // Each vCPU is to be interrupted for what it has asked for, and by nothing else.
            let device = Box::new(FileSystem::new(tag, backend, slots.processors()));
            let device = slots.add_virtio(device, ends.doorbell())?;
            slots.plugged.polled.file_servers.add(tag, ends, device)?;
        }
        slots.plugged.polled.file_servers.keep(control);
        Ok(())
    }
}
