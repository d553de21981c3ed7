//! The back-end of a disk, for stock front-ends (`xen-blkfront`).
//!
//! 1. *The thread that is notified begins.* The vCPU's thread takes requests from the ring and does what waits for
//!    nothing: reads that the host's page cache answers, writes that it takes. What would wait is a job for a thread
//!    of the disk's; the front-end hears of it when that thread has done it.
//! 2. *One thread at a time serves the ring*, under [`Shared::running`]. A thread that is notified meanwhile leaves a
//!    note, and who serves looks for notes when it has let go: none is lost. After [`MAX_TURNS`] it leaves the ring to
//!    a thread of the disk's: another vCPU that never stops asking keeps no vCPU's thread here.
//! 3. *Threads are started when jobs wait for one*, up to [`MAX_THREADS`], and end with the disk.
//! 4. *A ring ends when nothing of it is under way*: frames are the domain's own again only then. Nor is it saved
//!    before: who goes on from a snapshot begins with the first request that has no answer.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, TryLockError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use devices::virtio::Segment;
use locks::Unpoisoned;
use xen_io::Range;
use xen_io::block::{
    Block, DiskSettings, Extent, Failed, Images, Job, Ticket, Vbd, description, offers,
};
use xen_io::bus::{Handshake, Key, Tree, Unwritable};
use xen_io::device::{self, BackEnd, Connect, Link, Places};

use crate::device_memory::DeviceMemory;
use crate::devices::disk::{Buffers, Disk, SECTOR_BYTES};

/// Threads of one disk.
const MAX_THREADS: usize = 8;

/// Turns of a ring that a thread serves at once.
const MAX_TURNS: usize = 64;

/// The device number of the first disk (`xvda`), and how many numbers each of the first has
/// (docs/misc/vbd-interface of Xen).
const FIRST_NUMBER: u32 = 202 << 8;
const NUMBERS_OF_DISK: u32 = 16;

/// Disks behind these have numbers of another form.
const MAX_PLAIN_DISKS: u32 = 16;
const EXTENDED: u32 = 1 << 28;

/// How long who waits for jobs to end waits before it looks again.
const PATIENCE: Duration = Duration::from_millis(50);

/// How long what is under way may take when the disk is to come to rest.
const FREEZE_PATIENCE: Duration = Duration::from_secs(5);

/// The device number of the disk with this index.
fn device_number(index: u32) -> u32 {
    match index {
        0..MAX_PLAIN_DISKS => FIRST_NUMBER + index * NUMBERS_OF_DISK,
        _ => EXTENDED | index << 8,
    }
}

/// A ring that is served.
struct Running {
    block: Block,
    port: u32,
    link: Arc<dyn Link>,
}

/// What threads work on.
#[derive(Default)]
struct Jobs {
    waiting: VecDeque<(Ticket, Job)>,
    ended: VecDeque<(Ticket, Result<(), Failed>)>,
    /// The ring is to be served by a thread.
    serves: bool,
    /// Threads that wait for a job.
    idle: usize,
    threads: Vec<JoinHandle<()>>,
    is_over: bool,
}

/// What the disk's threads share with the vCPUs'.
struct Shared {
    disk: Disk,
    memory: DeviceMemory,
    running: Mutex<Option<Running>>,
    /// Somebody was notified since the ring was served last.
    is_wanted: AtomicBool,
    /// Nothing is begun.
    is_frozen: AtomicBool,
    jobs: Mutex<Jobs>,
    /// There is a job, or it is over.
    called: Condvar,
    /// A job has ended, and the ring was served for it.
    ended: Condvar,
}

