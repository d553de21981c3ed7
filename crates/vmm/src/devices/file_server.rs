//! The connection between file system devices and their server, which is another process: rings of messages.
//!
//! To wake a thread costs more than most requests. So vCPUs' threads poll for answers themselves, as long as they are
//! idle and a core is free for the server:
//!
//! 1. The vCPU's thread that has rung the doorbell sends the request itself, and polls for a moment: a quick request is
//!    answered before the guest could have switched to another task. The chip set is not locked meanwhile: the doorbell
//!    only sets a flag, which the thread finds after the exit.
//! 2. Where no core is free, or the server last ran on this one ([`Connection::shares_core`]), the vCPU's thread yields
//!    its core to the server instead: it sleeps until the server has answered. That costs two context switches; if the
//!    guest continued, the server would wait for a core, and the answer for a thread that delivers it. The thread gives
//!    up after [`REST`], and backs off while that fails.
//! 3. A vCPU's thread whose guest is idle polls for longer ([`FileServers::watch`]).
//! 4. *A thread that stops polling hands over to the listener* ([`DirectoryQueue::leave`]), a thread that the server
//!    wakes with the next answer, and then looks once more. So no answer is missed.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use devices::virtio::file_system::{FileServer, Gone};
use devices::virtio::{Chain, Doorbell, Segment, Shared};
use files::{Connection, Range, Reply};
use locks::Unpoisoned;

use super::backoff::Backoff;
use crate::device_memory::DeviceMemory;

/// Every queue of the device, however many it has.
const ALL_QUEUES: u64 = u64::MAX;

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
    queues: Vec<Arc<DirectoryQueue>>,
    /// A doorbell has been rung.
    rung: Arc<AtomicBool>,
    listeners: Vec<Listener>,
    /// See [`SharedDirectories::control`](super::SharedDirectories::control).
    controls: Vec<Arc<OwnedFd>>,
}

impl FileServers {
    /// What the guest has asked for, of each directory.
    pub(crate) fn requests(&self) -> Vec<DirectoryRequests> {
        let of = |directory: &Arc<DirectoryQueue>| {
            let numbers = directory.link.requests.0.iter().enumerate();
            let counts = numbers.map(|(opcode, n)| (opcode as u32, n.load(Ordering::Relaxed)));
            let counts = counts.filter(|(_, count)| *count > 0).collect();
            DirectoryRequests { tag: directory.tag.clone(), counts }
        };
        self.queues.iter().map(of).collect()
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
        self.queues.iter().map(|directory| directory.attend(may_watch)).sum()
    }

    /// Watch for answers on the thread of a processor that has nothing to do for so long, until there is one
    /// or it `is_woken`; whether there was one.
    pub(crate) fn watch(&self, span: Duration, is_woken: impl Fn() -> bool) -> bool {
        let waiting = self.queues.iter().find(|directory| directory.link.is_waiting());
        let waiting = waiting.filter(|directory| !directory.link.connection.shares_core());
        waiting.is_some_and(|directory| directory.watch(span.min(IDLE_WATCH), is_woken))
    }
}

/// What joins one directory's device and its server.
pub(super) struct Ends {
    link: Arc<ServerLink>,
    rung_queues: Arc<RungQueues>,
}

impl Ends {
    /// The ends of a connection. `place` is the way to ask for all of the share, and its number.
    pub(super) fn backend(&self, place: (Arc<OwnedFd>, usize), memory: DeviceMemory) -> Backend {
        Backend { link: Arc::clone(&self.link), place, memory }
    }

    /// What the device's transport rings.
    pub(super) fn doorbell(&self) -> Arc<dyn Doorbell> {
        Arc::clone(&self.rung_queues) as _
    }
}

impl FileServers {
    /// Join a directory with the server at the other end of `connection`.
    pub(super) fn join(&self, connection: Connection) -> Ends {
        let link = Arc::new(ServerLink {
            connection,
            requests: Requests::default(),
            heard: Mutex::default(),
            outstanding: AtomicUsize::new(0),
            may_watch: AtomicBool::new(false),
            is_brief: AtomicBool::new(false),
        });
        let rung = Arc::clone(&self.rung);
        Ends { link, rung_queues: Arc::new(RungQueues { wanted: AtomicU64::new(0), rung }) }
    }

    /// Attend to a directory from now on, whose device has been plugged in.
    ///
    /// # Errors
    ///
    /// The host has no thread.
    pub(super) fn add(&mut self, tag: &str, ends: Ends, device: Arc<Shared>) -> io::Result<()> {
        let Ends { link, rung_queues } = ends;
        let backoff = Backoff::new(MOST_UNRESTED);
        let tag = tag.to_owned();
        let queue = Arc::new(DirectoryQueue { tag, rung_queues, link, device, backoff });
        self.listeners.push(Listener::start(Arc::clone(&queue))?);
        self.queues.push(queue);
        Ok(())
    }

    /// Keep the connection that ends the server when it is closed.
    pub(super) fn keep(&mut self, control: Arc<OwnedFd>) {
        self.controls.push(control);
    }
}

