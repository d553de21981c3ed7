//! The I/O threads of a disk. All are alike: each serves the device's queues, or performs a job that would block. They
//! do the work that vCPUs' threads do not do themselves ([`super::errands`]); a vCPU's thread rings the doorbell, and
//! then either attends to the request or wakes an I/O thread.
//!
//! 1. *The thread that finds a request performs it.* The thread that was woken serves the queue, which yields jobs. It
//!    performs the first job itself and then notifies the guest. So a single request costs one wake-up.
//! 2. *One thread is always waiting.* Before a thread performs a job that may take long, it makes sure that another one
//!    waits to be woken. Threads are started when they are needed, up to [`MAX_THREADS`].
//! 3. *The host's page cache needs no thread.* A read that the page cache can answer is done while the queue is served.
//!    For any other read the host's readahead is started, for all that is in the queue at once; then one thread that
//!    waits for one read after the other is as fast as several, with fewer wake-ups. A write to the page cache takes
//!    little time and wakes no other thread either.
//! 4. *The thread that serves the queue attends to its jobs*: it says so before, and looks at the jobs after. A job
//!    that is queued while no thread attends (as when a device quiesces) wakes a thread.
//! 5. *A queue belongs to a vCPU, a thread does not*: there is one list of jobs, and each completion is reported in
//!    the queue that the job came from. One thread at a time serves the device. A thread that finds the device locked
//!    rings, tries once, and goes on. A thread that has served the device unlocks it, and then looks whether more was
//!    rung for. Each of the two has a fence between its two steps, or both could miss each other.
//!
//! Lock order: the device (held by the thread that serves it), then one lock of this file at a time.

use std::cell::Cell;
use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use devices::limits::MAX_BLOCK_QUEUES;
use devices::virtio::block::{BlockBackend, Failed, Job, Ticket};
use devices::virtio::{Chain, Doorbell, Segment, Shared};
use locks::Unpoisoned;

use super::thresholds::{LEAST_FREE, MOST_UNHELPED, SLOW};
use super::{Buffers, Disk};
use crate::device_memory::DeviceMemory;
use crate::devices::backoff::Backoff;

/// Threads of one disk.
const MAX_THREADS: usize = 8;

/// Quick jobs that one thread does one after the other before the guest is told.
const MAX_QUICK_JOBS: usize = 16;

/// Bytes that a processor's thread moves on one occasion, and those of a guest that does not halt.
const ERRAND_BYTES: u64 = 256 << 10;
const BRIEF_ERRAND_BYTES: u64 = 32 << 10;

/// Times that a processor's thread looks for more on one occasion.
const ERRAND_ROUNDS: usize = 2;

/// Jobs that are left for a processor that halts; more are better done by several threads.
const MAX_LEFT: usize = 4;

thread_local! {
    /// Bytes that this thread may still copy from the host's page cache while it serves a queue. A disk's own
    /// threads have no limit, others what they are given.
    static ALLOWANCE: Cell<u64> = const { Cell::new(0) };
    /// Reads that it has done so.
    static READS: Cell<u64> = const { Cell::new(0) };
}

/// How often the user hears of failures.
const COMPLAINT_INTERVAL: Duration = Duration::from_secs(5);

/// What the threads share.
pub(crate) struct Pool {
    disk: Disk,
    memory: DeviceMemory,
    /// Queues to be served, a bit for each.
    wanted: AtomicU64,
    /// A queue is to be served again without being rung for.
    has_more: AtomicBool,
    /// A note for the processor's thread that has rung.
    rung: Arc<AtomicBool>,
    /// A processor's, of writing, and of what waits.
    writes: Backoff,
    waits: Backoff,
    /// How long what waits has taken of late, in nanoseconds.
    wait: AtomicU64,
    /// Threads that wait, written with `orders` locked.
    waiting: AtomicUsize,
    orders: Mutex<Orders>,
    called: Condvar,
    /// By queue: what has ended and was not told of, its number and how it went.
    ended: Mutex<[Ended; MAX_BLOCK_QUEUES]>,
    complaints: Mutex<Complaints>,
}

/// Numbers of jobs, and how they went.
type Ended = VecDeque<(usize, Result<(), Failed>)>;

#[derive(Default)]
struct Orders {
    jobs: VecDeque<(Ticket, Job)>,
    /// Those that look at the jobs when they have served the queue.
    attending: usize,
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
    CarryOut(Ticket, Job),
    End,
}

