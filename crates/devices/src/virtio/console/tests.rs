use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

use machine::bus;
use proptest::prelude::*;
use vm_memory::{Bytes, GuestAddress};

use super::*;
use crate::virtio::rig::*;

/// What a terminal has shown and has still to give.
#[derive(Default)]
struct Screen {
    size: Size,
    shown: Vec<u8>,
    /// How much it takes.
    room: usize,
    keys: VecDeque<u8>,
    calls: [u32; 2],
}

#[derive(Clone, Default)]
struct Fake(Arc<Mutex<Screen>>);

impl Fake {
    fn screen(&self) -> MutexGuard<'_, Screen> {
        self.0.lock().unwrap()
    }
}

impl Terminal for Fake {
    fn size(&self) -> Size {
        self.screen().size
    }

    fn show(&mut self, bytes: &[u8]) -> usize {
        let mut screen = self.screen();
        let count = bytes.len().min(screen.room);
        screen.room -= count;
        screen.shown.extend(&bytes[..count]);
        count
    }

    fn typed(&mut self, buffer: &mut [u8]) -> usize {
        let mut screen = self.screen();
        let count = buffer.len().min(screen.keys.len());
        buffer.iter_mut().zip(screen.keys.drain(..count)).for_each(|(to, from)| *to = from);
        count
    }

    fn call_when_typed(&mut self) {
        self.screen().calls[0] += 1;
    }

    fn call_when_free(&mut self) {
        self.screen().calls[1] += 1;
    }
}

const RECEIVE: u64 = 0;
const TRANSMIT: u64 = 1;

/// A console whose driver has one of its queues.
fn start(queue: u64) -> (Rig, Fake) {
    let fake = Fake::default();
    fake.screen().room = usize::MAX;
    let mut rig = Rig::new(Console::new(Box::new(fake.clone())));
    rig.set(0x16, bus::Size::Word, queue);
    (rig.start(VERSION_1 | 1), fake)
}

#[test]
fn what_is_typed_arrives_in_whatever_buffers_there_are() {
    let (mut rig, fake) = start(RECEIVE);
    fake.screen().keys.extend(b"ls -l\n");
    rig.chain(0, &[(0x5000, 2, WRITE), (0x6000, 2, WRITE)]);
    rig.offer(0);
    rig.kick();
    assert_eq!(rig.used(), [(0, 4)]);
    assert_eq!(rig.memory.read_obj::<[u8; 2]>(GuestAddress(0x6000)).unwrap(), *b" -");
    assert_eq!(fake.screen().calls, [0, 0], "there is more to give");
    rig.chain(0, &[(0x7000, 100, WRITE)]);
    rig.offer(0);
    rig.kick();
    assert_eq!(rig.used(), [(0, 2)]);
    assert_eq!(rig.memory.read_obj::<[u8; 2]>(GuestAddress(0x7000)).unwrap(), *b"l\n");
    assert_eq!(fake.screen().calls, [1, 0]);
}

#[test]
fn what_is_sent_is_shown_as_far_as_it_is_taken() {
    let (mut rig, fake) = start(TRANSMIT);
    let text: Vec<u8> = (0..10_000_u32).map(|n| n as u8).collect();
    rig.memory.write_slice(&text, GuestAddress(0x8000)).unwrap();
    fake.screen().room = 5000;
    rig.chain(0, &[(0x8000, 3, 0), (0x8003, 9997, 0)]);
    rig.offer(0);
    rig.kick_queue(TRANSMIT);
    assert_eq!((rig.used(), fake.screen().calls), (vec![], [0, 1]));
    fake.screen().room = usize::MAX;
    rig.kick_queue(TRANSMIT);
    assert_eq!(rig.used(), [(0, 0)]);
    assert_eq!(fake.screen().shown, text);
}

#[test]
fn the_size_of_the_window_is_told_when_it_changes() {
    let (mut rig, fake) = start(RECEIVE);
    let generation = rig.get(0x15, bus::Size::Byte);
    assert_eq!(rig.get(0x2000, bus::Size::Dword), 0);
    assert_eq!(rig.get(0x2004, bus::Size::Dword), 1, "one port");
    fake.screen().size = Size { rows: 24, columns: 80 };
    rig.kick();
    assert_eq!(rig.get(0x2000, bus::Size::Dword), 24 << 16 | 80);
    assert_ne!(rig.get(0x15, bus::Size::Byte), generation);
    assert_eq!(rig.get(0x1000, bus::Size::Byte), 2, "a change of the configuration");
    rig.kick();
    assert_eq!(rig.get(0x1000, bus::Size::Byte), 0, "no change");
}

