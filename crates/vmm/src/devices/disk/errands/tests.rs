//! A disk whose image says which thread did what, with a driver that is a few writes to memory.

use std::collections::HashSet;
use std::io;
use std::sync::atomic::AtomicU64;
use std::sync::{Condvar, Mutex};
use std::thread::{self, ThreadId};
use std::time::Instant;

use devices::virtio::Transport;
use devices::virtio::block::Block;
use machine::bus::Size;
use machine::pci::Function;
use machine::saved::Parts;
use machine::time::{Hertz, ManualClock};
use machine::{Backplane, Board, Platform, Wake, platform};
use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};

use super::*;
use crate::device_memory::DeviceMemory;
use crate::devices::disk::pool::{Backend, PoolThreads};
use crate::devices::disk::thresholds::SLOW;
use crate::devices::disk::{Buffers, Disk, Image};

const MEMORY_BYTES: u64 = 4 << 20;
const DESCRIPTORS: u64 = 0x1000;
const AVAILABLE: u64 = 0x3000;
const USED: u64 = 0x4000;
const HEADERS: u64 = 0x5000;
const STATUS: u64 = 0x6000;
const DATA: u64 = 0x10_0000;
/// From what is one queue's to what is the next one's, but for the data.
const QUEUE_BYTES: u64 = 0x1_0000;
/// Descriptors of a queue; a request has two or three of four.
const SIZE: u16 = 64;
const QUEUES: usize = 2;

/// Longer than any test may take.
const PATIENCE: Duration = Duration::from_secs(60);

struct Nobody;

impl Wake for Nobody {
    fn wake(&self, _: usize) {}
}

/// What was done, and by whom.
#[derive(Default)]
struct Book {
    done: Mutex<Vec<(&'static str, ThreadId)>>,
    changed: Condvar,
    /// Flushes wait as long as it is locked, and so does reading what is at hand.
    gate: Mutex<()>,
    waiting: AtomicU64,
    /// How long each flush takes, in milliseconds.
    pace: AtomicU64,
}

impl Book {
    fn note(&self, what: &'static str) {
        self.done.lock().unwrap().push((what, thread::current().id()));
        self.changed.notify_all();
    }

    fn pass_gate(&self) {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        drop(self.gate.lock().unwrap());
        self.waiting.fetch_sub(1, Ordering::SeqCst);
    }

    fn wait_until_somebody_is_at_the_gate(&self) {
        let start = Instant::now();
        while self.waiting.load(Ordering::SeqCst) == 0 {
            assert!(start.elapsed() < PATIENCE, "nobody comes");
            thread::yield_now();
        }
    }

    /// What was done until there were so many, and whether this thread did each.
    fn wait_for(&self, count: usize) -> Vec<(&'static str, bool)> {
        let done = self.done.lock().unwrap();
        let few = |done: &mut Vec<_>| done.len() < count;
        let (mut done, waited) = self.changed.wait_timeout_while(done, PATIENCE, few).unwrap();
        assert!(!waited.timed_out(), "only {} of {count} were done", done.len());
        let here = thread::current().id();
        done.drain(..).map(|(what, thread)| (what, thread == here)).collect()
    }
}

struct Fake(Arc<Book>);

impl Image for Fake {
    fn bytes(&self) -> u64 {
        1 << 30
    }

    fn can_discard(&self) -> bool {
        true
    }

    fn read(&self, _: u64, _: &Buffers<'_>) -> io::Result<()> {
        self.0.note("read");
        Ok(())
    }

    /// The first half of the disk.
    fn read_at_hand(&self, at: u64, into: &Buffers<'_>) -> usize {
        let is_there = at < self.bytes() / 2;
        if is_there {
            self.0.pass_gate();
            self.0.note("read at hand");
        }
        if is_there { into.bytes() } else { 0 }
    }

    fn write(&self, _: u64, _: &Buffers<'_>) -> io::Result<()> {
        self.0.note("write");
        Ok(())
    }

    fn writes_to_cache(&self) -> bool {
        true
    }

    fn flush(&self) -> io::Result<()> {
        self.0.pass_gate();
        thread::sleep(Duration::from_millis(self.0.pace.load(Ordering::SeqCst)));
        self.0.note("flush");
        Ok(())
    }