/// What a processor's thread leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Left {
    /// Nothing, or a disk's thread has been called for it.
    Nothing,
    /// What a processor that halts can do.
    Little,
    /// What it should not.
    Much,
}

impl Pool {
    /// A pool whose doorbell leaves a note in `rung`.
    pub(crate) fn new(disk: Disk, memory: DeviceMemory, rung: Arc<AtomicBool>) -> Arc<Self> {
        Arc::new(Self {
            disk,
            memory,
            rung,
            writes: Backoff::new(MOST_UNHELPED),
            waits: Backoff::new(MOST_UNHELPED),
            wait: AtomicU64::new(0),
            wanted: AtomicU64::new(0),
            has_more: AtomicBool::new(false),
            waiting: AtomicUsize::new(0),
            orders: Mutex::default(),
            called: Condvar::new(),
            ended: Mutex::default(),
            complaints: Mutex::default(),
        })
    }

    fn work(self: &Arc<Self>, device: &Arc<Shared>) {
        ALLOWANCE.set(u64::MAX);
        loop {
            match self.next(device) {
                Next::Serve(queues) => {
                    device.serve(queues);
                    self.orders.lock().unpoisoned().attending -= 1;
                }
                Next::CarryOut(ticket, job) => {
                    let mut queues = self.carry_out(ticket, &job);
                    for _ in 1..MAX_QUICK_JOBS {
                        let Some((ticket, job)) = self.next_quick() else { break };
                        queues |= self.carry_out(ticket, &job);
                    }
                    // We look at them next.
                    self.wanted.fetch_or(queues, Ordering::SeqCst);
                    device.settle();
                }
                Next::End => return,
            }
        }
    }

