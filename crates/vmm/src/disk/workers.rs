//! The threads of a disk. All are alike, and each does whatever there is to do: serve the device's
//! queue, or carry a job out that would have others wait.
//!
//! 1. *Who has found a request does it.* The thread that the guest's doorbell has woken serves the
//!    queue, which leaves jobs; it takes the first itself, and when that is done tells the guest. So one
//!    request alone costs one wake-up, like a thread that does nothing else.
//! 2. *Somebody listens.* Before a thread does what may take long, it sees to it that another waits for
//!    the doorbell; threads are started as they are needed, up to [`MAX_THREADS`].
//! 3. *What is in the host's page cache takes no thread*: it is read while the queue is served. What is
//!    not has the host begin to read it, all that is in the queue at once; so that one thread which waits
//!    for one after the other has them as soon as several would, for fewer wake-ups. Writing to the page
//!    cache takes little time, and is no reason to wake anybody either.
//!
//! Lock order: the device (whoever serves it), then what is here, one at a time.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use devices::virtio::block::{Failed, Job, Store};
use devices::virtio::{Chain, Doorbell, Segment, Shared};

use super::{Buffers, Disk};
use crate::device_memory::DeviceMemory;

/// Threads of one disk.
const MAX_THREADS: usize = 8;

/// Quick jobs that one thread does one after the other before the guest is told.
const MAX_QUICK_JOBS: usize = 16;

/// How often the user hears of failures.
const COMPLAINT_INTERVAL: Duration = Duration::from_secs(5);

/// What the threads share.
pub(crate) struct Workplace {
    disk: Disk,
    memory: DeviceMemory,
    /// Queues to be served, a bit for each.
    wanted: AtomicU64,
    /// Threads that wait, written with `orders` locked.
    waiting: AtomicUsize,
    orders: Mutex<Orders>,
    called: Condvar,
    ended: Mutex<VecDeque<(usize, Result<(), Failed>)>>,
    complaints: Mutex<Complaints>,
}

#[derive(Default)]
struct Orders {
    jobs: VecDeque<(usize, Job)>,
    threads: Vec<JoinHandle<()>>,
    is_over: bool,
}

#[derive(Default)]
struct Complaints {
    last: Option<Instant>,
    unsaid: u64,
}

/// What a thread does next.
enum Next {
    Serve(u64),
    CarryOut(usize, Job),
    End,
}

impl Workplace {
    pub(crate) fn new(disk: Disk, memory: DeviceMemory) -> Arc<Self> {
        Arc::new(Self {
            disk,
            memory,
            wanted: AtomicU64::new(0),
            waiting: AtomicUsize::new(0),
            orders: Mutex::default(),
            called: Condvar::new(),
            ended: Mutex::default(),
            complaints: Mutex::default(),
        })
    }

    fn work(self: &Arc<Self>, device: &Arc<Shared>) {
        loop {
            match self.next(device) {
                Next::Serve(queues) => device.serve(queues),
                Next::CarryOut(number, job) => {
                    self.carry_out(number, &job);
                    for _ in 1..MAX_QUICK_JOBS {
                        let Some((number, job)) = self.next_quick() else { break };
                        self.carry_out(number, &job);
                    }
                    // We look at it next.
                    self.wanted.fetch_or(1, Ordering::SeqCst);
                    device.settle();
                }
                Next::End => return,
            }
        }
    }