impl Shared {
    fn jobs(&self) -> MutexGuard<'_, Jobs> {
        self.jobs.lock().unpoisoned()
    }

    /// Serve the ring, unless another thread does, which then looks again.
    fn serve(self: &Arc<Self>) {
        self.is_wanted.store(true, Ordering::SeqCst);
        for _ in 0..MAX_TURNS {
            if !self.is_wanted.load(Ordering::SeqCst) {
                return;
            }
            let mut running = match self.running.try_lock() {
                Ok(running) => running,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => return,
            };
            if self.is_frozen.load(Ordering::SeqCst) {
                return;
            }
            self.is_wanted.store(false, Ordering::SeqCst);
            let Some(Running { block, port, link }) = &mut *running else { return };
            // A ring that is wrong is served no more; its jobs end all the same.
            let Ok(turn) = block.serve(&mut Keeper(self)) else { continue };
            if turn.notifies {
                link.notify(*port);
            }
            if turn.is_unfinished {
                self.is_wanted.store(true, Ordering::SeqCst);
            }
        }
        let mut jobs = self.jobs();
        jobs.serves = true;
        self.see_to_threads(&mut jobs);
        drop(jobs);
        self.called.notify_one();
    }

    /// Serve no ring any more, when what is under way has ended.
    fn stop(self: &Arc<Self>) {
        let mut running = self.running.lock().unpoisoned();
        while let Some(Running { block, port, link }) = &mut *running {
            // A ring that is wrong is answered no more, and ends all the same.
            let _ = block.drain(&mut Keeper(self));
            if block.is_idle() {
                link.leave(*port);
                *running = None;
                break;
            }
            running = self.ended.wait_timeout(running, PATIENCE).unpoisoned().0;
        }
    }

    /// Begin nothing until [`Self::thaw`], and finish what is under way; whether it is.
    fn freeze(self: &Arc<Self>) -> bool {
        let deadline = Instant::now() + FREEZE_PATIENCE;
        self.is_frozen.store(true, Ordering::SeqCst);
        let mut running = self.running.lock().unpoisoned();
        while let Some(Running { block, port, link }) = &mut *running {
            // One that is wrong stays so.
            if block.drain(&mut Keeper(self)).is_ok_and(|turn| turn.notifies) {
                link.notify(*port);
            }
            if block.is_idle() {
                break;
            }
            if Instant::now() >= deadline {
                return false;
            }
            running = self.ended.wait_timeout(running, PATIENCE).unpoisoned().0;
        }
        true
    }

    /// Go on.
    fn thaw(self: &Arc<Self>) {
        self.is_frozen.store(false, Ordering::SeqCst);
        self.serve();
    }

    /// Have a thread do this.
    fn leave(self: &Arc<Self>, ticket: Ticket, job: Job) {
        let mut jobs = self.jobs();
        jobs.waiting.push_back((ticket, job));
        self.see_to_threads(&mut jobs);
        if jobs.threads.is_empty() {
            // The host has none for us: the guest is told.
            jobs.waiting.pop_back();
            jobs.ended.push_back((ticket, Err(Failed)));
            self.is_wanted.store(true, Ordering::SeqCst);
        }
        drop(jobs);
        self.called.notify_one();
    }

    /// Start a thread if what is to be done needs one more. Without, those that there are do it.
    fn see_to_threads(self: &Arc<Self>, jobs: &mut Jobs) {
        let wanted = jobs.waiting.len() + usize::from(jobs.serves);
        if jobs.idle < wanted && jobs.threads.len() < MAX_THREADS {
            let its_own = Arc::clone(self);
            let thread = std::thread::Builder::new().name("disk".into());
            jobs.threads.extend(thread.spawn(move || its_own.work()));
        }
    }

    /// What a thread does: one job after the other.
    fn work(self: &Arc<Self>) {
        let mut jobs = self.jobs();
        loop {
            if let Some((ticket, job)) = jobs.waiting.pop_front() {
                drop(jobs);
                let result = self.perform(&job);
                self.jobs().ended.push_back((ticket, result));
                self.serve();
                self.ended.notify_all();
                jobs = self.jobs();
            } else if jobs.is_over {
                return;
            } else if std::mem::take(&mut jobs.serves) {
                drop(jobs);
                self.serve();
                self.ended.notify_all();
                jobs = self.jobs();
            } else {
                jobs.idle += 1;
                jobs = self.called.wait(jobs).unpoisoned();
                jobs.idle -= 1;
            }
        }
    }

    fn perform(&self, job: &Job) -> Result<(), Failed> {
        let image = &self.disk.image;
        match job {
            Job::Read { place, target } => {
                self.tell("read", image.read(place.at, &self.buffers(target)))
            }
            Job::Write { place, source } => {
                self.tell("write", image.write(place.at, &self.buffers(source)))
            }
            Job::Flush { .. } => self.tell("flush", image.flush()),
            Job::Discard { place } => self.tell("clear", image.zero(place.at, place.bytes, true)),
        }
    }

    fn buffers(&self, ranges: &[Range]) -> Buffers<'_> {
        Buffers::new(self.memory.map(), segments(ranges))
    }

    /// Say what has failed; the guest gets an I/O error.
    fn tell(&self, what: &str, result: io::Result<()>) -> Result<(), Failed> {
        result.map_err(|error| {
            let name = &self.disk.name;
            let text = format!("disk {name}: cannot {what}: {error}; the guest gets an I/O error");
            (self.disk.complain)(&text);
            Failed
        })
    }
}

/// Guest memory as images take it.
fn segments(ranges: &[Range]) -> Vec<Segment> {
    ranges.iter().map(|it| Segment { address: it.at.0, length: it.bytes }).collect()
}

/// The image, for the thread that serves the ring.
struct Keeper<'a>(&'a Arc<Shared>);

impl Images for Keeper<'_> {
    fn start(&mut self, ticket: Ticket, job: Job) -> Option<Result<(), Failed>> {
        let Self(shared) = self;
        let image = &shared.disk.image;
        match &job {
            Job::Read { place, target } => {
                let buffers = shared.buffers(target);
                if image.read_at_hand(place.at, &buffers) == buffers.bytes() {
                    return Some(Ok(()));
                }
            }
            Job::Write { .. } if image.writes_to_cache() => return Some(shared.perform(&job)),
            Job::Write { .. } | Job::Flush { .. } | Job::Discard { .. } => {}
        }
        shared.leave(ticket, job);
        None
    }

    fn finished(&mut self) -> Option<(Ticket, Result<(), Failed>)> {
        self.0.jobs().ended.pop_front()
    }

    fn filled(&mut self, ranges: &[Range]) {
        for range in ranges {
            self.0.memory.note_written(range.at.0, range.bytes.into());
        }
    }
}

