//! The shared directories of a machine: a virtio file system device, or one for 9p, for each, in their order, whichever
//! process serves it. (A guest that goes on knows each by its place.)

use std::io;
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

/// The directories of a machine, and the processes that serve them.
#[derive(Debug)]
pub struct SharedDirectories {
    /// At the other end of each is a process in [`files::server::serve`]; it ends when this is closed.
    pub controls: Vec<OwnedFd>,
    /// The directories, each with the number of the process that serves it.
    pub directories: Vec<(usize, SharedDirectory)>,
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
        let memory_file = memory.file().as_fd();
        let no_server = || io::Error::from(io::ErrorKind::InvalidInput);
        let mut shares: Vec<Vec<files::Share>> = self.controls.iter().map(|_| Vec::new()).collect();
        let mut tags = Vec::new();
        for (server, SharedDirectory { tag, share }) in self.directories {
            let is_nine = share.is_nine;
            shares.get_mut(server).ok_or_else(no_server)?.push(share);
            tags.push((server, tag, is_nine));
        }
        let mut servers = Vec::new();
        for (control, shares) in self.controls.into_iter().zip(shares) {
            let connections =
                files::client::introduce(control.as_fd(), memory_file, &regions, &shares)?;
            servers.push((Arc::new(control), connections.into_iter().enumerate()));
        }
        for (server, tag, is_nine) in tags {
            // It has a connection for each of its directories, in their order.
            let place = servers.get_mut(server).and_then(|(control, connections)| {
                connections.next().map(|(number, it)| ((Arc::clone(control), number), it))
            });
            let (place, connection) = place.ok_or_else(no_server)?;
            let ends = slots.plugged.polled.file_servers.join(connection);
            let backend = Box::new(ends.backend(place, slots.memory.clone()));
            // Each vCPU is to be interrupted for what it has asked for, and by nothing else.
            let device = Box::new(match is_nine {
                false => FileSystem::new(&tag, backend, slots.processors()),
                true => FileSystem::nine(&tag, backend),
            });
            let device = slots.add_virtio(device, ends.doorbell())?;
            slots.plugged.polled.file_servers.add(&tag, ends, device)?;
        }
        for (control, _) in servers {
            slots.plugged.polled.file_servers.keep(control);
        }
        Ok(())
    }
}
