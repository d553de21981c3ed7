//! What is between a file system device and the server, which is another process: a socket.
//!
//! To wake a thread costs more than most requests. So the processor's thread that has rung the doorbell
//! sends the request itself, and then watches for the answer for a moment, if that has been worth it
//! lately and there are cores to spare. Only if none comes, a thread is called that waits for it, and
//! for all others until there are none. Meanwhile the chip set is not locked: the doorbell only leaves a
//! note, which is found when the exit has been dealt with.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{JoinHandle, Thread};
use std::time::Instant;

use devices::virtio::file_system::{FileServer, FileSystem, Gone};
use devices::virtio::{Chain, Doorbell, Segment, Shared};
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
    desks: Vec<Arc<Desk>>,
    /// Somebody has rung.
    rung: Arc<AtomicBool>,
    listeners: Vec<Listener>,
    /// See [`SharedDirectories::control`].
    _control: Option<Arc<OwnedFd>>,
}

impl FileServers {
    /// Do what processors have rung for, if they have. Only with `may_watch` it is worth waiting for an
    /// answer on this thread.
    #[inline]
    pub(crate) fn attend(&self, may_watch: impl FnOnce() -> bool) {
        if self.rung.load(Ordering::Relaxed) {
            self.attend_now(may_watch());
        }
    }

    #[cold]
    fn attend_now(&self, may_watch: bool) {
        self.rung.store(false, Ordering::SeqCst);
        self.desks.iter().for_each(|desk| desk.attend(may_watch));
    }
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
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let may_watch = configuration.processors < cores;
    let connections = files::client::introduce(
        shared.control.as_fd(),
        memory_file,
        &regions,
        &shares,
        may_watch,
    )?;
    let control = Arc::new(shared.control);
    let _control = Some(Arc::clone(&control));
    let mut servers = FileServers { _control, ..FileServers::default() };
    for (number, (tag, connection)) in tags.iter().zip(connections).enumerate() {
        let place = (Arc::clone(&control), number);
        let desk = plug_in_one(platform, tag, connection, place, &servers.rung, device_memory)?;
        servers.listeners.push(Listener::start(tag, Arc::clone(&desk))?);
        servers.desks.push(desk);
    }
    Ok(servers)
}

fn plug_in_one(
    platform: &mut Platform,
    tag: &str,
    connection: Connection,
    place: (Arc<OwnedFd>, usize),
    rung: &Arc<AtomicBool>,
    memory: &DeviceMemory,
) -> Result<Arc<Desk>, Error> {
    let line =
        Arc::new(Line { connection, heard: Mutex::default(), outstanding: AtomicUsize::new(0) });
    let bell = Arc::new(Bell { wanted: AtomicU64::new(0), rung: Arc::clone(rung) });
    let server = Server { line: Arc::clone(&line), place, memory: memory.clone() };
    let device = Box::new(FileSystem::new(tag, Box::new(server)));
    let device = crate::virtio::plug_in_device(platform, device, memory, Arc::clone(&bell) as _)?;
    Ok(Arc::new(Desk {
        bell,
        line,
        device,
        is_listening: AtomicBool::new(false),
        listener: OnceLock::new(),
        patience: AtomicU64::new(MOST_PATIENCE),
        unwatched: AtomicU64::new(0),
    }))
}

/// Leaves a note.
struct Bell {
    wanted: AtomicU64,
    rung: Arc<AtomicBool>,
}

impl Doorbell for Bell {
    fn ring(&self, queue: usize) {
        self.wanted.fetch_or(1 << (queue & 31), Ordering::SeqCst);
        self.rung.store(true, Ordering::SeqCst);
    }
}

/// The longest watch for an answer, in nanoseconds: about what two wake-ups cost.
const MOST_PATIENCE: u64 = 30_000;

/// The shortest that is worth it.
const LEAST_PATIENCE: u64 = 8_000;

/// Where watching was not worth it, it is tried again after so many requests.
const UNWATCHED: u64 = 32;

/// Where requests to one device are seen to.
struct Desk {
    bell: Arc<Bell>,
    line: Arc<Line>,
    device: Arc<Shared>,
    /// The listener waits for answers, or has been told to.
    is_listening: AtomicBool,
    listener: OnceLock<Thread>,
    /// How long to watch for an answer, in nanoseconds; zero if that is not worth it.
    patience: AtomicU64,
    /// Requests since then.
    unwatched: AtomicU64,
}

impl Desk {
    fn attend(&self, may_watch: bool) {
        let wanted = self.bell.wanted.swap(0, Ordering::SeqCst);
        if wanted == 0 {
            return;
        }
        // Answers may be there for either queue, which who serves one of them finds for both.
        self.device.serve(ALL_QUEUES);
        if may_watch && !self.is_listening.load(Ordering::SeqCst) {
            self.watch();
        }
        if self.line.is_waiting() {
            self.call_listener();
        }
    }

    fn call_listener(&self) {
        if !self.is_listening.swap(true, Ordering::SeqCst)
            && let Some(listener) = self.listener.get()
        {
            listener.unpark();
        }
    }

    /// Watch for answers for a moment.
    fn watch(&self) {
        let patience = self.patience.load(Ordering::Relaxed);
        let patience = match patience {
            0 if self.unwatched.fetch_add(1, Ordering::Relaxed) < UNWATCHED => return,
            0 => MOST_PATIENCE,
            patience => patience,
        };
        let start = Instant::now();
        while self.line.is_waiting() {
            if self.line.hear_what_is_there() {
                self.device.serve(ALL_QUEUES);
                self.device.settle();
            } else if start.elapsed().as_nanos() as u64 >= patience {
                break;
            }
        }
        let was_worth_it = !self.line.is_waiting();
        let next = match was_worth_it {
            true => MOST_PATIENCE,
            false => Some(patience / 2).filter(|&next| next >= LEAST_PATIENCE).unwrap_or(0),
        };
        self.patience.store(next, Ordering::Relaxed);
        self.unwatched.store(0, Ordering::Relaxed);
    }