    fn zero(&self, _: u64, _: u64, _: bool) -> io::Result<()> {
        self.0.note("zero");
        Ok(())
    }
}

/// Requests of the driver: their numbers (virtio 1.2, 5.2.6).
const READ: u32 = 0;
const WRITE: u32 = 1;
const FLUSH: u32 = 4;

/// One queue as its driver sees it.
#[derive(Clone)]
struct Driver {
    memory: GuestMemoryMmap,
    queue: usize,
    offered: u16,
}

impl Driver {
    fn base(&self) -> u64 {
        self.queue as u64 * QUEUE_BYTES
    }

    /// Offer a request for so many bytes without ringing.
    fn offer(&mut self, kind: u32, sector: u64, bytes: u32) {
        let number = u64::from(self.offered % (SIZE / 4));
        let header = self.base() + HEADERS + 16 * number;
        self.memory.write_obj([kind, 0], GuestAddress(header)).unwrap();
        self.memory.write_obj(sector, GuestAddress(header + 8)).unwrap();
        let data = [(DATA, bytes, if kind == READ { 2 } else { 0 })];
        let data = if kind == FLUSH { &data[..0] } else { &data };
        let status = (self.base() + STATUS + number, 1, 2);
        let parts = [&[(header, 16, 0)], data, &[status]].concat();
        for (at, &(address, length, flags)) in (4 * number..).zip(&parts) {
            let more = u16::from(at + 1 < 4 * number + parts.len() as u64);
            let place = GuestAddress(self.base() + DESCRIPTORS + 16 * at);
            let rest = u64::from(length) | u64::from(flags | more) << 32 | (at + 1) << 48;
            self.memory.write_obj([address, rest], place).unwrap();
        }
        let entry = self.base() + AVAILABLE + 4 + 2 * u64::from(self.offered % SIZE);
        self.memory.write_obj(4 * number as u16, GuestAddress(entry)).unwrap();
        self.offered = self.offered.wrapping_add(1);
        let index = GuestAddress(self.base() + AVAILABLE + 2);
        self.memory.store(self.offered, index, Ordering::SeqCst).unwrap();
    }

    /// How many requests it has been told of.
    fn used(&self) -> u16 {
        self.memory.load(GuestAddress(self.base() + USED + 2), Ordering::SeqCst).unwrap()
    }

    fn wait_until_used(&self, count: u16) {
        let start = Instant::now();
        while self.used() != count {
            assert!(start.elapsed() < PATIENCE, "{} of {count} are used", self.used());
            thread::yield_now();
        }
    }
}

struct Rig {
    book: Arc<Book>,
    disks: Disks,
    pool: Arc<Pool>,
    transport: Transport,
    drivers: [Driver; QUEUES],
    threads: Option<PoolThreads>,
}

impl Rig {
    fn new() -> Self {
        let book = Arc::new(Book::default());
        let memory = host::GuestMemory::new(&[(0, MEMORY_BYTES)]).unwrap();
        let group = cpu::VcpuGroup::in_memory(&memory).unwrap();
        let device_memory = DeviceMemory::new(&memory, &group);
        let disk = Disk {
            serial: String::new(),
            name: "disk".to_owned(),
            image: Box::new(Fake(Arc::clone(&book))),
            read_only: false,
            extents: Vec::new(),
            complain: Arc::new(|_| {}),
        };
        let mut disks = Disks::default();
        let pool = Pool::new(disk, device_memory.clone(), disks.rung());
        let device = Box::new(Block::new(Box::new(Backend(Arc::clone(&pool))), QUEUES));
        let config = platform::Config {
            processors: 1,
            tsc: Hertz(1 << 30),
            memory_bytes: 0,
            maximum_bytes: 0,
            firmware_bytes: 0,
        };
        let surroundings = platform::Surroundings {
            clock: Arc::new(ManualClock::new(Hertz(1 << 30), Duration::ZERO)),
            memory: Arc::new(memory.map().clone()),
            wake: Arc::new(Nobody),
        };
        let sender = Platform::new(config, surroundings).unwrap().message_sender().unwrap();
        let bell = Arc::clone(&pool) as _;
        let transport = Transport::new(device, Arc::new(device_memory), bell, sender);
        let threads = PoolThreads::start(Arc::clone(&pool), &transport.shared()).unwrap();
        disks.add(Arc::clone(&pool), transport.shared());
        let driver = |queue| Driver { memory: memory.map().clone(), queue, offered: 0 };
        let drivers = std::array::from_fn(driver);
        Self { book, disks, pool, transport, drivers, threads: Some(threads) }.started()
    }

    fn set(&mut self, at: u64, size: Size, value: u64) {
        self.transport.write(0, at, size, value);
    }

