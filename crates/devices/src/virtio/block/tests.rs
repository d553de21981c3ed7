//! A disk in memory, driven by a driver that is as odd as each test wants it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use machine::memory::Memory;
use proptest::prelude::*;
use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};

use super::bits::kind;
use super::*;
use crate::limits::MAX_BLOCK_REQUESTS;
use crate::virtio::Chain;
use crate::virtio::rig::*;

mod queues;

const SECTORS: u64 = 64;
const HEADERS: u64 = 0x5000;
const STATUS: u64 = 0x6000;
const DATA: u64 = 0x8000;
/// What a status byte holds before it is answered.
const UNANSWERED: u8 = 0x55;

/// What a store has done, and whether it is to do it at once.
#[derive(Default)]
struct Inside {
    bytes: Vec<u8>,
    jobs: Vec<String>,
    /// Jobs wait here until [`Disk::finish`].
    slow: bool,
    waiting: VecDeque<(Ticket, Job)>,
    ended: VecDeque<(Ticket, Result<(), Failed>)>,
    /// Where an index is that each job moves on by one: that of an available ring.
    refilled: Option<u64>,
    /// Queues that are to be served again.
    again: Vec<usize>,
    /// Sectors at which everything fails.
    bad: Vec<u64>,
}

#[derive(Clone, Default)]
struct Disk {
    inside: Arc<Mutex<Inside>>,
    memory: Arc<Mutex<Option<Arc<GuestMemoryMmap>>>>,
    read_only: bool,
}

impl Inside {
    fn carry_out(&mut self, memory: &dyn Memory, job: &Job) -> Result<(), Failed> {
        let (at, length) = match job {
            Job::Read { at, target } => (*at, Chain::bytes(target)),
            Job::Write { at, source } => (*at, Chain::bytes(source)),
            Job::Zero { at, bytes, .. } => (*at, *bytes),
            Job::Flush => (0, 0),
        };
        let (first, end) = (at / SECTOR_BYTES, (at + length) / SECTOR_BYTES);
        let kind = match job {
            Job::Read { .. } => "read",
            Job::Write { .. } => "write",
            Job::Zero { unmap: true, .. } => "unmap",
            Job::Zero { .. } => "zero",
            Job::Flush => "flush",
        };
        self.jobs.push(format!("{kind} {first}..{end}"));
        if let Some(index) = self.refilled.map(GuestAddress) {
            let more = memory.load(index).map_err(|_| Failed)?.wrapping_add(1);
            memory.store(index, more).map_err(|_| Failed)?;
        }
        if self.bad.iter().any(|bad| (first..end).contains(bad)) {
            return Err(Failed);
        }
        let mut at = at as usize;
        match job {
            Job::Read { target, .. } => {
                for segment in target {
                    let bytes = &self.bytes[at..at + segment.length as usize];
                    memory.write(GuestAddress(segment.address), bytes).map_err(|_| Failed)?;
                    at += bytes.len();
                }
            }
            Job::Write { source, .. } => {
                for segment in source {
                    let bytes = &mut self.bytes[at..at + segment.length as usize];
                    memory.read(GuestAddress(segment.address), bytes).map_err(|_| Failed)?;
                    at += bytes.len();
                }
            }
            Job::Zero { bytes, .. } => self.bytes[at..at + *bytes as usize].fill(0),
            Job::Flush => {}
        }
        Ok(())
    }
}

impl Disk {
    fn new() -> Self {
        let disk = Self::default();
        let fill = |at| (at / SECTOR_BYTES) as u8;
        disk.inside.lock().unwrap().bytes = (0..SECTORS * SECTOR_BYTES).map(fill).collect();
        disk
    }

    fn rig(&self, features: u64) -> Rig {
        self.new_rig(1).start(VERSION_1 | features)
    }

    /// With so many queues, of which none is set up.
    fn new_rig(&self, queues: usize) -> Rig {
        let rig = Rig::new(Block::new(Box::new(self.clone()), queues));
        *self.memory.lock().unwrap() = Some(Arc::clone(&rig.memory));
        rig
    }

