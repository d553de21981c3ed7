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
use machine::time::{Hertz, ManualClock};
use machine::{Platform, Wake, platform};
use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};

use super::*;
use crate::device_memory::DeviceMemory;
use crate::disk::workers::{Front, Workers};
use crate::disk::{Buffers, Disk, Image};

const MEMORY_BYTES: u64 = 4 << 20;
const DESCRIPTORS: u64 = 0x1000;
const AVAILABLE: u64 = 0x3000;
const USED: u64 = 0x4000;
const HEADERS: u64 = 0x5000;
const STATUS: u64 = 0x6000;
const DATA: u64 = 0x10_0000;
/// Descriptors of the queue; a request has two or three of four.
const SIZE: u16 = 64;

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
    /// Flushes wait as long as it is locked.
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
        self.0.waiting.fetch_add(1, Ordering::SeqCst);
        drop(self.0.gate.lock().unwrap());
        thread::sleep(Duration::from_millis(self.0.pace.load(Ordering::SeqCst)));
        self.0.waiting.fetch_sub(1, Ordering::SeqCst);
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

struct Rig {
    book: Arc<Book>,
    disks: Disks,
    place: Arc<Workplace>,
    transport: Transport,
    memory: GuestMemoryMmap,
    offered: u16,
    threads: Option<Workers>,
}

impl Rig {
    fn new() -> Self {
        let book = Arc::new(Book::default());
        let memory = host::GuestMemory::new(&[(0, MEMORY_BYTES)]).unwrap();
        let package = cpu::Package::in_memory(&memory).unwrap();
        let device_memory = DeviceMemory::new(&memory, &package);
        let disk = Disk {
            serial: String::new(),
            name: "disk".to_owned(),
            image: Box::new(Fake(Arc::clone(&book))),
            read_only: false,
            complain: Arc::new(|_| {}),
        };
        let mut disks = Disks::default();
        let place = Workplace::new(disk, device_memory.clone(), disks.rung());
        let device = Box::new(Block::new(Box::new(Front(Arc::clone(&place)))));
        let config = platform::Config { processors: 1, tsc: Hertz(1 << 30), memory_bytes: 0 };
        let surroundings = platform::Surroundings {
            clock: Arc::new(ManualClock::new(Hertz(1 << 30), Duration::ZERO)),
            memory: Arc::new(memory.map().clone()),
            wake: Arc::new(Nobody),
        };
        let sender = Platform::new(config, surroundings).unwrap().message_sender();
        let bell = Arc::clone(&place) as _;
        let transport = Transport::new(device, Arc::new(device_memory), bell, sender);
        let threads = Workers::start(Arc::clone(&place), &transport.shared()).unwrap();
        disks.add(Arc::clone(&place), transport.shared());
        let (memory, threads) = (memory.map().clone(), Some(threads));
        Self { book, disks, place, transport, memory, offered: 0, threads }.started()
    }

    fn set(&mut self, at: u64, size: Size, value: u64) {
        self.transport.write(0, at, size, value);
    }

    /// With flushing, and VIRTIO_F_VERSION_1.
    fn started(mut self) -> Self {
        for (select, part) in [(0, 1 << 9), (1, 1)] {
            self.set(8, Size::Dword, select);
            self.set(12, Size::Dword, part);
        }
        self.set(0x14, Size::Byte, 3);
        self.set(0x14, Size::Byte, 11);
        self.set(0x18, Size::Word, SIZE.into());
        for (at, address) in [(0x20, DESCRIPTORS), (0x28, AVAILABLE), (0x30, USED)] {
            self.set(at, Size::Dword, address);
            self.set(at + 4, Size::Dword, 0);
        }
        self.set(0x1c, Size::Word, 1);
        self.set(0x14, Size::Byte, 15);
        self
    }

    /// Offer a request for so many bytes without ringing.
    fn offer(&mut self, kind: u32, sector: u64, bytes: u32) {
        let number = u64::from(self.offered % (SIZE / 4));
        let header = HEADERS + 16 * number;
        self.memory.write_obj([kind, 0], GuestAddress(header)).unwrap();
        self.memory.write_obj(sector, GuestAddress(header + 8)).unwrap();
        let data = [(DATA, bytes, if kind == READ { 2 } else { 0 })];
        let data = if kind == FLUSH { &data[..0] } else { &data };
        let parts = [&[(header, 16, 0)], data, &[(STATUS + number, 1, 2)]].concat();
        for (at, &(address, length, flags)) in (4 * number..).zip(&parts) {
            let more = u16::from(at + 1 < 4 * number + parts.len() as u64);
            let place = GuestAddress(DESCRIPTORS + 16 * at);
            let rest = u64::from(length) | u64::from(flags | more) << 32 | (at + 1) << 48;
            self.memory.write_obj([address, rest], place).unwrap();
        }
        let entry = AVAILABLE + 4 + 2 * u64::from(self.offered % SIZE);
        self.memory.write_obj(4 * number as u16, GuestAddress(entry)).unwrap();
        self.offered += 1;
        self.memory.write_obj(self.offered, GuestAddress(AVAILABLE + 2)).unwrap();
    }

