use std::sync::{Arc, Mutex, MutexGuard};

use machine::bus::Size;
use proptest::prelude::*;
use vm_memory::{Bytes, GuestAddress};

use super::*;
use crate::virtio::rig::*;

#[derive(Default)]
struct Book {
    wanted: u32,
    taken: Vec<(Range<u64>, Reason)>,
    asks: bool,
    told: Option<Statistics>,
}

#[derive(Clone, Default)]
struct Fake(Arc<Mutex<Book>>);

impl Fake {
    fn book(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap()
    }
}

impl Host for Fake {
    fn wanted_pages(&self) -> u32 {
        self.book().wanted
    }

    fn want_pages(&mut self, pages: u32) {
        self.book().wanted = pages;
    }

    fn take(&mut self, addresses: Range<u64>, reason: Reason) {
        assert!(addresses.start < addresses.end);
        assert!((addresses.start | addresses.end).is_multiple_of(PAGE_BYTES));
        self.book().taken.push((addresses, reason));
    }

    fn wants_statistics(&mut self) -> bool {
        std::mem::take(&mut self.book().asks)
    }

    fn tell(&mut self, statistics: Statistics) {
        self.book().told = Some(statistics);
    }
}

const ALL: u64 = VERSION_1 | 0x26;

/// A balloon whose driver has one of its queues, and these features.
fn start(queue: u64, features: u64) -> (Rig, Fake) {
    let fake = Fake::default();
    let mut rig = Rig::new(Balloon::new(Box::new(fake.clone())));
    rig.set(0x16, Size::Word, queue);
    (rig.start(features), fake)
}

#[test]
fn pages_that_are_given_go_to_the_host_together_with_their_neighbours() {
    let (mut rig, fake) = start(0, ALL);
    let numbers: [u32; 6] = [7, 9, 8, 3, 9, u32::MAX];
    let bytes = numbers.map(u32::to_le_bytes).concat();
    rig.memory.write_slice(&bytes, GuestAddress(0x8000)).unwrap();
    // The last byte is no number.
    rig.chain(0, &[(0x8000, 10, 0), (0x800a, 15, 0)]);
    rig.offer(0);
    rig.kick();
    assert_eq!(rig.used(), [(0, 0)]);
    let last = u64::from(u32::MAX) << 12;
    let given = |range| (range, Reason::Given);
    let expected = [0x3000..0x4000, 0x7000..0xa000, last..last + 0x1000].map(given);
    assert_eq!(fake.book().taken, expected);
}

#[test]
fn pages_that_are_taken_back_need_nothing() {
    let (mut rig, fake) = start(1, ALL);
    rig.chain(0, &[(0x8000, 4096, 0)]);
    rig.offer(0);
    rig.kick_queue(1);
    assert_eq!(rig.used(), [(0, 0)]);
    assert!(fake.book().taken.is_empty());
}

#[test]
fn of_what_is_free_only_whole_pages_go() {
    let (mut rig, fake) = start(3, ALL);
    let segments = [(0x4000, 0x2000), (0x6800, 0x1000), (0x9001, 0x2fff), (u64::MAX - 100, 100)];
    for (head, (address, length)) in (0..).zip(segments) {
        rig.chain(head, &[(address, length, WRITE)]);
        rig.offer(head);
    }
    rig.kick_queue(3);
    assert_eq!(rig.used().len(), 4);
    let free = |range| (range, Reason::Free);
    assert_eq!(fake.book().taken, [0x4000..0x6000, 0xa000..0xc000].map(free));
}

#[test]
fn queues_of_features_that_were_not_accepted_are_not_counted() {
    let (mut rig, fake) = start(2, VERSION_1 | 0x20);
    rig.chain(0, &[(0x4000, 0x1000, WRITE)]);
    rig.offer(0);
    rig.kick_queue(2);
    assert_eq!(fake.book().taken, [(0x4000..0x5000, Reason::Free)]);
    let (mut rig, fake) = start(3, VERSION_1);
    rig.chain(0, &[(0x4000, 0x1000, WRITE)]);
    rig.offer(0);
    rig.kick_queue(3);
    assert!(rig.used().is_empty() && fake.book().taken.is_empty());
}

#[test]
fn the_driver_hears_what_is_wanted_and_says_what_there_is() {
    let (mut rig, fake) = start(0, ALL);
    fake.book().wanted = 0x1234;
    rig.kick();
    assert_eq!(rig.get(0x1000, Size::Byte), 2, "a change of the configuration");
    assert_eq!(rig.get(0x2000, Size::Dword), 0x1234);
    rig.set(0x2000, Size::Dword, 7);
    rig.set(0x2004, Size::Dword, 0x1200);
    rig.set(0x2006, Size::Dword, u64::MAX);
    rig.set(0x2008, Size::Dword, 9);
    let read = [0, 4, 8].map(|at| rig.get(0x2000 + at, Size::Dword));
    assert_eq!(read, [0x1234, 0x1200, 0], "only what is the driver's");
    assert_eq!(rig.shared.read_configuration(ACTUAL.start, Size::Dword), 0x1200);
}

#[test]
fn statistics_are_told_when_somebody_asks() {
    let (mut rig, fake) = start(2, ALL);
    let entry = |what: u16, value: u64| [&what.to_le_bytes()[..], &value.to_le_bytes()].concat();
    let bytes = [entry(4, 1 << 20), entry(77, 1), entry(6, 5 << 40), vec![1, 2, 3]].concat();
    rig.memory.write_slice(&bytes, GuestAddress(0x8000)).unwrap();
    rig.chain(0, &[(0x8000, bytes.len() as u32, 0)]);
    rig.offer(0);
    rig.kick_queue(2);
    let expected =
        Statistics { free: Some(1 << 20), available: Some(5 << 40), ..Statistics::default() };
    assert_eq!((rig.used(), fake.book().told), (vec![], Some(expected)));
    fake.book().asks = true;
    rig.kick_queue(2);
    assert_eq!(rig.used(), [(0, 0)], "it has its buffer back, and fills it again");
    // Who asks meanwhile has asked for the next.
    fake.book().asks = true;
    rig.kick_queue(2);
    assert!(rig.used().is_empty());
    rig.offer(0);
    rig.kick_queue(2);
    assert_eq!(rig.used(), [(0, 0)]);
}

#[test]
fn what_is_no_memory_stops_the_device() {
    for queue in [0, 2] {
        let (mut rig, fake) = start(queue, ALL);
        rig.chain(0, &[(0xf000_0000, 40, 0)]);
        rig.offer(0);
        rig.kick_queue(queue);
        assert_eq!((rig.used(), rig.status()), (vec![], 15 | 64));
        assert!(fake.book().taken.is_empty());
    }
}

proptest! {
    /// Anything in any queue: what goes to the host are whole pages.
    #[test]
    fn odd_buffers_do_no_harm(
        queue in 0..4u64, writes: bool, features in 0..64u64,
        parts in prop::collection::vec((any::<u64>(), any::<u32>()), 1..12),
    ) {
        let (mut rig, _fake) = start(queue, VERSION_1 | features & 0x26);
        for (n, (address, length)) in (0u16..).zip(parts) {
            let (address, length) = match n % 2 {
                0 => (0x8000 + address % 0x1_0000, length % 0x4000),
                _ => (address, length),
            };
            rig.chain(n, &[(address, length, u16::from(writes) * WRITE)]);
            rig.offer(n);
            rig.kick_queue(queue);
            rig.used();
        }
        rig.set(0x14, Size::Byte, 0);
        prop_assert_eq!(rig.status(), 0);
    }
}