    fn next(self: &Arc<Self>, device: &Arc<Shared>) -> Next {
        let mut orders = self.orders.lock().unpoisoned();
        loop {
            if orders.is_over {
                return Next::End;
            }
            fence(Ordering::SeqCst);
            let queues = self.wanted.swap(0, Ordering::SeqCst);
            if queues != 0 {
                orders.attending += 1;
                return Next::Serve(queues);
            }
            if let Some((ticket, job)) = orders.jobs.pop_front() {
                self.call_another(&mut orders, device, !self.is_quick(&job));
                return Next::CarryOut(ticket, job);
            }
            self.waiting.fetch_add(1, Ordering::SeqCst);
            // Who rings and then calls sees us wait; who has rung before is seen.
            if self.wanted.load(Ordering::SeqCst) == 0 {
                orders = self.called.wait(orders).unpoisoned();
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

    fn next_quick(&self) -> Option<(Ticket, Job)> {
        let mut orders = self.orders.lock().unpoisoned();
        let is_quick = orders.jobs.front().is_some_and(|(_, job)| self.is_quick(job));
        if is_quick { orders.jobs.pop_front() } else { None }
    }

    /// Make sure that a thread waits, and, if this one will be `long`, that another begins the jobs that are left.
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
        let (pool, device) = (Arc::clone(self), Arc::clone(device));
        let thread = std::thread::Builder::new().name("disk".into());
        orders.threads.push(thread.spawn(move || pool.work(&device))?);
        Ok(())
    }

    /// Do a job; the bit of its queue, which is to be served then.
    fn carry_out(&self, ticket: Ticket, job: &Job) -> u64 {
        self.end(ticket, self.perform(job))
    }

    fn end(&self, Ticket { queue, number }: Ticket, result: Result<(), Failed>) -> u64 {
        self.ended.lock().unpoisoned()[queue].push_back((number, result));
        bit(queue)
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
            let mut complaints = self.complaints.lock().unpoisoned();
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

/// A queue's in [`Pool::wanted`].
fn bit(queue: usize) -> u64 {
    1 << (queue & 63)
}

/// What processors' threads do.
impl Pool {
    /// Have a thread look at what there is.
    fn call(&self) {
        if self.waiting.load(Ordering::SeqCst) > 0 {
            // Who waits has let go of it.
            drop(self.orders.lock().unpoisoned());
            self.called.notify_one();
        }
    }

    /// The same, if there is anything.
    pub(super) fn call_for_all(&self) {
        if self.wanted.load(Ordering::SeqCst) != 0
            || !self.orders.lock().unpoisoned().jobs.is_empty()
        {
            self.call();
        }
    }

    /// Do what has been rung for, as far as it waits for nothing, and only what costs no more than to call a
    /// thread if we are to be `brief`; how many jobs that were, and what is left.
    pub(super) fn attend(&self, device: &Shared, brief: bool) -> (u64, Left) {
        if self.wanted.load(Ordering::SeqCst) == 0 {
            return (0, Left::Nothing);
        }
        if !self.writes.tries() {
            return (0, Left::Much);
        }
        self.orders.lock().unpoisoned().attending += 1;
        let jobs =
            self.serve_and_write(device, if brief { BRIEF_ERRAND_BYTES } else { ERRAND_BYTES });
        (jobs, self.stop_attending())
    }

    /// Do a job that may wait, too; likewise.
    pub(super) fn help(&self, device: &Shared) -> (u64, Left) {
        let (ticket, job) = {
            let mut orders = self.orders.lock().unpoisoned();
            match orders.jobs.pop_front() {
                None => return (0, Left::Nothing),
                Some(next) if suits_a_processor(&next.1) && self.waits.tries() => {
                    orders.attending += 1;
                    next
                }
                Some(next) => {
                    orders.jobs.push_front(next);
                    return (0, Left::Much);
                }
            }
        };
        // Meanwhile others do the others.
        self.call_for_all();
        let start = Instant::now();
        let queue = self.carry_out(ticket, &job);
        let took = start.elapsed();
        self.waits.learn(took > SLOW);
        let before = self.wait.load(Ordering::Relaxed);
        self.wait.store((before - before / 8).max(took.as_nanos() as u64), Ordering::Relaxed);
        self.wanted.fetch_or(queue, Ordering::SeqCst);
        let jobs = 1 + self.serve_and_write(device, ERRAND_BYTES);
        device.settle();
        (jobs, self.stop_attending())
    }

    /// How long a processor has to be free for [`Self::help`].
    pub(super) fn needed(&self) -> Duration {
        let wait = Duration::from_nanos(self.wait.load(Ordering::Relaxed));
        (2 * wait).clamp(LEAST_FREE, SLOW)
    }

    /// Serve the queues and do the writes that this finds, until there is nothing left to tell the guest, and up to
    /// `most` bytes; how many of them.
    fn serve_and_write(&self, device: &Shared, most: u64) -> u64 {
        let (mut jobs, mut bytes) = (0, most);
        READS.set(0);
        for round in 0..=ERRAND_ROUNDS {
            ALLOWANCE.set(most);
            if !self.try_serve(device) {
                return jobs + READS.get();
            }
            let (mut done, mut queues) = (0, 0);
            while round < ERRAND_ROUNDS
                && let Some((ticket, job)) = self.next_write(&mut bytes)
            {
                done += 1;
                let (queue, goes_on) = self.write_here(ticket, job);
                queues |= queue;
                if !goes_on {
                    break;
                }
            }
            if done > 0 {
                jobs += done;
                self.wanted.fetch_or(queues, Ordering::SeqCst);
                device.settle();
            } else if !self.is_wanted() {
                return jobs + READS.get();
            }
        }
        if self.is_wanted() {
            self.call();
        }
        jobs + READS.get()
    }

    /// Serve what is to be served, unless another thread is serving, which then does this as well: a thread
    /// that has served looks whether more is wanted ([`Self::is_wanted`], [`Self::next`]), and sees what was rung for
    /// before this thread found the device locked.
    fn try_serve(&self, device: &Shared) -> bool {
        fence(Ordering::SeqCst);
        device.try_serve(|| self.wanted.swap(0, Ordering::SeqCst))
    }

    /// Whether there is something to be served, for a thread that has just served.
    fn is_wanted(&self) -> bool {
        fence(Ordering::SeqCst);
        self.wanted.load(Ordering::SeqCst) != 0
    }

    /// Whether all threads wait to be called.
    #[cfg(test)]
    pub(super) fn is_quiet(&self) -> bool {
        let orders = self.orders.lock().unpoisoned();
        self.waiting.load(Ordering::SeqCst) == orders.threads.len()
    }

    fn next_write(&self, bytes: &mut u64) -> Option<(Ticket, Job)> {
        let mut orders = self.orders.lock().unpoisoned();
        let Some((_, Job::Write { source, .. })) = orders.jobs.front() else { return None };
        *bytes = bytes.checked_sub(Chain::bytes(source))?;
        if self.disk.image.writes_to_cache() { orders.jobs.pop_front() } else { None }
    }

    /// Write at the doorbell; the bit of the queue that is to be served then, and whether to go on with that.
    fn write_here(&self, ticket: Ticket, job: Job) -> (u64, bool) {
        let Job::Write { at, source } = job else { return (0, false) };
        let start = Instant::now();
        let buffers = Buffers::new(self.memory.map(), source);
        let queue = match self.disk.image.write_at_hand(at, &buffers) {
            Some(done) if done < buffers.bytes() => {
                let rest = buffers.part(done, buffers.bytes() - done).segments().to_vec();
                let rest = Job::Write { at: at + done as u64, source: rest };
                self.orders.lock().unpoisoned().jobs.push_front((ticket, rest));
                return (0, false);
            }
            Some(_) => self.end(ticket, Ok(())),
            None => {
                let source = buffers.segments().to_vec();
                self.carry_out(ticket, &Job::Write { at, source })
            }
        };
        let was_slow = start.elapsed() > SLOW;
        self.writes.learn(was_slow);
        (queue, !was_slow)
    }

    /// Attend no more; what is left.
    fn stop_attending(&self) -> Left {
        let mut orders = self.orders.lock().unpoisoned();
        orders.attending -= 1;
        let few = orders.jobs.len() <= MAX_LEFT;
        match orders.jobs.is_empty() {
            _ if self.has_more.swap(false, Ordering::SeqCst) => Left::Much,
            true => Left::Nothing,
            false if few && orders.jobs.iter().all(|(_, job)| suits_a_processor(job)) => {
                Left::Little
            }
            false => Left::Much,
        }
    }
}

/// Whether a job is small, and waits for no more than a disk.
fn suits_a_processor(job: &Job) -> bool {
    match job {
        Job::Read { target: segments, .. } | Job::Write { source: segments, .. } => {
            Chain::bytes(segments) <= ERRAND_BYTES
        }
        Job::Flush => true,
        Job::Zero { .. } => false,
    }
}

impl Doorbell for Pool {
    fn ring(&self, queue: usize) {
        self.wanted.fetch_or(bit(queue), Ordering::SeqCst);
        self.rung.store(true, Ordering::SeqCst);
    }
}

/// The disk as its device sees it.
pub(crate) struct Backend(pub(crate) Arc<Pool>);

impl BlockBackend for Backend {
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

    fn start(&mut self, ticket: Ticket, job: Job) -> Option<Result<(), Failed>> {
        let job = match job {
            Job::Read { at, target } if is_allowed(&target) => {
                match self.0.read_at_hand(at, target) {
                    None => {
                        READS.set(READS.get() + 1);
                        return Some(Ok(()));
                    }
                    Some(rest) => rest,
                }
            }
            job => job,
        };
        let mut orders = self.0.orders.lock().unpoisoned();
        orders.jobs.push_back((ticket, job));
        if orders.attending == 0 {
            self.0.called.notify_one();
        }
        None
    }

    fn finished(&mut self, queue: usize) -> Option<(usize, Result<(), Failed>)> {
        self.0.ended.lock().unpoisoned()[queue].pop_front()
    }

    fn serve_again(&mut self, queue: usize) {
        let orders = self.0.orders.lock().unpoisoned();
        self.0.wanted.fetch_or(bit(queue), Ordering::SeqCst);
        self.0.has_more.store(true, Ordering::SeqCst);
        if orders.attending == 0 {
            self.0.called.notify_one();
        }
    }
}

/// Whether this thread may copy as much, which it then has.
fn is_allowed(target: &[Segment]) -> bool {
    let rest = ALLOWANCE.get().checked_sub(Chain::bytes(target));
    rest.is_some_and(|rest| {
        // There is no end to what a disk's thread may.
        if ALLOWANCE.get() != u64::MAX {
            ALLOWANCE.set(rest);
        }
        true
    })
}

/// A disk's threads; they end with this.
pub(crate) struct PoolThreads(Arc<Pool>);

impl PoolThreads {
    /// Start the first of them.
    ///
    /// # Errors
    ///
    /// The host has no thread.
    pub(crate) fn start(pool: Arc<Pool>, device: &Arc<Shared>) -> io::Result<Self> {
        pool.start_thread(&mut pool.orders.lock().unpoisoned(), device)?;
        Ok(Self(pool))
    }
}

impl Drop for PoolThreads {
    fn drop(&mut self) {
        let threads = {
            let mut orders = self.0.orders.lock().unpoisoned();
            orders.is_over = true;
            std::mem::take(&mut orders.threads)
        };
        self.0.called.notify_all();
        // What one panicked with has been said.
        threads.into_iter().for_each(|thread| drop(thread.join()));
    }
}