    fn ring(&mut self) {
        self.set(0x3000, Size::Word, 0);
        assert!(self.disks.take_rung());
    }

    /// Offer a request and ring when all of the disk's threads sleep.
    fn ask(&mut self, kind: u32, sector: u64, bytes: u32) {
        let start = Instant::now();
        while !self.place.is_quiet() {
            assert!(start.elapsed() < PATIENCE, "a thread does not sleep");
            thread::yield_now();
        }
        self.offer(kind, sector, bytes);
        self.ring();
    }

    /// How many requests the driver has been told of.
    fn used(&self) -> u16 {
        self.memory.read_obj(GuestAddress(USED + 2)).unwrap()
    }

    fn wait_until_used(&self, count: u16) {
        let start = Instant::now();
        while self.used() != count {
            assert!(start.elapsed() < PATIENCE, "{} are used", self.used());
            thread::yield_now();
        }
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
    assert_eq!(rig.disks.attend(), Errand { jobs: 1, is_left: false });
    rig.ask(READ, 0, 4096);
    assert_eq!(rig.disks.attend(), Errand { jobs: 1, is_left: false });
    assert_eq!(rig.used(), 2);
    rig.ask(FLUSH, 0, 0);
    assert_eq!(rig.disks.attend(), Errand { jobs: 0, is_left: true });
    assert_eq!(rig.used(), 2);
    assert_eq!(rig.disks.help(), Errand { jobs: 1, is_left: false });
    rig.ask(READ, FAR, 4096);
    assert_eq!(rig.disks.attend(), Errand { jobs: 0, is_left: true });
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
        assert!(rig.disks.attend().is_left);
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
    assert_eq!(rig.disks.attend(), Errand::default());
    assert_eq!(rig.book.wait_for(1), [("write", ELSEWHERE)]);
    rig.ask(READ, 0, 1 << 20);
    assert_eq!(rig.disks.attend(), Errand::default());
    assert_eq!(rig.book.wait_for(1), [("read", ELSEWHERE)]);
    // Many that wait are done better by several.
    for number in 0..2 * 8 {
        rig.offer(READ, FAR + 2 * (16 - number), 512);
    }
    rig.ring();
    assert!(!rig.disks.attend().is_left);
    assert!(rig.book.wait_for(16).iter().all(|done| *done == ("read", ELSEWHERE)));
    rig.wait_until_used(18);
}

#[test]
fn writes_are_done_while_another_processor_flushes() {
    let mut rig = Rig::new();
    rig.ask(FLUSH, 0, 0);
    assert!(rig.disks.attend().is_left);
    let book = Arc::clone(&rig.book);
    let gate = book.gate.lock().unwrap();
    let disks = std::mem::take(&mut rig.disks);
    thread::scope(|scope| {
        let other = scope.spawn(|| disks.help());
        let start = Instant::now();
        while book.waiting.load(Ordering::SeqCst) == 0 {
            assert!(start.elapsed() < PATIENCE, "nobody flushes");
            thread::yield_now();
        }
        rig.offer(WRITE, 0, 4096);
        rig.set(0x3000, Size::Word, 0);
        assert_eq!(disks.attend(), Errand { jobs: 1, is_left: false });
        assert_eq!(rig.used(), 1);
        drop(gate);
        assert_eq!(other.join().unwrap().jobs, 1);
    });
    assert_eq!(book.wait_for(2), [("write", HERE), ("flush", ELSEWHERE)]);
    assert_eq!(rig.used(), 2);
}

/// As many are left as take [`Patience`](crate::patience::Patience) at its end.
#[test]
fn slow_flushes_are_left_to_the_disks_threads_but_for_some() {
    let mut rig = Rig::new();
    rig.book.pace.store(2 * SLOW.as_millis() as u64, Ordering::SeqCst);
    let mut here = HashSet::new();
    for round in 0..20 {
        rig.ask(FLUSH, 0, 0);
        assert!(rig.disks.attend().is_left);
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
    assert!(rig.transport.save().is_ok());
    assert_eq!(rig.used(), 2);
    assert!(rig.book.wait_for(2).iter().all(|(_, here)| *here == ELSEWHERE));
    // What was offered meanwhile is rung for when the device goes on.
    rig.offer(FLUSH, 0, 0);
    rig.transport.thaw();
    rig.disks.leave();
    rig.wait_until_used(3);
}
