//! Queues with drivers that break the rules, through a device that does nothing with what it gets.

use std::sync::{Arc, Mutex};

use proptest::prelude::*;
use vm_memory::{Bytes, GuestAddress};

use super::{Broken, Chain};
use crate::virtio::rig::*;
use crate::virtio::{Device, Kind, Serving};

/// Of what may be read and of what may be written.
type Addresses = (Vec<u64>, Vec<u64>);

/// Uses what it gets, says that it has written all of it, and remembers what it got.
#[derive(Clone, Default)]
struct Sink(Arc<Mutex<Vec<Addresses>>>);

impl Device for Sink {
    fn kind(&self) -> Kind {
        Kind { name: "test", number: 1, class: 0 }
    }

    fn features(&self) -> u64 {
        0
    }

    fn queue_sizes(&self) -> &[u16] {
        &[64]
    }

    fn activate(&mut self, _: u64) {}

    fn serve(&mut self, _: usize, serving: &mut Serving<'_>) -> Result<(), Broken> {
        let mut chain = Chain::default();
        while serving.pop(&mut chain)? {
            let addresses = |list: &[super::Segment]| list.iter().map(|s| s.address).collect();
            self.0.lock().unwrap().push((addresses(&chain.readable), addresses(&chain.writable)));
            serving.finish(chain.head, Chain::bytes(&chain.writable) as u32)?;
        }
        Ok(())
    }

    fn reset(&mut self) {}
}

#[test]
fn chains_arrive_in_order_and_are_used() {
    let sink = Sink::default();
    let mut rig = Rig::started(sink.clone());
    rig.chain(0, &[(0x5000, 16, 0), (0x6000, 32, WRITE), (0x7000, 8, WRITE)]);
    rig.chain(5, &[(0x8000, 1, WRITE)]);
    rig.offer(0);
    rig.offer(5);
    rig.kick();
    assert_eq!(rig.used(), [(0, 40), (5, 1)]);
    let got = sink.0.lock().unwrap().clone();
    assert_eq!(got, [(vec![0x5000], vec![0x6000, 0x7000]), (vec![], vec![0x8000])]);
}

#[test]
fn rings_and_indices_wrap_around() {
    let mut rig = Rig::started(Sink::default());
    rig.chain(3, &[(0x5000, 7, WRITE)]);
    for _ in 0..70_000 {
        rig.offer(3);
        rig.kick();
        assert_eq!(rig.used(), [(3, 7)]);
    }
    assert_eq!(rig.status(), 15);
}

#[test]
fn an_indirect_table_continues_the_chain() {
    let mut rig = Rig::started(Sink::default());
    rig.descriptor(0x9000, 0, 0x5000, 4, NEXT, 1);
    rig.descriptor(0x9000, 1, 0x6000, 5, WRITE, 0);
    rig.chain(0, &[(0x5000, 4, 0), (0x9000, 32, INDIRECT)]);
    rig.offer(0);
    rig.kick();
    assert_eq!(rig.used(), [(0, 5)]);
}

#[test]
fn a_table_may_have_as_many_descriptors_as_the_queue() {
    let mut rig = Rig::started(Sink::default());
    for at in 0..SIZE {
        let more = if at + 1 < SIZE { NEXT } else { 0 };
        rig.descriptor(0x9000, at.into(), 0x6000, 1, WRITE | more, at + 1);
    }
    rig.chain(0, &[(0x9000, 16 * u32::from(SIZE), INDIRECT)]);
    rig.offer(0);
    rig.kick();
    assert_eq!((rig.used(), rig.status()), (vec![(0, SIZE.into())], 15));
}

/// The device stops, says so, and uses nothing more until it is reset.
fn check_broken(build: impl FnOnce(&mut Rig)) {
    let mut rig = Rig::started(Sink::default());
    build(&mut rig);
    rig.kick();
    assert_eq!(rig.status(), 15 | 64);
    assert_eq!(rig.used(), []);
    rig.kick();
    assert_eq!(rig.used(), []);
    rig.set(0x14, machine::bus::Size::Byte, 0);
    assert_eq!(rig.status(), 0);
}

