//! What is between a file system device and the server, which is another process: a socket, and a thread
//! that hears its answers. Requests are sent by the processor's thread that rings the doorbell: to
//! wake a thread that would send them costs more than to send them.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread::JoinHandle;

use devices::virtio::file_system::{FileServer, FileSystem, Gone};
use devices::virtio::{Chain, Doorbell, Segment, Shared, Transport};
use files::{Connection, Range, Reply};
use host::GuestMemory;
use machine::Platform;

use crate::configuration::{Configuration, Error};
use crate::device_memory::DeviceMemory;

/// Every queue of the device.
const ALL_QUEUES: u64 = 3;

/// A directory of the host's in a machine.
#[derive(Debug)]
pub struct SharedDirectory {
    /// By what name the guest mounts it; at most 36 bytes.
    pub tag: String,
    /// What it is.
    pub share: files::Share,
}

/// The directories of a machine, and who serves them.
#[derive(Debug)]
pub struct SharedDirectories {
    /// At its other end is a process in [`files::server::serve`]; it ends when this is closed.
    pub control: OwnedFd,
    /// The directories.
    pub directories: Vec<SharedDirectory>,
}

/// The file servers of a machine; with it they end.
#[derive(Default)]
pub(crate) struct FileServers {
    listeners: Vec<Listener>,
    /// See [`SharedDirectories::control`].
    _control: Option<OwnedFd>,
}

/// Plug in a device for each directory.
///
/// # Errors
///
/// [`Error`] when the bus is full, or the server cannot be spoken to.
pub(crate) fn plug_in(
    platform: &mut Platform,
    configuration: &mut Configuration,
    memory: &GuestMemory,
    device_memory: &DeviceMemory,
) -> Result<FileServers, Error> {
    let Some(shared) = configuration.directories.take() else { return Ok(FileServers::default()) };
    let regions: Vec<_> = memory
        .regions()
        .iter()
        .map(|region| (region.guest, region.size, region.file_offset))
        .collect();
    let (tags, shares): (Vec<_>, Vec<_>) =
        shared.directories.into_iter().map(|directory| (directory.tag, directory.share)).unzip();
    let memory_file = memory.file().as_fd();
    let connections =
        files::client::introduce(shared.control.as_fd(), memory_file, &regions, &shares)?;
    let mut servers = FileServers { listeners: Vec::new(), _control: Some(shared.control) };
    for (tag, connection) in tags.iter().zip(connections) {
        let listener = plug_in_one(platform, tag, connection, device_memory)?;
        servers.listeners.push(listener);
    }
    Ok(servers)
}

fn plug_in_one(
    platform: &mut Platform,
    tag: &str,
    connection: Connection,
    memory: &DeviceMemory,
) -> Result<Listener, Error> {
    let connection = Arc::new(connection);
    let heard = Arc::new(Mutex::new(Heard::default()));
    let server = Server {
        connection: Arc::clone(&connection),
        heard: Arc::clone(&heard),
        memory: memory.clone(),
    };
    let bell = Arc::new(Bell::default());
    let device = Box::new(FileSystem::new(tag, Box::new(server)));
    let (its_memory, sender) = (Arc::new(memory.clone()), platform.message_sender());
    let transport = Transport::new(device, its_memory, Arc::clone(&bell) as _, sender);
    let shared = transport.shared();
    let _ = bell.0.set(Arc::downgrade(&shared));
    transport.plug_into(platform).map_err(|error| Error::Tables(error.to_string()))?;
    Ok(Listener::start(tag, connection, heard, shared)?)
}

/// Serves at once, on the thread that rings.
#[derive(Default)]
struct Bell(OnceLock<Weak<Shared>>);

impl Doorbell for Bell {
    fn ring(&self, queue: usize) {
        if let Some(shared) = self.0.get().and_then(Weak::upgrade) {
            shared.serve(1 << (queue & 31));
        }
    }
}

/// What the server has said and the device has not heard.
#[derive(Default)]
struct Heard {
    replies: VecDeque<Reply>,
    is_gone: bool,
}

fn lock(heard: &Mutex<Heard>) -> MutexGuard<'_, Heard> {
    heard.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Server {
    connection: Arc<Connection>,
    heard: Arc<Mutex<Heard>>,
    memory: DeviceMemory,
}

impl FileServer for Server {
    fn submit(&mut self, token: u64, chain: &Chain) -> Result<bool, Gone> {
        let range =
            |segment: &Segment| Range { address: segment.address, bytes: segment.length.into() };
        let (readable, writable) = (chain.readable.iter(), chain.writable.iter());
        let sent = self.connection.submit(token, readable.map(range), writable.map(range));
        sent.map_err(|_| Gone)
    }

    fn take(&mut self) -> Result<Option<(u64, u32)>, Gone> {
        let mut heard = lock(&self.heard);
        let reply = heard.replies.pop_front();
        if reply.is_none() && heard.is_gone {
            return Err(Gone);
        }
        let bytes = |reply: Reply| u32::try_from(reply.bytes).unwrap_or(u32::MAX);
        Ok(reply.map(|reply| (reply.token, bytes(reply))))
    }

    fn note_written(&mut self, segments: &[Segment], bytes: u32) {
        let mut left = bytes;
        for segment in segments {
            let here = left.min(segment.length);
            if here == 0 {
                return;
            }
            self.memory.note_written(segment.address, here.into());
            left -= here;
        }
    }
}

/// The thread that hears one server's answers.
struct Listener {
    connection: Arc<Connection>,
    thread: Option<JoinHandle<()>>,
}

impl Listener {
    fn start(
        tag: &str,
        connection: Arc<Connection>,
        heard: Arc<Mutex<Heard>>,
        shared: Arc<Shared>,
    ) -> std::io::Result<Self> {
        let its_connection = Arc::clone(&connection);
        let tag = tag.to_owned();
        let thread = std::thread::Builder::new().name("files".to_owned()).spawn(move || {
            while let Ok(Some(reply)) = its_connection.receive() {
                let mut heard = lock(&heard);
                heard.replies.push_back(reply);
                while let Ok(Some(reply)) = its_connection.take() {
                    heard.replies.push_back(reply);
                }
                drop(heard);
                shared.serve(ALL_QUEUES);
                shared.settle();
            }
            tracing::debug!(tag, "the file server is gone");
            lock(&heard).is_gone = true;
            shared.serve(ALL_QUEUES);
            shared.settle();
        })?;
        Ok(Self { connection, thread: Some(thread) })
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.connection.shut();
        if let Some(thread) = self.thread.take() {
            // What it panicked with has been said.
            let _ = thread.join();
        }
    }
}