    /// With flushing, several queues, and VIRTIO_F_VERSION_1.
    fn started(mut self) -> Self {
        for (select, part) in [(0, 1 << 9 | 1 << 12), (1, 1)] {
            self.set(8, Size::Dword, select);
            self.set(12, Size::Dword, part);
        }
        self.set(0x14, Size::Byte, 3);
        self.set(0x14, Size::Byte, 11);
        for queue in 0..QUEUES as u64 {
            self.set(0x16, Size::Word, queue);
            self.set(0x18, Size::Word, SIZE.into());
            for (at, address) in [(0x20, DESCRIPTORS), (0x28, AVAILABLE), (0x30, USED)] {
                self.set(at, Size::Dword, queue * QUEUE_BYTES + address);
                self.set(at + 4, Size::Dword, 0);
            }
            self.set(0x1c, Size::Word, 1);
        }
        self.set(0x14, Size::Byte, 15);
        self
    }

    /// Offer a request for so many bytes in the first queue, without ringing.
    fn offer(&mut self, kind: u32, sector: u64, bytes: u32) {
        self.drivers[0].offer(kind, sector, bytes);
    }

    fn ring(&mut self) {
        self.ring_for(0);
    }

    fn ring_for(&mut self, queue: usize) {
        self.set(0x3000 + 4 * queue as u64, Size::Word, queue as u64);
        assert!(self.disks.take_rung());
    }

    /// Offer a request and ring when all of the disk's threads sleep.
    fn ask(&mut self, kind: u32, sector: u64, bytes: u32) {
        self.ask_in(0, kind, sector, bytes);
    }

    fn ask_in(&mut self, queue: usize, kind: u32, sector: u64, bytes: u32) {
        let start = Instant::now();
        while !self.pool.is_quiet() {
            assert!(start.elapsed() < PATIENCE, "a thread does not sleep");
            thread::yield_now();
        }
        self.drivers[queue].offer(kind, sector, bytes);
        self.ring_for(queue);
    }

    /// How many requests the first queue's driver has been told of.
    fn used(&self) -> u16 {
        self.drivers[0].used()
    }