/// A disk on the bus; its threads end with it.
pub struct SplitDisk {
    shared: Arc<Shared>,
    number: u32,
    handshake: Option<Handshake>,
}

impl SplitDisk {
    /// The disk with this index.
    pub fn new(disk: Disk, index: u32, memory: DeviceMemory) -> Self {
        let shared = Shared {
            disk,
            memory,
            running: Mutex::default(),
            is_wanted: AtomicBool::new(false),
            is_frozen: AtomicBool::new(false),
            jobs: Mutex::default(),
            called: Condvar::new(),
            ended: Condvar::new(),
        };
        Self { shared: Arc::new(shared), number: device_number(index), handshake: None }
    }

    fn vbd(&self) -> Result<Vbd, String> {
        let Disk { image, read_only, extents, .. } = &self.shared.disk;
        let sectors = image.bytes() / SECTOR_BYTES;
        let whole = Extent { image: 0, start: 0, sectors, is_writable: !read_only };
        let extents = if extents.is_empty() { &[whole][..] } else { extents };
        Vbd::new(extents).map_err(|error| error.to_string())
    }
}

impl Connect for SplitDisk {
    type Settings = DiskSettings;

    fn handshake(&mut self) -> &mut Option<Handshake> {
        &mut self.handshake
    }

    /// Serve the ring that the front-end has made.
    fn connect(
        &mut self,
        link: &Arc<dyn Link>,
        settings: &DiskSettings,
    ) -> Result<Vec<Key>, String> {
        let vbd = self.vbd()?;
        let discards = self.shared.disk.image.can_discard();
        let block = Block::new(link.grants(), &settings.ring, vbd.clone(), discards);
        let block = block.map_err(|broken| broken.to_string())?;
        let (port, link) = (settings.port, Arc::clone(link));
        *self.shared.running.lock().unpoisoned() =
            Some(Running { block, port, link: Arc::clone(&link) });
        let shared = Arc::clone(&self.shared);
        link.bind(port, Arc::new(move || shared.serve())).map_err(|error| error.to_string())?;
        // What the front-end has put into the ring meanwhile.
        self.shared.serve();
        Ok(description(&vbd))
    }

    fn disconnect(&mut self) {
        self.shared.stop();
    }
}

impl BackEnd for SplitDisk {
    fn kind(&self) -> &'static str {
        "vbd"
    }

    fn number(&self) -> u32 {
        self.number
    }

    fn begin(&mut self, places: &Places, tree: &mut dyn Tree) -> Result<(), Unwritable> {
        let Places { back, front } = places;
        tree.write(&format!("{front}/virtual-device"), &self.number.to_string())?;
        tree.write(&format!("{front}/device-type"), "disk")?;
        let mode = if self.shared.disk.read_only { "r" } else { "w" };
        tree.write(&format!("{back}/mode"), mode)?;
        let discards = self.shared.disk.image.can_discard();
        self.handshake = Some(Handshake::begin(tree, back, front, &offers(discards))?);
        Ok(())
    }

    fn look(&mut self, link: &Arc<dyn Link>, tree: &mut dyn Tree) -> Result<(), Unwritable> {
        device::look(self, link, tree)
    }

    fn freeze(&mut self) -> bool {
        self.shared.freeze()
    }

    fn thaw(&mut self) {
        self.shared.thaw();
    }

    fn resume(
        &mut self,
        places: &Places,
        link: &Arc<dyn Link>,
        tree: &mut dyn Tree,
    ) -> Result<(), String> {
        let (handshake, settings) = Handshake::resume(tree, &places.back, &places.front)?;
        if let Some(settings) = settings {
            let told = tree.read(&format!("{}/sectors", places.back));
            let vbd = self.vbd()?;
            if told.as_deref() != Some(&vbd.sectors().to_string()) {
                let (name, number) = (&self.shared.disk.name, vbd.sectors());
                return Err(format!("disk {name} has {number} sectors, and had another number"));
            }
            self.connect(link, &settings)?;
        }
        self.handshake = Some(handshake);
        Ok(())
    }

    fn end(&mut self) {
        self.shared.stop();
        self.handshake = None;
    }
}

impl Drop for SplitDisk {
    fn drop(&mut self) {
        self.shared.stop();
        self.shared.jobs().is_over = true;
        self.shared.called.notify_all();
        let threads = std::mem::take(&mut self.shared.jobs().threads);
        for thread in threads {
            // One that has panicked has said so.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disks_have_the_numbers_that_xen_gives_them() {
        assert_eq!([0, 1, 15].map(device_number), [51712, 51728, 51952]);
        assert_eq!(device_number(16), 1 << 28 | 16 << 8);
    }
}
