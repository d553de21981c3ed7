//! What is between a file system device and the server, which is another process: rings of messages.
//!
//! To wake a thread costs more than most requests. So processors' threads look for answers themselves, as long
//! as they have nothing better to do and there is a core to spare for the server:
//!
//! 1. Who has rung the doorbell sends the request itself, and watches for a moment: what is quick is done
//!    before the guest could have turned to something else. Meanwhile the chip set is not locked: the
//!    doorbell only leaves a note, which is found when the exit has been dealt with.
//! 2. Where there is none to spare, or the server was last on this one ([`Connection::shares_core`]), it leaves its
//!    own to the server instead, and sleeps until the server has answered: two changes of process, where the guest's
//!    going on would have the server wait for a core, and the answer for a thread that passes it on. It gives up
//!    after [`REST`], and tries more seldom while that is in vain.
//! 3. A processor whose guest has nothing to do watches for longer ([`FileServers::watch`]).
//! 4. *Who stops watching leaves it to the listener* ([`Desk::leave`]), a thread that the server wakes with the
//!    next answer, and looks once more. So whatever is outstanding, somebody will hear of it.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use devices::virtio::file_system::{FileServer, FileSystem, Gone};
use devices::virtio::{Chain, Doorbell, Segment, Shared};
use files::{Connection, Range, Reply};
use host::GuestMemory;
use machine::Platform;

use crate::configuration::{Configuration, Error};
use crate::device_memory::DeviceMemory;
use crate::patience::Patience;

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

/// The numbers that requests have (FUSE's are below 53); what is above is counted as the last.
const OPCODES: usize = 64;

/// How often a guest has asked for what.
#[derive(Debug)]
struct Requests([AtomicU64; OPCODES]);

impl Default for Requests {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; OPCODES])
    }
}

impl Requests {
    fn note(&self, opcode: u32) {
        self.0[(opcode as usize).min(OPCODES - 1)].fetch_add(1, Ordering::Relaxed);
    }
}