    fn wait_until_used(&self, count: u16) {
        self.drivers[0].wait_until_used(count);
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.threads.take();
    }
}

const HERE: bool = true;
const ELSEWHERE: bool = false;

/// The last sector but some, of which nothing is at hand.
const FAR: u64 = (1 << 21) - 64;

#[test]
fn who_rings_writes_and_reads_what_is_at_hand_and_who_halts_flushes() {
    let mut rig = Rig::new();
    rig.ask(WRITE, 0, 4096);
    assert_eq!(rig.disks.attend(false), Errand { jobs: 1, is_left: false });
    rig.ask(READ, 0, 4096);
    assert_eq!(rig.disks.attend(false), Errand { jobs: 1, is_left: false });
    assert_eq!(rig.used(), 2);
    rig.ask(FLUSH, 0, 0);
    assert_eq!(rig.disks.attend(false), Errand { jobs: 0, is_left: true });
    assert_eq!(rig.used(), 2);
    assert_eq!(rig.disks.help(), Errand { jobs: 1, is_left: false });
    rig.ask(READ, FAR, 4096);
    assert_eq!(rig.disks.attend(false), Errand { jobs: 0, is_left: true });
    assert_eq!(rig.disks.help(), Errand { jobs: 1, is_left: false });
    assert_eq!(rig.used(), 4);
    let done = [("write", HERE), ("read at hand", HERE), ("flush", HERE), ("read", HERE)];
    assert_eq!(rig.book.wait_for(4), done);
}

#[test]
fn what_is_left_and_not_helped_with_is_done_by_the_disks_threads() {
    let mut rig = Rig::new();
    for round in 1..=50 {
        rig.ask(FLUSH, 0, 0);
        assert!(rig.disks.attend(false).is_left);
        rig.disks.leave();
        assert_eq!(rig.book.wait_for(1), [("flush", ELSEWHERE)]);
        rig.wait_until_used(round);
        // Nobody asks twice.
        assert_eq!(rig.disks.help(), Errand::default());
    }
}

#[test]
fn what_is_rung_for_and_not_attended_to_is_done_by_the_disks_threads() {
    let mut rig = Rig::new();
    for round in 1..=50 {
        rig.ask(WRITE, 0, 4096);
        rig.disks.leave();
        assert_eq!(rig.book.wait_for(1), [("write", ELSEWHERE)]);
        rig.wait_until_used(round);
    }
}

#[test]
fn what_is_large_is_the_disks_threads() {
    let mut rig = Rig::new();
    rig.ask(WRITE, 0, 1 << 20);
    assert_eq!(rig.disks.attend(false), Errand::default());
    assert_eq!(rig.book.wait_for(1), [("write", ELSEWHERE)]);
    rig.ask(READ, 0, 1 << 20);
    assert_eq!(rig.disks.attend(false), Errand::default());
    assert_eq!(rig.book.wait_for(1), [("read", ELSEWHERE)]);
    // Many that wait are done better by several.
    for number in 0..2 * 8 {
        rig.offer(READ, FAR + 2 * (16 - number), 512);
    }
    rig.ring();
    assert!(!rig.disks.attend(false).is_left);
    assert!(rig.book.wait_for(16).iter().all(|done| *done == ("read", ELSEWHERE)));
    rig.wait_until_used(18);
}

#[test]
fn only_what_is_small_is_done_for_a_guest_that_does_not_halt() {
    let mut rig = Rig::new();
    rig.ask(WRITE, 0, 4096);
    assert_eq!(rig.disks.attend(true), Errand { jobs: 1, is_left: false });
    rig.ask(READ, 0, 4096);
    assert_eq!(rig.disks.attend(true), Errand { jobs: 1, is_left: false });
    assert_eq!(rig.book.wait_for(2), [("write", HERE), ("read at hand", HERE)]);
    rig.ask(WRITE, 0, 64 << 10);
    assert_eq!(rig.disks.attend(true).jobs, 0);
    rig.disks.leave();
    assert_eq!(rig.book.wait_for(1), [("write", ELSEWHERE)]);
    rig.ask(READ, 0, 64 << 10);
    assert_eq!(rig.disks.attend(true).jobs, 0);
    rig.disks.leave();
    assert!(rig.book.wait_for(1).iter().all(|(_, here)| *here == ELSEWHERE));
    rig.wait_until_used(4);
}

#[test]
fn writes_are_done_while_another_processor_flushes() {
    let mut rig = Rig::new();
    rig.ask(FLUSH, 0, 0);
    assert!(rig.disks.attend(false).is_left);
    let book = Arc::clone(&rig.book);
    let gate = book.gate.lock().unwrap();
    let disks = std::mem::take(&mut rig.disks);
    thread::scope(|scope| {
        let other = scope.spawn(|| disks.help());
        book.wait_until_somebody_is_at_the_gate();
        rig.offer(WRITE, 0, 4096);
        rig.set(0x3000, Size::Word, 0);
        assert_eq!(disks.attend(false), Errand { jobs: 1, is_left: false });
        assert_eq!(rig.used(), 1);
        drop(gate);
        assert_eq!(other.join().unwrap().jobs, 1);
    });
    assert_eq!(book.wait_for(2), [("write", HERE), ("flush", ELSEWHERE)]);
    assert_eq!(rig.used(), 2);
}

/// As many are left as take [`Backoff`](crate::devices::backoff::Backoff) at its end.
#[test]
fn slow_flushes_are_left_to_the_disks_threads_but_for_some() {
    let mut rig = Rig::new();
    rig.book.pace.store(2 * SLOW.as_millis() as u64, Ordering::SeqCst);
    let mut here = HashSet::new();
    for round in 0..20 {
        rig.ask(FLUSH, 0, 0);
        assert!(rig.disks.attend(false).is_left);
        rig.disks.help();
        let done = rig.book.wait_for(1);
        if done == [("flush", HERE)] {
            here.insert(round);
        }
        rig.wait_until_used(round + 1);
    }
    assert_eq!(here, HashSet::from([0, 2, 6, 14]));
}

/// A device that comes to rest serves its queue, and finds what nobody has rung for.
#[test]
fn what_is_found_when_a_device_comes_to_rest_is_done() {
    let mut rig = Rig::new();
    rig.offer(FLUSH, 0, 0);
    rig.offer(WRITE, 0, 512);
    assert!(rig.transport.save(&mut Parts::default()).is_ok());
    assert_eq!(rig.used(), 2);
    assert!(rig.book.wait_for(2).iter().all(|(_, here)| *here == ELSEWHERE));
    // What was offered meanwhile is rung for when the device goes on.
    rig.offer(FLUSH, 0, 0);
    rig.transport.thaw();
    rig.disks.leave();
    rig.wait_until_used(3);
}

#[test]
fn each_queue_is_told_of_what_it_has_asked_for() {
    let mut rig = Rig::new();
    let used = |rig: &Rig| rig.drivers.each_ref().map(Driver::used);
    rig.ask_in(1, WRITE, 0, 4096);
    assert_eq!(rig.disks.attend(false), Errand { jobs: 1, is_left: false });
    assert_eq!(used(&rig), [0, 1]);
    rig.ask_in(1, READ, FAR, 4096);
    assert!(rig.disks.attend(false).is_left);
    assert_eq!((rig.disks.help().jobs, used(&rig)), (1, [0, 2]));
    rig.ask_in(1, FLUSH, 0, 0);
    assert!(rig.disks.attend(false).is_left);
    rig.disks.leave();
    rig.drivers[1].wait_until_used(3);
    assert_eq!(used(&rig), [0, 3]);
    let done = [("write", HERE), ("read", HERE), ("flush", ELSEWHERE)];
    assert_eq!(rig.book.wait_for(3), done);
}

/// What several queues have rung for is served by one who looks, and left together.
#[test]
fn several_queues_are_served_on_one_occasion() {
    let mut rig = Rig::new();
    rig.ask_in(0, WRITE, 0, 4096);
    rig.drivers[1].offer(WRITE, 64, 4096);
    rig.drivers[1].offer(FLUSH, 0, 0);
    rig.ring_for(1);
    assert_eq!(rig.disks.attend(false), Errand { jobs: 2, is_left: true });
    assert_eq!(rig.drivers.each_ref().map(Driver::used), [1, 1]);
    assert_eq!(rig.disks.help(), Errand { jobs: 1, is_left: false });
    assert_eq!(rig.drivers.each_ref().map(Driver::used), [1, 2]);
}

/// Who finds the device locked goes on at once, and who has it locked does that work as well; no thread is woken.
#[test]
fn who_serves_looks_again_at_what_others_have_rung_for() {
    let mut rig = Rig::new();
    rig.ask_in(0, READ, 0, 512);
    let (book, disks) = (Arc::clone(&rig.book), std::mem::take(&mut rig.disks));
    let gate = book.gate.lock().unwrap();
    thread::scope(|scope| {
        let other = scope.spawn(|| disks.attend(false));
        book.wait_until_somebody_is_at_the_gate();
        rig.drivers[1].offer(WRITE, 0, 4096);
        rig.set(0x3004, Size::Word, 1);
        assert_eq!(disks.attend(false), Errand::default());
        assert_eq!(rig.drivers.each_ref().map(Driver::used), [0, 0]);
        drop(gate);
        assert_eq!(other.join().unwrap(), Errand { jobs: 2, is_left: false });
    });
    assert_eq!(rig.drivers.each_ref().map(Driver::used), [1, 1]);
    assert_eq!(book.wait_for(2), [("read at hand", ELSEWHERE), ("write", ELSEWHERE)]);
}

/// Two processors that ring, attend and help as it comes, each waiting for its own queue: nothing that was rung
/// for is forgotten when one of them finds the device locked.
#[test]
fn two_processors_with_a_queue_each_wait_for_nothing_in_vain() {
    const ROUNDS: u16 = 3000;
    let mut rig = Rig::new();
    let (drivers, disks) = (rig.drivers.clone(), std::mem::take(&mut rig.disks));
    let (registers, disks) = (Mutex::new(&mut rig.transport), &disks);
    thread::scope(|scope| {
        for mut driver in drivers {
            let registers = &registers;
            scope.spawn(move || {
                for round in 1..=ROUNDS {
                    match round % 4 {
                        0 => driver.offer(FLUSH, 0, 0),
                        1 => driver.offer(READ, FAR, 512),
                        2 => driver.offer(READ, 0, 512),
                        _ => driver.offer(WRITE, 8, 4096),
                    }
                    let queue = driver.queue as u64;
                    registers.lock().unwrap().write(0, 0x3000 + 4 * queue, Size::Word, queue);
                    if disks.attend(false).is_left {
                        match round % 3 {
                            0 => disks.leave(),
                            _ if disks.help().is_left => disks.leave(),
                            _ => {}
                        }
                    }
                    driver.wait_until_used(round);
                }
            });
        }
    });
    assert_eq!(rig.book.wait_for(2 * usize::from(ROUNDS)).len(), 2 * usize::from(ROUNDS));
}
