use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

use machine::bus::Size;
use proptest::prelude::*;
use vm_memory::{Bytes, GuestAddress};

use super::*;
use crate::virtio::rig::*;

#[derive(Default)]
struct End {
    sent: Vec<u8>,
    /// How much it takes.
    room: usize,
    coming: VecDeque<u8>,
    is_gone: bool,
    calls: [u32; 2],
}

#[derive(Clone, Default)]
struct Fake(Arc<Mutex<End>>);

impl Fake {
    fn end(&self) -> MutexGuard<'_, End> {
        self.0.lock().unwrap()
    }

    /// What was sent since the packet of zeroes with which each driver begins.
    fn sent(&self) -> Vec<u8> {
        let sent = std::mem::take(&mut self.end().sent);
        assert_eq!(sent.get(..44), Some(&[0; 44][..]));
        sent[44..].to_vec()
    }
}

impl SocketBackend for Fake {
    fn send(&mut self, bytes: &[u8]) -> Result<usize, Gone> {
        let mut end = self.end();
        if end.is_gone {
            return Err(Gone);
        }
        let count = bytes.len().min(end.room);
        end.room -= count;
        end.sent.extend(&bytes[..count]);
        Ok(count)
    }

    fn receive(&mut self, buffer: &mut [u8]) -> Result<usize, Gone> {
        let mut end = self.end();
        if end.is_gone {
            return Err(Gone);
        }
        let count = buffer.len().min(end.coming.len());
        buffer.iter_mut().zip(end.coming.drain(..count)).for_each(|(to, from)| *to = from);
        Ok(count)
    }

    fn call_when_ready(&mut self, queue: usize) {
        self.end().calls[queue] += 1;
    }
}

const GUEST: u64 = 3;

/// A packet of this operation.
fn packet(source: u64, operation: u16, data: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; header::BYTES];
    bytes[..8].copy_from_slice(&source.to_le_bytes());
    bytes[8..16].copy_from_slice(&(5 - source).to_le_bytes());
    bytes[24..28].copy_from_slice(&(data.len() as u32).to_le_bytes());
    bytes[28] = 1;
    bytes[30] = operation as u8;
    [&bytes, data].concat()
}

fn start(queue: u64) -> (Rig, Fake) {
    let fake = Fake::default();
    fake.end().room = usize::MAX;
    let mut rig = Rig::new(Socket::new(GUEST, Box::new(fake.clone())));
    rig.set(0x16, Size::Word, queue);
    (rig.start(VERSION_1 | 1), fake)
}

#[test]
fn packets_of_the_guests_go_whole_and_what_is_none_is_lost() {
    let (mut rig, fake) = start(1);
    assert_eq!(rig.get(0x2000, Size::Qword), GUEST);
    let good = [packet(GUEST, 5, b"hello"), packet(GUEST, 1, b"")].concat();
    let mut other_kind = packet(GUEST, 5, b"x");
    other_kind[28] = 2;
    let all = [
        packet(GUEST, 5, b"hello"),
        packet(7, 5, b"x"),
        packet(2, 5, b"x"),
        other_kind,
        packet(GUEST, 1, b""),
        vec![0; 43],
    ];
    for (head, bytes) in (0u16..).zip(all) {
        let at = 0x8000 + u64::from(head) * 0x100;
        rig.memory.write_slice(&bytes, GuestAddress(at)).unwrap();
        rig.chain(2 * head, &[(at, 20, 0), (at + 20, bytes.len() as u32 - 20, 0)]);
        rig.offer(2 * head);
    }
    // One that says that it is longer than it is.
    rig.memory.write_slice(&packet(GUEST, 5, b"longer"), GuestAddress(0x9000)).unwrap();
    rig.chain(12, &[(0x9000, 49, 0)]);
    rig.offer(12);
    rig.kick_queue(1);
    assert_eq!(rig.used().len(), 7);
    assert_eq!(fake.sent(), good);
}

#[test]
fn a_backend_that_is_full_is_waited_for() {
    let (mut rig, fake) = start(1);
    fake.end().room = 50;
    let bytes = packet(GUEST, 5, &[7; 1000]);
    rig.memory.write_slice(&bytes, GuestAddress(0x8000)).unwrap();
    for head in 0..3 {
        rig.chain(head, &[(0x8000, bytes.len() as u32, 0)]);
        rig.offer(head);
    }
    rig.kick_queue(1);
    assert_eq!(rig.used().len(), 1, "the others wait");
    assert_eq!(fake.end().calls, [0, 1]);
    fake.end().room = usize::MAX;
    rig.kick_queue(1);
    assert_eq!(rig.used().len(), 2);
    assert_eq!(fake.sent(), [&bytes[..]; 3].concat());
}