#[test]
fn a_driver_that_sends_for_the_first_time_is_told_the_size() {
    let (mut rig, _fake) = start(TRANSMIT);
    for expected in [2, 0] {
        rig.kick_queue(TRANSMIT);
        assert_eq!(rig.get(0x1000, bus::Size::Byte), expected);
    }
}

#[test]
fn a_reset_forgets_what_was_sent_and_keeps_what_was_typed() {
    let (mut rig, fake) = start(TRANSMIT);
    fake.screen().room = 0;
    rig.chain(0, &[(0x8000, 100, 0)]);
    rig.offer(0);
    rig.kick_queue(TRANSMIT);
    rig.set(0x14, bus::Size::Byte, 0);
    rig.restart();
    fake.screen().room = usize::MAX;
    fake.screen().keys.extend(b"x");
    rig.set(0x16, bus::Size::Word, RECEIVE);
    let mut rig = rig.start(VERSION_1);
    rig.chain(0, &[(0x5000, 1, WRITE)]);
    rig.offer(0);
    rig.kick();
    assert_eq!(rig.used(), [(0, 1)]);
    assert!(fake.screen().shown.is_empty());
}

#[test]
fn buffers_that_are_no_memory_stop_the_device() {
    for (queue, flag) in [(RECEIVE, WRITE), (TRANSMIT, 0)] {
        let (mut rig, fake) = start(queue);
        fake.screen().keys.extend(b"x");
        rig.chain(0, &[(0xf000_0000, 10, flag)]);
        rig.offer(0);
        rig.kick_queue(queue);
        assert_eq!((rig.used(), rig.status()), (vec![], 15 | 64));
    }
}

proptest! {
    /// What comes out is what went in, whatever the pieces.
    #[test]
    fn nothing_is_lost(pieces in prop::collection::vec((1..300u32, 0..400usize), 1..40)) {
        let (mut rig, fake) = start(TRANSMIT);
        fake.screen().room = 0;
        let (mut sent, mut expected, mut waiting) = (0u64, Vec::new(), 0u32);
        for (length, room) in pieces {
            // The queue has so many.
            if waiting < u32::from(SIZE) {
                let bytes: Vec<u8> = (0..length).map(|n| (n as u64 + sent) as u8).collect();
                let at = 0x8000 + sent % 0x8000;
                rig.memory.write_slice(&bytes, GuestAddress(at)).unwrap();
                let head = (expected.len() % usize::from(SIZE)) as u16;
                rig.chain(head, &[(at, length, 0)]);
                rig.offer(head);
                sent += u64::from(length);
                expected.push(bytes);
                waiting += 1;
            }
            fake.screen().room += room;
            rig.kick_queue(TRANSMIT);
            waiting -= rig.used().len() as u32;
        }
        fake.screen().room = usize::MAX;
        rig.kick_queue(TRANSMIT);
        rig.used();
        prop_assert_eq!(&fake.screen().shown, &expected.concat());
    }
}

#[test]
fn a_console_goes_on_in_the_middle_of_what_it_shows() {
    let (mut rig, first) = start(TRANSMIT);
    let text: Vec<u8> = (0..10_000_u32).map(|n| n as u8).collect();
    rig.memory.write_slice(&text, GuestAddress(0x8000)).unwrap();
    first.screen().room = 5000;
    rig.chain(0, &[(0x8000, 10_000, 0)]);
    rig.offer(0);
    rig.kick_queue(TRANSMIT);
    let second = Fake::default();
    second.screen().room = usize::MAX;
    second.screen().size = Size { rows: 25, columns: 80 };
    let mut rig = rig.going_on(Console::new(Box::new(second.clone()))).unwrap();
    rig.kick_queue(TRANSMIT);
    assert_eq!(rig.used(), [(0, 0)]);
    let shown = [&first.screen().shown[..], &second.screen().shown[..]].concat();
    assert!(shown == text, "{} bytes", shown.len());
}
