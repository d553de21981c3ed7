//! The shared directories of a machine: a virtio file system device for each, in their order, whichever process serves
//! it. (A guest that goes on knows each by its place.)

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

/// A directory whose server has been told of it: the server's control socket, the number of the directory there, its
/// tag, and the way to the server.
type Introduced = (Arc<OwnedFd>, usize, String, files::Connection);

impl SharedDirectories {
    /// Tells the servers what there is to do; the directories in their order.
    fn introduce(
        self,
        memory: &host::GuestMemory,
    ) -> io::Result<(Vec<Arc<OwnedFd>>, Vec<Introduced>)> {
        let regions: Vec<_> = memory
            .regions()
            .iter()
            .map(|region| (region.guest, region.size, region.file_offset))
            .collect();
        let memory_file = memory.file().as_fd();
        let mut groups: Vec<_> = self.controls.iter().map(|_| (Vec::new(), Vec::new())).collect();
        for (place, (server, SharedDirectory { tag, share })) in
            self.directories.into_iter().enumerate()
        {
            let group = groups.get_mut(server).ok_or(io::ErrorKind::InvalidInput)?;
            group.0.push((place, tag));
            group.1.push(share);
        }
        let controls: Vec<_> = self.controls.into_iter().map(Arc::new).collect();
        let mut introduced = Vec::new();
        for (control, (names, shares)) in controls.iter().zip(groups) {
            let connections =
                files::client::introduce(control.as_fd(), memory_file, &regions, &shares)?;
            for (number, ((place, tag), connection)) in
                names.into_iter().zip(connections).enumerate()
            {
                introduced.push((place, (Arc::clone(control), number, tag, connection)));
            }
        }
        introduced.sort_by_key(|(place, _)| *place);
        Ok((controls, introduced.into_iter().map(|(_, directory)| directory).collect()))
    }
}

impl Device for SharedDirectories {
    fn kind(&self) -> &'static str {
        file_system::KIND.name
    }

    /// Plug in a virtio file system device for each directory.
    fn plug_in(self: Box<Self>, slots: &mut Slots<'_>) -> Result<(), Error> {
        let (controls, directories) = self.introduce(slots.guest_memory)?;
        for (control, number, tag, connection) in directories {
            let ends = slots.plugged.polled.file_servers.join(connection);
            let backend = Box::new(ends.backend((control, number), slots.memory.clone()));
            // Each vCPU is to be interrupted for what it has asked for, and by nothing else.
            let device = Box::new(FileSystem::new(&tag, backend, slots.processors()));
            let device = slots.add_virtio(device, ends.doorbell())?;
            slots.plugged.polled.file_servers.add(&tag, ends, device)?;
        }
        controls.into_iter().for_each(|control| slots.plugged.polled.file_servers.keep(control));
        Ok(())
    }
}