    fn memory(&self) -> Arc<GuestMemoryMmap> {
        self.memory.lock().unwrap().clone().expect("a rig was made")
    }

    /// Have the last, or the first, of what waits come to its end.
    fn finish(&self, last: bool) -> bool {
        let memory = self.memory();
        let mut inside = self.inside.lock().unwrap();
        let next = if last { inside.waiting.pop_back() } else { inside.waiting.pop_front() };
        let Some((ticket, job)) = next else { return false };
        let result = inside.carry_out(&*memory, &job);
        inside.ended.push_back((ticket, result));
        true
    }

    fn jobs(&self) -> Vec<String> {
        std::mem::take(&mut self.inside.lock().unwrap().jobs)
    }
}

impl BlockBackend for Disk {
    fn bytes(&self) -> u64 {
        SECTORS * SECTOR_BYTES
    }

    fn is_read_only(&self) -> bool {
        self.read_only
    }

    fn can_discard(&self) -> bool {
        true
    }

    fn serial(&self) -> &str {
        "a-disk-whose-name-is-too-long"
    }

    fn start(&mut self, ticket: Ticket, job: Job) -> Option<Result<(), Failed>> {
        let memory = self.memory();
        let mut inside = self.inside.lock().unwrap();
        if inside.slow {
            inside.waiting.push_back((ticket, job));
            return None;
        }
        Some(inside.carry_out(&*memory, &job))
    }

    fn finished(&mut self, queue: usize) -> Option<(usize, Result<(), Failed>)> {
        let ended = &mut self.inside.lock().unwrap().ended;
        let at = ended.iter().position(|(ticket, _)| ticket.queue == queue)?;
        ended.remove(at).map(|(ticket, result)| (ticket.number, result))
    }

    fn serve_again(&mut self, queue: usize) {
        self.inside.lock().unwrap().again.push(queue);
    }
}

const FLUSH: u64 = 1 << 9;

/// Offer request number `at` (three descriptors each): header, data in some pieces, status.
fn offer(rig: &mut Rig, at: u16, kind: u32, sector: u64, data: (u64, u32, u16)) {
    let header = rig.base() + HEADERS + 16 * u64::from(at);
    let status = rig.base() + STATUS + u64::from(at);
    let data = (rig.base() + data.0, data.1, data.2);
    rig.memory.write_obj([u64::from(kind), sector], GuestAddress(header)).unwrap();
    rig.memory.write_obj(UNANSWERED, GuestAddress(status)).unwrap();
    let parts = [(header, 16, 0), data, (status, 1, WRITE)];
    let parts: Vec<_> = parts.into_iter().filter(|part| part.1 > 0).collect();
    rig.chain(3 * at, &parts);
    rig.offer(3 * at);
}

fn status(rig: &Rig, at: u16) -> u8 {
    rig.memory.read_obj(GuestAddress(rig.base() + STATUS + u64::from(at))).unwrap()
}

fn byte(rig: &Rig, at: u64) -> u8 {
    rig.memory.read_obj(GuestAddress(rig.base() + at)).unwrap()
}

#[test]
fn what_is_read_is_what_is_there() {
    let disk = Disk::new();
    let mut rig = disk.rig(FLUSH);
    offer(&mut rig, 0, kind::READ, 5, (DATA, 1024, WRITE));
    rig.kick();
    assert_eq!((rig.used(), status(&rig, 0)), (vec![(0, 1025)], 0));
    assert_eq!([DATA, DATA + 511, DATA + 512, DATA + 1024].map(|at| byte(&rig, at)), [5, 5, 6, 0]);
}

