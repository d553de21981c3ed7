//! A thread for each device that does I/O, so that the guest computes meanwhile. The doorbell is a word with a bit for
//! each queue: a thread that is busy finds new bits by itself, one that sleeps is woken.
//!
//! A thread may also wait for descriptors ([`EventSource`]), each once per request. It then sleeps in poll(2), and an
//! event descriptor wakes it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{JoinHandle, Thread};

use devices::virtio::{Doorbell, Shared};
use host::poll::{PollFlags, Poller};
use rustix::event::{EventfdFlags, eventfd};

/// The thread is to end.
const END: u64 = 1 << 63;

/// A descriptor that a device's thread waits for.
pub(crate) struct EventSource {
    file: OwnedFd,
    /// What is waited for.
    wanted: AtomicU16,
    /// The queues to serve when it can be read, and when it can be written.
    queues: [usize; 2],
}

impl EventSource {
    /// A descriptor whose input is for the first queue and whose output is the second one's.
    pub(crate) fn new(file: OwnedFd, queues: [usize; 2]) -> Self {
        Self { file, wanted: AtomicU16::new(0), queues }
    }

    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Have the queue served when the descriptor is ready for this, once. For the device's thread.
    pub(crate) fn call_when(&self, ready: PollFlags) {
        self.wanted.fetch_or(ready.bits(), Ordering::SeqCst);
    }

    fn wanted(&self) -> PollFlags {
        PollFlags::from_bits_truncate(self.wanted.load(Ordering::SeqCst))
    }

    /// The queues to serve, as bits, now that it is ready for this.
    fn take(&self, ready: PollFlags) -> u64 {
        if ready.is_empty() {
            return 0;
        }
        let gone = ready.intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL);
        let taken = if gone { self.wanted() } else { ready & self.wanted() };
        self.wanted.fetch_and(!taken.bits(), Ordering::SeqCst);
        let [input, output] = self.queues;
        let bit = |flag, queue: usize| u64::from(taken.contains(flag)) << queue;
        bit(PollFlags::IN, input) | bit(PollFlags::OUT, output)
    }
}

/// How a thread sleeps.
enum Sleep {
    /// Until it is unparked.
    Parked(OnceLock<Thread>),
    /// Until one of these is ready, or it is called.
    Polling { sources: Arc<[EventSource]>, call: OwnedFd, sleeps: AtomicBool },
}

/// What the processors' threads ring.
pub(crate) struct Notifier {
    wanted: AtomicU64,
    sleep: Sleep,
}

impl Default for Notifier {
    fn default() -> Self {
        Self { wanted: AtomicU64::new(0), sleep: Sleep::Parked(OnceLock::new()) }
    }
}

impl Notifier {
    /// A notifier for a thread that waits for these, too.
    pub(crate) fn with_sources(sources: &Arc<[EventSource]>) -> io::Result<Self> {
        let call = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let (sources, sleeps) = (Arc::clone(sources), AtomicBool::new(false));
        Ok(Self { wanted: AtomicU64::new(0), sleep: Sleep::Polling { sources, call, sleeps } })
    }

    fn raise(&self, bits: u64) {
        let before = self.wanted.fetch_or(bits, Ordering::SeqCst);
        match &self.sleep {
            Sleep::Parked(sleeper) if before == 0 => {
                sleeper.get().into_iter().for_each(Thread::unpark);
            }
            Sleep::Polling { call, sleeps, .. } if sleeps.swap(false, Ordering::SeqCst) => {
                // It counts far; a full one has called already.
                let _ = rustix::io::write(call, &1u64.to_ne_bytes());
            }
            _ => {}
        }
    }

    fn wait(&self) -> u64 {
        loop {
            if let Sleep::Polling { sources, call, sleeps } = &self.sleep {
                self.poll(sources, call, sleeps);
            }
            match self.wanted.swap(0, Ordering::SeqCst) {
                0 if matches!(self.sleep, Sleep::Parked(_)) => std::thread::park(),
                0 => {}
                wanted => return wanted,
            }
        }
    }

    /// Look at the sources that are wanted; and wait for them if there is nothing else to do.
    fn poll(&self, sources: &[EventSource], call: &OwnedFd, sleeps: &AtomicBool) {
        sleeps.store(true, Ordering::SeqCst);
        let has_work = self.wanted.load(Ordering::SeqCst) != 0;
        let wanted = |source: &&EventSource| !source.wanted().is_empty();
        let mut poller = Poller::new();
        poller.register(None, call.as_fd(), PollFlags::IN);
        for source in sources.iter().filter(wanted) {
            poller.register(Some(source), source.file(), source.wanted());
        }
        let has_sources = sources.iter().any(|source| wanted(&source));
        if has_sources || !has_work {
            // What fails is tried again: nothing is ready then.
            let _ = if has_work { poller.look() } else { poller.wait(None) };
            let bits = poller.ready().fold(0, |all, (source, flags)| match source {
                Some(source) => all | source.take(flags),
                None => {
                    let _ = rustix::io::read(call, &mut [0; 8]);
                    all
                }
            });
            self.wanted.fetch_or(bits, Ordering::SeqCst);
        }
        sleeps.store(false, Ordering::SeqCst);
    }
}

impl Doorbell for Notifier {
    fn ring(&self, queue: usize) {
        self.raise(1 << (queue & 31));
    }
}

/// A device's thread; it ends with this.
pub(crate) struct IoThread {
    notifier: Arc<Notifier>,
    thread: Option<JoinHandle<()>>,
}

impl IoThread {
    /// Serve `device` when `notifier` says so.
    ///
    /// # Errors
    ///
    /// The host has no thread.
    pub(crate) fn start(
        name: &str,
        notifier: Arc<Notifier>,
        device: Arc<Shared>,
    ) -> io::Result<Self> {
        let its_notifier = Arc::clone(&notifier);
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            loop {
                let wanted = its_notifier.wait();
                if wanted & END != 0 {
                    return;
                }
                device.serve(wanted);
            }
        })?;
        // Who has rung before this is heard now.
        if let Sleep::Parked(sleeper) = &notifier.sleep {
            let _ = sleeper.set(thread.thread().clone());
            thread.thread().unpark();
        }
        Ok(Self { notifier, thread: Some(thread) })
    }
}

impl Drop for IoThread {
    fn drop(&mut self) {
        self.notifier.raise(END);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // What it panicked with has been said.
            let _ = thread.join();
        }
    }
}