    fn next(self: &Arc<Self>, device: &Arc<Shared>) -> Next {
        let mut orders = lock(&self.orders);
        loop {
            if orders.is_over {
                return Next::End;
            }
            let queues = self.wanted.swap(0, Ordering::SeqCst);
            if queues != 0 {
                return Next::Serve(queues);
            }
            if let Some((number, job)) = orders.jobs.pop_front() {
                self.call_another(&mut orders, device, !self.is_quick(&job));
                return Next::CarryOut(number, job);
            }
            self.waiting.fetch_add(1, Ordering::SeqCst);
            // Who rings now sees us wait; who has rung before is seen.
            if self.wanted.load(Ordering::SeqCst) == 0 {
                orders = self.called.wait(orders).unwrap_or_else(PoisonError::into_inner);
            }
            self.waiting.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Whether it is a matter of copying to the page cache, or waits for what is on its way.
    fn is_quick(&self, job: &Job) -> bool {
        match job {
            Job::Write { .. } => true,
            Job::Read { .. } => self.disk.image.starts_reading(),
            Job::Flush | Job::Zero { .. } => false,
        }
    }

    fn next_quick(&self) -> Option<(usize, Job)> {
        let mut orders = lock(&self.orders);
        let is_quick = orders.jobs.front().is_some_and(|(_, job)| self.is_quick(job));
        if is_quick { orders.jobs.pop_front() } else { None }
    }

    /// See that somebody listens, and, if we will be `long`, that what is left is begun.
    fn call_another(self: &Arc<Self>, orders: &mut Orders, device: &Arc<Shared>, long: bool) {
        if self.waiting.load(Ordering::SeqCst) > 0 {
            if long && !orders.jobs.is_empty() {
                self.called.notify_one();
            }
        } else if orders.threads.len() < if long { MAX_THREADS } else { 2 } {
            // Where the host has no thread for us, those that there are do the work.
            let _ = self.start_thread(orders, device);
        }
    }

    fn start_thread(self: &Arc<Self>, orders: &mut Orders, device: &Arc<Shared>) -> io::Result<()> {
        let (place, device) = (Arc::clone(self), Arc::clone(device));
        let thread = std::thread::Builder::new().name("disk".into());
        orders.threads.push(thread.spawn(move || place.work(&device))?);
        Ok(())
    }

    fn carry_out(&self, number: usize, job: &Job) {
        let result = self.perform(job);
        lock(&self.ended).push_back((number, result));
    }

    fn perform(&self, job: &Job) -> Result<(), Failed> {
        let image = &self.disk.image;
        let buffers = |segments: &[Segment]| Buffers::new(self.memory.map(), segments.to_vec());
        match job {
            Job::Read { at, target } => {
                let read = image.read(*at, &buffers(target));
                self.note_written(target);
                self.tell("read", *at, read)
            }
            Job::Write { at, source } => {
                self.tell("write", *at, image.write(*at, &buffers(source)))
            }
            Job::Flush => self.tell("flush", 0, image.flush()),
            Job::Zero { at, bytes, unmap } => {
                self.tell("clear", *at, image.zero(*at, *bytes, *unmap))
            }
        }
    }

    /// What needs no waiting of a read; the rest of it, if there is one.
    fn read_at_hand(&self, at: u64, target: Vec<Segment>) -> Option<Job> {
        let buffers = Buffers::new(self.memory.map(), target);
        let done = self.disk.image.read_at_hand(at, &buffers);
        if done > 0 {
            self.note_written(buffers.segments());
        }
        let rest = buffers.bytes() - done;
        let target = || buffers.part(done, rest).segments().to_vec();
        (rest > 0).then(|| Job::Read { at: at + done as u64, target: target() })
    }

    fn note_written(&self, segments: &[Segment]) {
        self.memory.note_filled(segments, Chain::bytes(segments));
    }

    fn tell(&self, what: &str, at: u64, result: io::Result<()>) -> Result<(), Failed> {
        result.map_err(|error| {
            let mut complaints = lock(&self.complaints);
            let is_due = complaints.last.is_none_or(|last| last.elapsed() >= COMPLAINT_INTERVAL);
            if !is_due {
                complaints.unsaid += 1;
                return Failed;
            }
            complaints.last = Some(Instant::now());
            let unsaid = std::mem::take(&mut complaints.unsaid);
            drop(complaints);
            let more = if unsaid > 0 { format!(" ({unsaid} more before)") } else { String::new() };
            let place = if what == "flush" { String::new() } else { format!(" at {at}") };
            let name = &self.disk.name;
            (self.disk.complain)(&format!(
                "disk {name}: cannot {what}{place}: {error}; the guest gets an I/O error{more}"
            ));
            Failed
        })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Doorbell for Workplace {
    fn ring(&self, queue: usize) {
        let before = self.wanted.fetch_or(1 << (queue & 31), Ordering::SeqCst);
        if before == 0 && self.waiting.load(Ordering::SeqCst) > 0 {
            // Who waits has let go of it.
            drop(lock(&self.orders));
            self.called.notify_one();
        }
    }
}

/// What the device sees of it.
pub(crate) struct Front(pub(crate) Arc<Workplace>);

impl Store for Front {
    fn bytes(&self) -> u64 {
        self.0.disk.image.bytes()
    }

    fn is_read_only(&self) -> bool {
        self.0.disk.read_only
    }

    fn can_discard(&self) -> bool {
        self.0.disk.image.can_discard()
    }

    fn serial(&self) -> &str {
        &self.0.disk.serial
    }

    fn start(&mut self, number: usize, job: Job) -> Option<Result<(), Failed>> {
        let job = match job {
            Job::Read { at, target } => match self.0.read_at_hand(at, target) {
                None => return Some(Ok(())),
                Some(rest) => rest,
            },
            job => job,
        };
        // The thread that serves the queue takes it.
        lock(&self.0.orders).jobs.push_back((number, job));
        None
    }

    fn finished(&mut self) -> Option<(usize, Result<(), Failed>)> {
        lock(&self.0.ended).pop_front()
    }
}

/// A disk's threads; they end with this.
pub(crate) struct Workers(Arc<Workplace>);

impl Workers {
    /// Start the first of them.
    ///
    /// # Errors
    ///
    /// The host has no thread.
    pub(crate) fn start(place: Arc<Workplace>, device: &Arc<Shared>) -> io::Result<Self> {
        place.start_thread(&mut lock(&place.orders), device)?;
        Ok(Self(place))
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        let threads = {
            let mut orders = lock(&self.0.orders);
            orders.is_over = true;
            std::mem::take(&mut orders.threads)
        };
        self.0.called.notify_all();
        // What one panicked with has been said.
        threads.into_iter().for_each(|thread| drop(thread.join()));
    }
}