/// What a guest has asked of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectoryRequests {
    /// The name by which the guest mounts it.
    pub tag: String,
    /// Numbers of FUSE's requests, and how many there were of each; those that were asked for.
    pub counts: Vec<(u32, u64)>,
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
    /// What the guest has asked for, of each directory.
    pub(crate) fn requests(&self) -> Vec<DirectoryRequests> {
        let of = |desk: &Arc<Desk>| {
            let numbers = desk.line.requests.0.iter().enumerate();
            let counts = numbers.map(|(opcode, n)| (opcode as u32, n.load(Ordering::Relaxed)));
            let counts = counts.filter(|(_, count)| *count > 0).collect();
            DirectoryRequests { tag: desk.tag.clone(), counts }
        };
        self.desks.iter().map(of).collect()
    }

    /// Do what processors have rung for, if they have, and wait a moment for an answer: watching if it
    /// `may_watch`, because there is a core for the server as well, or else asleep. How long it was asleep.
    #[inline]
    pub(crate) fn attend(&self, may_watch: impl FnOnce() -> bool) -> Duration {
        match self.rung.load(Ordering::Relaxed) {
            true => self.attend_now(may_watch()),
            false => Duration::ZERO,
        }
    }

    #[cold]
    fn attend_now(&self, may_watch: bool) -> Duration {
        self.rung.store(false, Ordering::SeqCst);
        self.desks.iter().map(|desk| desk.attend(may_watch)).sum()
    }

    /// Watch for answers on the thread of a processor that has nothing to do for so long, until there is one
    /// or it `is_woken`; whether there was one.
    pub(crate) fn watch(&self, span: Duration, is_woken: impl Fn() -> bool) -> bool {
        let waiting = self.desks.iter().find(|desk| desk.line.is_waiting());
        let waiting = waiting.filter(|desk| !desk.line.connection.shares_core());
        waiting.is_some_and(|desk| desk.watch(span.min(IDLE_WATCH), is_woken))
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
    let control = shared.control.as_fd();
    let connections = files::client::introduce(control, memory_file, &regions, &shares)?;
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
    let line = Arc::new(Line {
        connection,
        requests: Requests::default(),
        heard: Mutex::default(),
        outstanding: AtomicUsize::new(0),
        may_watch: AtomicBool::new(false),
        is_brief: AtomicBool::new(false),
    });
    let bell = Arc::new(Bell { wanted: AtomicU64::new(0), rung: Arc::clone(rung) });
    let server = Server { line: Arc::clone(&line), place, memory: memory.clone() };
    let device = Box::new(FileSystem::new(tag, Box::new(server)));
    let device = crate::virtio::plug_in_device(platform, device, memory, Arc::clone(&bell) as _)?;
    let patience = Patience::new(MOST_UNRESTED);
    Ok(Arc::new(Desk { tag: tag.to_owned(), bell, line, device, patience }))
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

/// The longest watch for an answer before the guest goes on: what quick requests take, and somewhat more.
const QUICK_WATCH: Duration = Duration::from_micros(12);

/// The same for a request that a program waits for and that is brief: what it takes to make a file and to begin it. A
/// guest that goes on meanwhile mostly finds nothing to do, and takes longer to fall asleep and to wake up.
const BRIEF_WATCH: Duration = Duration::from_micros(50);

/// The longest watch while the guest has nothing to do: what several wake-ups cost.
const IDLE_WATCH: Duration = Duration::from_micros(200);

/// The longest sleep for an answer before the guest goes on: what quick requests take, with two changes of
/// process, several times over.
const REST: Duration = Duration::from_micros(100);

/// The most requests that are not slept for after a sleep in vain.
const MOST_UNRESTED: u32 = 31;

/// Where requests to one device are seen to.
struct Desk {
    /// The name of the directory.
    tag: String,
    bell: Arc<Bell>,
    line: Arc<Line>,
    device: Arc<Shared>,
    /// Of sleeps.
    patience: Patience,
}

impl Desk {
    /// Do what was rung for; how long this thread has slept.
    fn attend(&self, may_watch: bool) -> Duration {
        let wanted = self.bell.wanted.swap(0, Ordering::SeqCst);
        if wanted == 0 {
            return Duration::ZERO;
        }
        let may_watch = may_watch && !self.line.connection.shares_core();
        self.line.may_watch.store(may_watch, Ordering::Relaxed);
        // Answers may be there for either queue, which who serves one of them finds for both.
        self.device.serve(ALL_QUEUES);
        if !self.line.is_waiting() {
            return Duration::ZERO;
        }
        if may_watch {
            let is_brief = self.line.is_brief.load(Ordering::Relaxed);
            self.watch(if is_brief { BRIEF_WATCH } else { QUICK_WATCH }, || false);
            return Duration::ZERO;
        }
        self.rest()
    }

    /// Sleep for an answer, if that has not been in vain of late, and leave the rest to the listener; how
    /// long that was.
    fn rest(&self) -> Duration {
        if !self.patience.tries() {
            self.leave();
            return Duration::ZERO;
        }
        let start = Instant::now();
        self.line.connection.rest(REST);
        let rested = start.elapsed();
        self.patience.learn(!self.hear());
        self.leave();
        rested
    }

    /// Watch for an answer for so long, and leave the rest to the listener; whether there was one.
    fn watch(&self, span: Duration, is_woken: impl Fn() -> bool) -> bool {
        self.line.connection.wake_waiting(false);
        let mut any = false;
        host::watch(span, || {
            any = self.hear();
            any || is_woken()
        });
        self.leave();
        any
    }

    /// Have the server wake the listener with the next answer, if there is one to come.
    fn leave(&self) {
        while self.line.is_waiting() {
            self.line.connection.wake_waiting(true);
            if !self.hear() {
                return;
            }
        }
    }

    /// Pass on what answers there are; whether there were any.
    fn hear(&self) -> bool {
        let any = self.line.hear();
        if any {
            self.device.serve(ALL_QUEUES);
            self.device.settle();
        }
        any
    }

    /// Wait for answers until the server is gone.
    fn listen(&self) {
        while self.line.connection.wait() {
            self.hear();
            self.leave();
        }
        self.line.hear();
        self.line.lose();
        // Whatever is asked of it fails from now on.
        self.device.serve(ALL_QUEUES);
        self.device.settle();
    }
}

/// What the server has said and the device has not heard.
#[derive(Default)]
struct Heard {
    replies: VecDeque<Reply>,
    is_gone: bool,
}

/// The way to one share's server.
struct Line {
    connection: Connection,
    /// What the device has handed on.
    requests: Requests,
    heard: Mutex<Heard>,
    /// Requests that have no answer.
    outstanding: AtomicUsize,
    /// There is a core for the server to watch for requests.
    may_watch: AtomicBool,
    /// The last request was [brief](files::request_is_brief).
    is_brief: AtomicBool,
}

impl Line {
    fn heard(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there are answers to come.
    fn is_waiting(&self) -> bool {
        self.outstanding.load(Ordering::SeqCst) > 0
    }

    /// There is one less; a server that makes no sense may give more answers than there were questions.
    fn note_answered(&self) {
        let order = Ordering::SeqCst;
        let _ = self.outstanding.fetch_update(order, order, |count| count.checked_sub(1));
    }

    /// Take the answers that are there; whether there were any.
    fn hear(&self) -> bool {
        let mut any = false;
        loop {
            match self.connection.take() {
                Ok(Some(reply)) => self.heard().replies.push_back(reply),
                Ok(None) => return any,
                Err(_) => {
                    self.lose();
                    return true;
                }
            }
            self.note_answered();
            any = true;
        }
    }

    /// Nothing more comes.
    fn end(&self) {
        self.heard().is_gone = true;
    }

    /// Nothing more comes, and nobody has asked for that.
    fn lose(&self) {
        self.outstanding.store(0, Ordering::SeqCst);
        if !std::mem::replace(&mut self.heard().is_gone, true) {
            tracing::error!("the file server has ended; the guest's directories fail from now on");
        }
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
    fn submit(&mut self, token: u64, opcode: u32, chain: &Chain) -> Result<bool, Gone> {
        let range =
            |segment: &Segment| Range { address: segment.address, bytes: segment.length.into() };
        let (readable, writable) = (chain.readable.iter(), chain.writable.iter());
        let may_watch = self.line.may_watch.load(Ordering::Relaxed);
        self.line.outstanding.fetch_add(1, Ordering::SeqCst);
        let sent =
            self.line.connection.submit(token, readable.map(range), writable.map(range), may_watch);
        match sent {
            Ok(true) => {
                self.line.requests.note(opcode);
                self.line.is_brief.store(files::request_is_brief(opcode), Ordering::Relaxed);
            }
            _ => self.line.note_answered(),
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
        })?;
        Ok(Self { desk, thread: Some(thread) })
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.desk.line.end();
        self.desk.line.connection.shut();
        if let Some(thread) = self.thread.take() {
            // What it panicked with has been said.
            let _ = thread.join();
        }
    }
}
