//! A driver for tests, as plain or as wrong as they want it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use machine::bus::Size;
use machine::pci::{Function, MessageSender};
use machine::saved::{Parts, Unfit};
use machine::time::{Hertz, ManualClock};
use machine::{Backplane, Board, Platform, Wake, platform};
use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};

use super::{Device, Doorbell, Shared, Transport};

pub const MEMORY_BYTES: usize = 0x4_0000;
/// From what is one queue's to what is the next one's.
pub const QUEUE_BYTES: u64 = 0x1_0000;
pub const DESCRIPTORS: u64 = 0x1000;
pub const AVAILABLE: u64 = 0x3000;
pub const USED: u64 = 0x4000;
/// Descriptors of its queue.
pub const SIZE: u16 = 16;

pub const NEXT: u16 = 1;
pub const WRITE: u16 = 2;
pub const INDIRECT: u16 = 4;

pub const VERSION_1: u64 = 1 << 32;
pub const EVENT_INDEX: u64 = 1 << 29;

const NOTIFY: u64 = 0x3000;

struct Nobody;

impl Wake for Nobody {
    fn wake(&self, _: usize) {}
}

/// What delivers messages to a processor that never looks.
pub fn sender() -> MessageSender {
    let memory = GuestMemoryMmap::from_ranges(&[(GuestAddress(0), 0x1000)]).unwrap();
    let config = platform::Config {
        processors: 1,
        tsc: Hertz(1_000_000_000),
        memory_bytes: 0,
        maximum_bytes: 0,
        firmware_bytes: 0,
    };
    let surroundings = platform::Surroundings {
        clock: Arc::new(ManualClock::new(Hertz(1_000_000_000), Duration::ZERO)),
        memory: Arc::new(memory),
        wake: Arc::new(Nobody),
    };
    Platform::new(config, surroundings).unwrap().message_sender().unwrap()
}

#[derive(Default)]
struct Bell(AtomicU64);

impl Doorbell for Bell {
    fn ring(&self, queue: usize) {
        self.0.fetch_or(1 << queue, Ordering::SeqCst);
    }
}

/// The most queues that are offered anything.
pub const QUEUES: usize = MEMORY_BYTES / QUEUE_BYTES as usize;

pub struct Rig {
    pub memory: Arc<GuestMemoryMmap>,
    pub transport: Transport,
    pub shared: Arc<Shared>,
    bell: Arc<Bell>,
    /// The queue that requests are offered in, and where its memory begins.
    queue: usize,
    base: u64,
    /// Entries of the available ring that were filled, of each queue.
    offered: [u16; QUEUES],
    /// Entries of the used ring that were looked at.
    seen: [u16; QUEUES],
}

impl Rig {
    pub fn new(device: impl Device + 'static) -> Self {
        let memory = GuestMemoryMmap::from_ranges(&[(GuestAddress(0), MEMORY_BYTES)]).unwrap();
        let (memory, bell) = (Arc::new(memory), Arc::new(Bell::default()));
        let (its_memory, its_bell) = (Arc::clone(&memory) as _, Arc::clone(&bell) as _);
        let transport = Transport::new(Box::new(device), its_memory, its_bell, sender());
        let shared = transport.shared();
        let (offered, seen) = ([0; QUEUES], [0; QUEUES]);
        Self { memory, transport, shared, bell, queue: 0, base: 0, offered, seen }
    }

    /// The same driver and memory, with a device that goes on where this one is.
    pub fn going_on(mut self, device: impl Device + 'static) -> Result<Self, Unfit> {
        let mut parts = Parts::default();
        self.transport.save(&mut parts).expect("it comes to rest");
        let bell = Arc::new(Bell::default());
        let (memory, its_bell) = (Arc::clone(&self.memory), Arc::clone(&bell) as _);
        let its_memory = Arc::clone(&memory) as _;
        let mut transport = Transport::new(Box::new(device), its_memory, its_bell, sender());
        transport.restore(&mut parts)?;
        parts.finish()?;
        let shared = transport.shared();
        Ok(Self { memory, transport, shared, bell, ..self })
    }

    pub fn set(&mut self, at: u64, size: Size, value: u64) {
        self.transport.write(0, at, size, value);
    }

    pub fn get(&mut self, at: u64, size: Size) -> u64 {
        self.transport.read(0, at, size)
    }

    pub fn status(&mut self) -> u64 {
        self.get(0x14, Size::Byte)
    }

    /// Where the memory of the queue begins that this is about.
    pub fn base(&self) -> u64 {
        self.base
    }

    /// What follows is about this queue.
    pub fn turn_to(&mut self, queue: usize) {
        (self.queue, self.base) = (queue, queue as u64 * QUEUE_BYTES);
    }

    /// Everything up to DRIVER_OK, with one queue, the one that is selected.
    pub fn start(mut self, features: u64) -> Self {
        self.agree(features);
        self.set_up_queue();
        self.go()
    }