#[test]
fn neighbours_are_one_transfer_and_others_are_not() {
    let disk = Disk::new();
    let mut rig = disk.rig(FLUSH);
    rig.memory.write_slice(&[0xaa; 2048], GuestAddress(DATA)).unwrap();
    for (at, sector) in [(0, 1), (1, 2), (2, 3), (3, 9)] {
        offer(&mut rig, at, kind::WRITE, sector, (DATA, 512, 0));
    }
    offer(&mut rig, 4, kind::READ, 10, (DATA, 512, WRITE));
    rig.kick();
    assert_eq!(rig.used().len(), 5);
    assert_eq!(disk.jobs(), ["write 1..4", "write 9..10", "read 10..11"]);
    assert_eq!(disk.inside.lock().unwrap().bytes[512], 0xaa);
}

#[test]
fn what_fails_together_is_told_apart() {
    let disk = Disk::new();
    let mut rig = disk.rig(FLUSH);
    disk.inside.lock().unwrap().bad = vec![2];
    for (at, sector) in [(0, 1), (1, 2), (2, 3)] {
        offer(&mut rig, at, kind::READ, sector, (DATA, 512, WRITE));
    }
    rig.kick();
    assert_eq!(disk.jobs(), ["read 1..4", "read 1..2", "read 2..3", "read 3..4"]);
    assert_eq!([0, 1, 2].map(|at| status(&rig, at)), [0, 1, 0]);
    assert_eq!(rig.used(), [(0, 513), (3, 1), (6, 513)]);
}

#[test]
fn the_end_of_the_disk_is_respected() {
    let disk = Disk::new();
    let mut rig = disk.rig(FLUSH);
    let check = |rig: &mut Rig, sector, length, expected| {
        offer(rig, 0, kind::READ, sector, (DATA, length, WRITE));
        rig.kick();
        assert_eq!((status(rig, 0), rig.used().len()), (expected, 1), "{sector} {length}");
    };
    check(&mut rig, SECTORS - 1, 512, 0);
    check(&mut rig, SECTORS, 0, 0);
    check(&mut rig, SECTORS - 1, 1024, 1);
    check(&mut rig, SECTORS, 512, 1);
    check(&mut rig, u64::MAX, 512, 1);
    check(&mut rig, u64::MAX / SECTOR_BYTES, 512, 1);
    check(&mut rig, 0, 511, 1);
}

#[test]
fn a_read_only_disk_is_only_read() {
    let disk = Disk { read_only: true, ..Disk::new() };
    let mut rig = disk.rig(FLUSH);
    offer(&mut rig, 0, kind::WRITE, 0, (DATA, 512, 0));
    offer(&mut rig, 1, kind::READ, 0, (DATA, 512, WRITE));
    offer(&mut rig, 2, kind::DISCARD, 0, (DATA, 16, 0));
    rig.kick();
    assert_eq!(([0, 1, 2].map(|at| status(&rig, at)), rig.used().len()), ([1, 0, 1], 3));
    assert_eq!(disk.jobs(), ["read 0..1"]);
}

#[test]
fn flushes_of_a_batch_are_one() {
    let disk = Disk::new();
    let mut rig = disk.rig(FLUSH);
    (0..3).for_each(|at| offer(&mut rig, at, kind::FLUSH, 0, (0, 0, 0)));
    rig.kick();
    assert_eq!((rig.used().len(), disk.jobs()), (3, vec!["flush 0..0".to_owned()]));
}

#[test]
fn without_flushes_what_is_written_stays() {
    let disk = Disk::new();
    let mut rig = disk.rig(0);
    offer(&mut rig, 0, kind::WRITE, 3, (DATA, 512, 0));
    rig.kick();
    assert_eq!(
        (rig.used().len(), disk.jobs()),
        (1, vec!["write 3..4".into(), "flush 0..0".into()])
    );
    // Slowly, the answer waits for both.
    disk.inside.lock().unwrap().slow = true;
    offer(&mut rig, 0, kind::WRITE, 3, (DATA, 512, 0));
    rig.kick();
    for expected in [0, 1] {
        assert!(disk.finish(false));
        rig.set(0x3000, machine::bus::Size::Word, 0);
        rig.serve();
        assert_eq!(rig.used().len(), expected);
    }
}