#[test]
fn what_makes_no_sense_stops_the_device() {
    let all: [fn(&mut Rig); 10] = [
        // A circle, of one and of two.
        |rig| rig.descriptor(DESCRIPTORS, 0, 0x5000, 1, NEXT, 0),
        |rig| {
            rig.descriptor(DESCRIPTORS, 0, 0x5000, 1, NEXT, 1);
            rig.descriptor(DESCRIPTORS, 1, 0x5000, 1, NEXT, 0);
        },
        // Beyond the table.
        |rig| rig.descriptor(DESCRIPTORS, 0, 0x5000, 1, NEXT, SIZE),
        // Around the end of the address space.
        |rig| rig.chain(0, &[(u64::MAX, 2, 0)]),
        // More than 4 GiB.
        |rig| rig.chain(0, &[(0, u32::MAX, 0), (0, u32::MAX, 0)]),
        // To be read after to be written.
        |rig| rig.chain(0, &[(0x5000, 1, WRITE), (0x5000, 1, 0)]),
        // Indirect tables: none, none whole, too long, in the middle of a chain, in another.
        |rig| rig.chain(0, &[(0x9000, 0, INDIRECT)]),
        |rig| rig.chain(0, &[(0x9000, 16 * (u32::from(SIZE) + 1), INDIRECT)]),
        |rig| rig.chain(0, &[(0x9000, 16, INDIRECT), (0x5000, 1, 0)]),
        |rig| {
            rig.descriptor(0x9000, 0, 0x9000, 16, INDIRECT, 0);
            rig.chain(0, &[(0x9000, 16, INDIRECT)]);
        },
    ];
    for build in all {
        check_broken(|rig| {
            build(rig);
            rig.offer(0);
        });
    }
    // A head that is none; an indirect table where no memory is.
    check_broken(|rig| rig.offer(SIZE));
    check_broken(|rig| {
        rig.chain(0, &[(0xffff_0000, 16, INDIRECT)]);
        rig.offer(0);
    });
}

#[test]
fn an_index_that_runs_backwards_or_too_far_stops_the_device() {
    for index in [SIZE + 1, 0x8000, 0xffff] {
        let mut rig = Rig::started(Sink::default());
        rig.chain(0, &[(0x5000, 1, WRITE)]);
        rig.word(AVAILABLE + 2, index);
        rig.set(0x3000, machine::bus::Size::Word, 0);
        rig.serve();
        assert_eq!(rig.status(), 15 | 64, "{index:#x}");
    }
}

#[test]
fn rings_outside_memory_stop_the_device() {
    for (at, address) in [(0x20, 0xffff_f000), (0x28, 0xffff_f000), (0x30, 0xffff_f000)] {
        let mut rig = Rig::new(Sink::default());
        rig.set(at, machine::bus::Size::Dword, address);
        // `start` sets all three; the wrong one is set again behind it, when that is too late.
        let mut rig = rig.start(VERSION_1);
        rig.set(at, machine::bus::Size::Dword, address);
        rig.chain(0, &[(0x5000, 1, WRITE)]);
        rig.offer(0);
        rig.kick();
        assert_eq!(rig.used(), [(0, 1)], "settings of a queue in use cannot be changed");
    }
}

#[test]
fn the_event_index_says_who_wants_to_hear() {
    let mut rig = Rig::new(Sink::default()).start(VERSION_1 | EVENT_INDEX);
    let isr = |rig: &mut Rig| rig.get(0x1000, machine::bus::Size::Byte);
    rig.chain(0, &[(0x5000, 1, WRITE)]);
    let used_event = AVAILABLE + 4 + 2 * u64::from(SIZE);
    let available_event = USED + 4 + 8 * u64::from(SIZE);
    rig.word(used_event, 2);
    let mut interrupts = Vec::new();
    for _ in 0..5 {
        rig.offer(0);
        rig.kick();
        interrupts.push(isr(&mut rig));
    }
    assert_eq!(interrupts, [0, 0, 1, 0, 0]);
    assert_eq!(rig.load(available_event), 5);
}

#[test]
fn without_it_a_flag_says_so() {
    let mut rig = Rig::started(Sink::default());
    rig.chain(0, &[(0x5000, 1, WRITE)]);
    for (flag, expected) in [(1, 0), (0, 1), (1, 0)] {
        rig.word(AVAILABLE, flag);
        rig.offer(0);
        rig.kick();
        assert_eq!(rig.get(0x1000, machine::bus::Size::Byte), expected);
        assert_eq!(rig.load(USED), 0, "the device wants to be notified again");
    }
}

proptest! {
    #[test]
    fn random_rings_do_no_harm(
        bytes in prop::collection::vec(any::<u8>(), 0x300),
        heads in any::<[u16; 8]>(), index in any::<u16>(),
        small in any::<bool>(), features in 0..2u64,
    ) {
        let mut rig = Rig::new(Sink::default()).start(VERSION_1 | (features * EVENT_INDEX));
        let mut bytes = bytes;
        if small {
            // Flags, links and addresses that are often right.
            for entry in bytes.chunks_mut(16) {
                entry[2..8].fill(0);
                entry[10..12].fill(0);
                entry[12] &= 7;
                entry[13] = 0;
                entry[14] &= 0x1f;
                entry[15] = 0;
            }
        }
        rig.memory.write_slice(&bytes, GuestAddress(DESCRIPTORS)).unwrap();
        rig.memory.write_slice(&bytes, GuestAddress(0x9000)).unwrap();
        for (n, head) in heads.into_iter().enumerate() {
            rig.word(AVAILABLE + 4 + 2 * n as u64, if small { head % SIZE } else { head });
        }
        rig.word(AVAILABLE + 2, if small { index % 9 } else { index });
        rig.set(0x3000, machine::bus::Size::Word, 0);
        rig.serve();
        rig.used();
        rig.set(0x14, machine::bus::Size::Byte, 0);
        prop_assert_eq!(rig.status(), 0);
    }
}