/// Leaves a note.
struct RungQueues {
    wanted: AtomicU64,
    rung: Arc<AtomicBool>,
}

impl Doorbell for RungQueues {
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
struct DirectoryQueue {
    /// The name of the directory.
    tag: String,
    rung_queues: Arc<RungQueues>,
    link: Arc<ServerLink>,
    device: Arc<Shared>,
    /// Of sleeps.
    backoff: Backoff,
}

impl DirectoryQueue {
    /// Do what was rung for; how long this thread has slept.
    fn attend(&self, may_watch: bool) -> Duration {
        let wanted = self.rung_queues.wanted.swap(0, Ordering::SeqCst);
        if wanted == 0 {
            return Duration::ZERO;
        }
        let may_watch = may_watch && !self.link.connection.shares_core();
        self.link.may_watch.store(may_watch, Ordering::Relaxed);
        // Answers may be there for every queue, which who serves one of them finds for all.
        self.device.serve(ALL_QUEUES);
        if !self.link.is_waiting() {
            return Duration::ZERO;
        }
        if may_watch {
            let is_brief = self.link.is_brief.load(Ordering::Relaxed);
            self.watch(if is_brief { BRIEF_WATCH } else { QUICK_WATCH }, || false);
            return Duration::ZERO;
        }
        self.rest()
    }

    /// Sleep for an answer, if that has not been in vain of late, and leave the rest to the listener; how
    /// long that was.
    fn rest(&self) -> Duration {
        if !self.backoff.tries() {
            self.leave();
            return Duration::ZERO;
        }
        let start = Instant::now();
        self.link.connection.rest(REST);
        let rested = start.elapsed();
        self.backoff.learn(!self.hear());
        self.leave();
        rested
    }

    /// Watch for an answer for so long, and leave the rest to the listener; whether there was one.
    fn watch(&self, span: Duration, is_woken: impl Fn() -> bool) -> bool {
        self.link.connection.wake_waiting(false);
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
        while self.link.is_waiting() {
            self.link.connection.wake_waiting(true);
            if !self.hear() {
                return;
            }
        }
    }

    /// Pass on what answers there are; whether there were any.
    fn hear(&self) -> bool {
        let any = self.link.hear();
        if any {
            self.device.serve(ALL_QUEUES);
            self.device.settle();
        }
        any
    }

    /// Wait for answers until the server is gone.
    fn listen(&self) {
        while self.link.connection.wait() {
            self.hear();
            self.leave();
        }
        self.link.hear();
        self.link.lose();
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
struct ServerLink {
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

impl ServerLink {
    fn heard(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().unpoisoned()
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

    /// The server has ended unexpectedly: no more answers come.
    fn lose(&self) {
        self.outstanding.store(0, Ordering::SeqCst);
        if !std::mem::replace(&mut self.heard().is_gone, true) {
            tracing::error!("the file server has ended; the guest's directories fail from now on");
        }
    }
}

/// The server, as the device knows it.
pub(super) struct Backend {
    link: Arc<ServerLink>,
    /// The way to ask for all of the share, and its number.
    place: (Arc<OwnedFd>, usize),
    memory: DeviceMemory,
}

impl FileServer for Backend {
    fn submit(&mut self, token: u64, opcode: u32, chain: &Chain) -> Result<bool, Gone> {
        let range =
            |segment: &Segment| Range { address: segment.address, bytes: segment.length.into() };
        let (readable, writable) = (chain.readable.iter(), chain.writable.iter());
        let may_watch = self.link.may_watch.load(Ordering::Relaxed);
        self.link.outstanding.fetch_add(1, Ordering::SeqCst);
        let sent =
            self.link.connection.submit(token, readable.map(range), writable.map(range), may_watch);
        match sent {
            Ok(true) => {
                self.link.requests.note(opcode);
                self.link.is_brief.store(files::request_is_brief(opcode), Ordering::Relaxed);
            }
            _ => self.link.note_answered(),
        }
        sent.map_err(|error| {
            // What has too many parts is wrong in itself, but nothing that a driver does.
            tracing::debug!(%error, "the file server takes no request");
            self.link.lose();
            Gone
        })
    }

    fn take(&mut self) -> Result<Option<(u64, u32)>, Gone> {
        let mut heard = self.link.heard();
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
    directory: Arc<DirectoryQueue>,
    thread: Option<JoinHandle<()>>,
}

impl Listener {
    fn start(directory: Arc<DirectoryQueue>) -> io::Result<Self> {
        let its_queue = Arc::clone(&directory);
        let thread = std::thread::Builder::new().name("files".to_owned()).spawn(move || {
            its_queue.listen();
            tracing::debug!(tag = its_queue.tag, "the file server is gone");
        })?;
        Ok(Self { directory, thread: Some(thread) })
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.directory.link.end();
        self.directory.link.connection.shut();
        if let Some(thread) = self.thread.take() {
            // What it panicked with has been said.
            let _ = thread.join();
        }
    }
}