#[test]
fn the_disk_has_a_name_of_twenty_bytes() {
    let mut rig = Disk::new().rig(FLUSH);
    offer(&mut rig, 0, kind::GET_ID, 0, (DATA, 32, WRITE));
    offer(&mut rig, 1, 77, 0, (DATA, 32, WRITE));
    rig.kick();
    assert_eq!((rig.used(), status(&rig, 0), status(&rig, 1)), (vec![(0, 21), (3, 1)], 0, 2));
    let name = rig.memory.read_obj::<[u8; 21]>(GuestAddress(DATA)).unwrap();
    assert_eq!(&name, b"a-disk-whose-name-is\0");
}

#[test]
fn ranges_are_made_zero() {
    let disk = Disk::new();
    let mut rig = disk.rig(FLUSH);
    let check = |rig: &mut Rig, kind, (sector, sectors, flags): (u64, u32, u32), expected| {
        rig.memory.write_obj(sector, GuestAddress(DATA)).unwrap();
        rig.memory.write_obj([sectors, flags], GuestAddress(DATA + 8)).unwrap();
        offer(rig, 0, kind, 0, (DATA, 16, 0));
        rig.kick();
        assert_eq!((status(rig, 0), rig.used().len()), (expected, 1));
    };
    check(&mut rig, kind::DISCARD, (4, 4, 0), 0);
    check(&mut rig, kind::WRITE_ZEROES, (20, 1, 0), 0);
    check(&mut rig, kind::WRITE_ZEROES, (21, 1, 1), 0);
    assert_eq!(disk.jobs(), ["unmap 4..8", "zero 20..21", "unmap 21..22"]);
    check(&mut rig, kind::DISCARD, (4, 4, 1), 2);
    check(&mut rig, kind::WRITE_ZEROES, (4, 4, 2), 2);
    check(&mut rig, kind::DISCARD, (SECTORS, 1, 0), 1);
    check(&mut rig, kind::DISCARD, (u64::MAX, u32::MAX, 0), 1);
    assert_eq!(disk.jobs().len(), 0);
    offer(&mut rig, 0, kind::DISCARD, 0, (DATA, 15, 0));
    offer(&mut rig, 1, kind::DISCARD, 0, (DATA, 32, 0));
    rig.kick();
    assert_eq!((status(&rig, 0), status(&rig, 1)), (1, 2));
}

#[test]
fn several_requests_are_under_way_and_end_in_any_order() {
    let disk = Disk::new();
    let mut rig = disk.rig(FLUSH);
    disk.inside.lock().unwrap().slow = true;
    offer(&mut rig, 0, kind::READ, 5, (DATA, 512, WRITE));
    offer(&mut rig, 1, kind::READ, 9, (DATA + 512, 512, WRITE));
    rig.kick();
    assert_eq!(rig.used(), []);
    assert_eq!((status(&rig, 0), status(&rig, 1)), (UNANSWERED, UNANSWERED));
    for expected in [(3, 513), (0, 513)] {
        assert!(disk.finish(true));
        rig.set(0x3000, machine::bus::Size::Word, 0);
        rig.serve();
        assert_eq!(rig.used(), [expected]);
    }
    assert_eq!([DATA, DATA + 512].map(|at| byte(&rig, at)), [5, 9]);
}

#[test]
fn a_reset_waits_for_what_is_under_way() {
    let disk = Disk::new();
    let mut rig = disk.rig(FLUSH);
    disk.inside.lock().unwrap().slow = true;
    offer(&mut rig, 0, kind::READ, 5, (DATA, 512, WRITE));
    rig.kick();
    rig.set(0x14, machine::bus::Size::Byte, 0);
    assert_ne!(rig.status(), 0, "it may still write the guest's memory");
    rig.serve();
    assert!(disk.finish(false));
    assert_eq!(rig.status(), 0);
    assert_eq!((rig.used().len(), status(&rig, 0)), (0, UNANSWERED));
    // And it works again.
    disk.inside.lock().unwrap().slow = false;
    rig.restart();
    rig = rig.start(VERSION_1 | FLUSH);
    offer(&mut rig, 0, kind::READ, 5, (DATA, 512, WRITE));
    rig.kick();
    assert_eq!(rig.used(), [(0, 513)]);
}