#[test]
fn what_is_longer_than_a_buffer_goes_in_several() {
    let (mut rig, fake) = start(0);
    let data: Vec<u8> = (0..1000_u32).map(|n| n as u8).collect();
    let bytes = packet(2, 5, &data);
    fake.end().coming.extend(&bytes[..500]);
    for head in 0..3 {
        let at = 0x8000 + u64::from(head) * 0x1000;
        rig.chain(2 * head, &[(at, 44, WRITE), (at + 44, 400, WRITE)]);
        rig.offer(2 * head);
    }
    rig.kick();
    assert_eq!((rig.used(), fake.end().calls), (vec![], [1, 0]), "not all of it is there");
    fake.end().coming.extend(&bytes[500..]);
    fake.end().coming.extend(packet(2, 3, b""));
    rig.kick();
    assert_eq!(rig.used(), [(0, 444), (2, 444), (4, 244)]);
    let read = |at: u64, count: usize| {
        let mut bytes = vec![0; count];
        rig.memory.read_slice(&mut bytes, GuestAddress(at)).unwrap();
        bytes
    };
    for (at, part) in [0x8000, 0x9000, 0xa000].into_iter().zip(data.chunks(400)) {
        assert_eq!(read(at, 44 + part.len()), packet(2, 5, part));
    }
    rig.chain(6, &[(0xb000, 64, WRITE)]);
    rig.offer(6);
    rig.kick();
    assert_eq!(rig.used(), [(6, 44)]);
}

#[test]
fn the_other_end_hears_of_each_driver_once() {
    let (mut rig, fake) = start(0);
    for _ in 0..3 {
        rig.kick();
    }
    assert_eq!(fake.sent(), []);
    for _ in 0..100 {
        rig.set(0x14, Size::Byte, 0);
        rig.restart();
        rig = rig.start(VERSION_1);
    }
    rig.kick();
    assert_eq!(fake.sent(), [], "what nobody has driven is nobody's");
}

#[test]
fn without_the_other_end_everything_is_lost_and_nothing_waits() {
    let (mut rig, fake) = start(1);
    fake.end().is_gone = true;
    rig.memory.write_slice(&packet(GUEST, 1, b""), GuestAddress(0x8000)).unwrap();
    for head in 0..4 {
        rig.chain(head, &[(0x8000, 44, 0)]);
        rig.offer(head);
        rig.kick_queue(1);
    }
    assert_eq!(rig.used().len(), 4);
    let (mut rig, fake) = start(0);
    // What says that it is longer than anything is.
    let mut bytes = packet(2, 5, b"");
    bytes[26] = 2;
    fake.end().coming.extend(bytes);
    rig.chain(0, &[(0x8000, 4096, WRITE)]);
    rig.offer(0);
    rig.kick();
    assert_eq!((rig.used(), rig.status()), (vec![], 15));
}

#[test]
fn what_makes_no_sense_stops_the_device() {
    for (queue, part) in
        [(0, (0x8000, 44, WRITE)), (0, (0xf000_0000, 64, WRITE)), (1, (0xf000_0000, 64, 0))]
    {
        let (mut rig, fake) = start(queue);
        fake.end().coming.extend(packet(2, 5, b"x"));
        rig.chain(0, &[part]);
        rig.offer(0);
        rig.kick_queue(queue);
        assert_eq!((rig.used(), rig.status()), (vec![], 15 | 64));
    }
}

proptest! {
    /// Anything from the guest, and from the other end.
    #[test]
    fn odd_packets_do_no_harm(
        queue in 0..3u64, parts in prop::collection::vec((0..0x1_7000u64, 0..5000u32), 1..12),
        coming in prop::collection::vec(any::<u8>(), 0..500),
        good in 0..4usize, room in 0..10_000usize,
    ) {
        let (mut rig, fake) = start(queue);
        fake.end().room = room;
        (0..good).for_each(|_| fake.end().coming.extend(packet(2, 5, &[1; 700])));
        fake.end().coming.extend(coming);
        let flag = if queue == 1 { 0 } else { WRITE };
        rig.memory.write_slice(&packet(GUEST, 5, &[0; 300]), GuestAddress(0x8000)).unwrap();
        for (n, (address, length)) in (0u16..).zip(parts) {
            rig.chain(n, &[(0x8000 + address, length, flag)]);
            rig.offer(n);
            rig.kick_queue(queue);
            rig.used();
        }
        rig.set(0x14, Size::Byte, 0);
        prop_assert_eq!(rig.status(), 0);
    }
}