    /// Wait for answers when called, until there are none to come; until the server is gone.
    fn listen(&self) {
        loop {
            while !self.is_listening.load(Ordering::SeqCst) {
                std::thread::park();
            }
            while self.line.is_waiting() {
                if !self.line.hear() {
                    return;
                }
                self.device.serve(ALL_QUEUES);
                self.device.settle();
            }
            self.is_listening.store(false, Ordering::SeqCst);
            // Who has sent a request before that relies on us.
            if self.line.is_waiting() {
                self.is_listening.store(true, Ordering::SeqCst);
            }
            if self.line.has_ended() {
                return;
            }
        }
    }
}

/// What the server has said and the device has not heard.
#[derive(Default)]
struct Heard {
    replies: VecDeque<Reply>,
    is_gone: bool,
}

/// The socket of one share.
struct Line {
    connection: Connection,
    heard: Mutex<Heard>,
    /// Requests that have no answer.
    outstanding: AtomicUsize,
}

impl Line {
    fn heard(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there are answers to come.
    fn is_waiting(&self) -> bool {
        self.outstanding.load(Ordering::SeqCst) > 0
    }

    fn note(&self, reply: Reply) {
        self.heard().replies.push_back(reply);
        self.outstanding.fetch_sub(1, Ordering::SeqCst);
    }

    /// Take the answers that are there; whether there were any.
    fn hear_what_is_there(&self) -> bool {
        let mut any = false;
        while let Ok(Some(reply)) = self.connection.take() {
            self.note(reply);
            any = true;
        }
        any
    }

    /// Wait for an answer; false when the server is gone.
    fn hear(&self) -> bool {
        match self.connection.receive() {
            Ok(Some(reply)) => {
                self.note(reply);
                self.hear_what_is_there();
                true
            }
            Ok(None) | Err(_) => {
                self.lose();
                false
            }
        }
    }

    /// Nothing more comes.
    fn end(&self) {
        self.heard().is_gone = true;
    }

    /// Nothing more comes, and nobody has asked for that.
    fn lose(&self) {
        if !std::mem::replace(&mut self.heard().is_gone, true) {
            tracing::error!("the file server has ended; the guest's directories fail from now on");
        }
    }

    fn has_ended(&self) -> bool {
        self.heard().is_gone
    }
}

/// The server, as the device knows it.
struct Server {
    line: Arc<Line>,
    /// The way to ask for all of the share, and its number.
    place: (Arc<OwnedFd>, usize),
    memory: DeviceMemory,
}

impl FileServer for Server {
    fn submit(&mut self, token: u64, chain: &Chain) -> Result<bool, Gone> {
        let range =
            |segment: &Segment| Range { address: segment.address, bytes: segment.length.into() };
        let (readable, writable) = (chain.readable.iter(), chain.writable.iter());
        self.line.outstanding.fetch_add(1, Ordering::SeqCst);
        let sent = self.line.connection.submit(token, readable.map(range), writable.map(range));
        if !matches!(sent, Ok(true)) {
            self.line.outstanding.fetch_sub(1, Ordering::SeqCst);
        }
        sent.map_err(|error| {
            // What has too many parts is wrong in itself, but nothing that a driver does.
            tracing::debug!(%error, "the file server takes no request");
            self.line.lose();
            Gone
        })
    }

    fn take(&mut self) -> Result<Option<(u64, u32)>, Gone> {
        let mut heard = self.line.heard();
        let reply = heard.replies.pop_front();
        if reply.is_none() && heard.is_gone {
            return Err(Gone);
        }
        let bytes = |reply: Reply| u32::try_from(reply.bytes).unwrap_or(u32::MAX);
        Ok(reply.map(|reply| (reply.token, bytes(reply))))
    }

    fn save(&self) -> Result<Vec<u8>, Gone> {
        let (control, number) = &self.place;
        files::client::save(control.as_fd(), *number).map_err(|error| {
            tracing::warn!("a shared directory cannot be kept in a snapshot: {error}");
            Gone
        })
    }

    fn restore(&mut self, state: &[u8]) -> Result<(), Gone> {
        let (control, number) = &self.place;
        files::client::restore(control.as_fd(), *number, state).map_err(|_| Gone)
    }

    fn note_written(&mut self, segments: &[Segment], bytes: u32) {
        self.memory.note_filled(segments, bytes.into());
    }
}

/// The thread that waits for one server's answers.
struct Listener {
    desk: Arc<Desk>,
    thread: Option<JoinHandle<()>>,
}

impl Listener {
    fn start(tag: &str, desk: Arc<Desk>) -> std::io::Result<Self> {
        let (its_desk, tag) = (Arc::clone(&desk), tag.to_owned());
        let thread = std::thread::Builder::new().name("files".to_owned()).spawn(move || {
            its_desk.listen();
            tracing::debug!(tag, "the file server is gone");
            // Whatever is asked of it fails from now on.
            its_desk.device.serve(ALL_QUEUES);
            its_desk.device.settle();
        })?;
        // Who has called before this is heard now.
        let _ = desk.listener.set(thread.thread().clone());
        thread.thread().unpark();
        Ok(Self { desk, thread: Some(thread) })
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.desk.line.end();
        self.desk.line.connection.shut();
        self.desk.is_listening.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // What it panicked with has been said.
            let _ = thread.join();
        }
    }
}