#[test]
fn a_request_without_room_for_its_answer_stops_the_device() {
    for parts in [
        &[(HEADERS, 16, 0)][..],
        &[(HEADERS, 15, 0), (STATUS, 1, WRITE)],
        &[(HEADERS, 16, 0), (STATUS, 0, WRITE)],
        &[(STATUS, 1, WRITE)],
        &[(0xf000_0000, 16, 0), (STATUS, 1, WRITE)],
        &[(HEADERS, 16, 0), (0xf000_0000, 1, WRITE)],
    ] {
        let mut rig = Disk::new().rig(FLUSH);
        rig.chain(0, parts);
        rig.offer(0);
        rig.kick();
        assert_eq!((rig.used(), rig.status()), (vec![], 15 | 64), "{parts:?}");
    }
}

#[test]
fn header_and_answer_may_lie_anyhow() {
    let disk = Disk::new();
    let mut rig = disk.rig(FLUSH);
    rig.memory.write_obj([0u64, 7], GuestAddress(HEADERS)).unwrap();
    let parts =
        [(HEADERS, 3, 0), (HEADERS + 3, 13, 0), (DATA, 100, WRITE), (DATA + 100, 413, WRITE)];
    rig.chain(0, &parts);
    rig.offer(0);
    rig.kick();
    assert_eq!(rig.used(), [(0, 513)]);
    assert_eq!([0, 99, 511, 512].map(|at| byte(&rig, DATA + at)), [7, 7, 7, 0]);
}

#[test]
fn more_than_fits_is_left_in_the_queue() {
    let disk = Disk::new();
    let mut rig = disk.rig(FLUSH);
    disk.inside.lock().unwrap().slow = true;
    // A driver that offers the same chain again and again before it was used.
    offer(&mut rig, 0, kind::FLUSH, 0, (0, 0, 0));
    for _ in 0..MAX_BLOCK_REQUESTS {
        offer(&mut rig, 0, kind::READ, 0, (DATA, 512, WRITE));
        rig.kick();
    }
    let waiting = disk.inside.lock().unwrap().waiting.len();
    assert_eq!(waiting, MAX_BLOCK_REQUESTS);
    while disk.finish(false) {
        rig.set(0x3000, machine::bus::Size::Word, 0);
        rig.serve();
    }
    assert_eq!(rig.load(USED + 2), MAX_BLOCK_REQUESTS as u16 + 1);
}

proptest! {
    /// Whatever is in the rings, and whenever it is reset: nothing panics, nothing is used twice, and
    /// what was under way ends.
    #[test]
    fn rings_of_an_adversary(
        words in prop::collection::vec((0u64..0x40, any::<u64>()), 1..40),
        steps in prop::collection::vec((0u8..6, any::<u16>()), 1..40),
    ) {
        let disk = Disk::new();
        let mut rig = disk.rig(FLUSH);
        disk.inside.lock().unwrap().slow = true;
        offer(&mut rig, 0, kind::READ, 5, (DATA, 512, WRITE));
        for (at, value) in words {
            let place = match at % 3 {
                0 => DESCRIPTORS + 8 * (at / 3),
                1 => AVAILABLE + 8 * (at / 3 % 5),
                _ => HEADERS + 8 * (at / 3),
            };
            rig.memory.write_obj(value & 0x0003_0003_0000_ffff, GuestAddress(place)).unwrap();
        }
        for (step, value) in steps {
            match step {
                0 => rig.word(AVAILABLE + 2, value % 64),
                1 => rig.set(0x3000, machine::bus::Size::Word, 0),
                2 => { disk.finish(value & 1 == 0); }
                3 if value % 8 == 0 => rig.set(0x14, machine::bus::Size::Byte, 0),
                _ => rig.serve(),
            }
        }
        rig.set(0x14, machine::bus::Size::Byte, 0);
        while disk.finish(false) {}
        prop_assert_eq!(rig.status(), 0);
    }
}