    /// The same with these queues; then it is turned to the first.
    pub fn start_queues(mut self, features: u64, queues: &[usize]) -> Self {
        self.agree(features);
        for &queue in queues.iter().rev() {
            self.turn_to(queue);
            self.set(0x16, Size::Word, queue as u64);
            self.set_up_queue();
        }
        self.go()
    }

    fn agree(&mut self, features: u64) {
        for (select, part) in [(0, features & 0xffff_ffff), (1, features >> 32)] {
            self.set(8, Size::Dword, select);
            self.set(12, Size::Dword, part);
        }
        self.set(0x14, Size::Byte, 3);
        self.set(0x14, Size::Byte, 11);
    }

    fn set_up_queue(&mut self) {
        self.set(0x18, Size::Word, SIZE.into());
        for (at, address) in [(0x20, DESCRIPTORS), (0x28, AVAILABLE), (0x30, USED)] {
            self.set(at, Size::Dword, self.base + address);
            self.set(at + 4, Size::Dword, 0);
        }
        self.set(0x1c, Size::Word, 1);
    }

    fn go(mut self) -> Self {
        self.set(0x14, Size::Byte, 15);
        assert_eq!(self.status(), 15);
        self
    }

    /// Forget what was offered and used, as a driver does that starts anew.
    pub fn restart(&mut self) {
        (self.offered, self.seen) = ([0; QUEUES], [0; QUEUES]);
        for base in (0..MEMORY_BYTES as u64).step_by(QUEUE_BYTES as usize) {
            (AVAILABLE..USED + 0x200).step_by(2).for_each(|at| self.word(base + at, 0));
        }
    }

    pub fn started(device: impl Device + 'static) -> Self {
        Self::new(device).start(VERSION_1)
    }

    pub fn descriptor(
        &self,
        table: u64,
        at: u64,
        address: u64,
        length: u32,
        flags: u16,
        next: u16,
    ) {
        let bytes = [&address.to_le_bytes()[..], &length.to_le_bytes(), &flags.to_le_bytes()];
        let bytes = [&bytes.concat()[..], &next.to_le_bytes()].concat();
        self.memory.write_slice(&bytes, GuestAddress(table + 16 * at)).unwrap();
    }

    /// Put descriptors into the table from `first` on, chained.
    pub fn chain(&self, first: u16, parts: &[(u64, u32, u16)]) {
        for (at, &(address, length, flags)) in (first..).zip(parts) {
            let more = if usize::from(at - first) + 1 < parts.len() { NEXT } else { 0 };
            self.descriptor(
                self.base + DESCRIPTORS,
                at.into(),
                address,
                length,
                flags | more,
                at + 1,
            );
        }
    }

    /// Offer the chain that starts there, without saying so.
    pub fn offer(&mut self, head: u16) {
        let offered = &mut self.offered[self.queue];
        let entry = self.base + AVAILABLE + 4 + 2 * u64::from(*offered % SIZE);
        *offered = offered.wrapping_add(1);
        self.word(entry, head);
    }

    pub fn word(&self, at: u64, value: u16) {
        self.memory.write_obj(value, GuestAddress(at)).unwrap();
    }

    pub fn load(&self, at: u64) -> u16 {
        self.memory.read_obj(GuestAddress(at)).unwrap()
    }

    /// Move the index of the available ring, ring the bell, and have the device serve.
    pub fn kick(&mut self) {
        self.ring();
        self.serve();
    }

    /// The same, but that it is served later.
    pub fn ring(&mut self) {
        self.word(self.base + AVAILABLE + 2, self.offered[self.queue]);
        self.set(NOTIFY + 4 * self.queue as u64, Size::Word, self.queue as u64);
    }

    /// The same, if the queue that was started is another.
    pub fn kick_queue(&mut self, queue: u64) {
        self.word(AVAILABLE + 2, self.offered[0]);
        self.set(NOTIFY + 4 * queue, Size::Word, queue);
        self.serve();
    }

    pub fn serve(&mut self) {
        self.shared.serve(self.bell.0.swap(0, Ordering::SeqCst));
    }

    /// What the device has used since this was last asked: heads and lengths.
    pub fn used(&mut self) -> Vec<(u32, u32)> {
        let (index, seen) = (self.load(self.base + USED + 2), self.seen[self.queue]);
        let count = index.wrapping_sub(seen);
        assert!(count <= SIZE, "{count} used");
        let entry = |n: u16| {
            let at = self.base + USED + 4 + 8 * u64::from(n % SIZE);
            let [head, length]: [u32; 2] = self.memory.read_obj(GuestAddress(at)).unwrap();
            (head, length)
        };
        let entries = (0..count).map(|n| entry(seen.wrapping_add(n))).collect();
        self.seen[self.queue] = index;
        entries
    }
}
