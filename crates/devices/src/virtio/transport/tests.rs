use std::sync::mpsc;

use machine::bus::Size;
use machine::pci::Function;
use proptest::prelude::*;

use super::Serving;
use crate::virtio::rig::*;
use crate::virtio::{Broken, Chain, Device, Kind};

/// Has two bytes of configuration, and waits in the middle of its work until it is told to go on.
struct Slow {
    began: mpsc::Sender<()>,
    go_on: mpsc::Receiver<()>,
}

impl Device for Slow {
    fn kind(&self) -> Kind {
        Kind { name: "test", number: 9, class: 0x02_00_00 }
    }

    fn features(&self) -> u64 {
        1 << 3
    }

    fn queue_sizes(&self) -> &[u16] {
        &[16, 64]
    }

    fn configuration(&self) -> Vec<u8> {
        vec![0x12, 0x34]
    }

    fn activate(&mut self, _: u64) {}

    fn serve(&mut self, _: usize, serving: &mut Serving<'_>) -> Result<(), Broken> {
        let mut chain = Chain::default();
        while serving.pop(&mut chain)? {
            let _ = self.began.send(());
            let _ = self.go_on.recv();
            serving.finish(chain.head, 0)?;
        }
        Ok(())
    }

    fn reset(&mut self) {}
}

/// A device, what tells that it works, and what lets it go on.
fn slow() -> (Slow, mpsc::Receiver<()>, mpsc::Sender<()>) {
    let (began, has_begun) = mpsc::channel();
    let (let_go, go_on) = mpsc::channel();
    (Slow { began, go_on }, has_begun, let_go)
}

#[test]
fn the_configuration_space_leads_to_the_registers() {
    let mut rig = Rig::new(slow().0);
    let mut read = |at, size| rig.transport.read_configuration(at, size);
    assert_eq!(read(0, Size::Dword), 0x1049_1af4);
    let (mut at, mut found) = (read(0x34, Size::Byte) as usize, Vec::new());
    while at != 0 {
        if read(at, Size::Byte) == 9 {
            found.push((read(at + 3, Size::Byte), read(at + 8, Size::Dword)));
        }
        at = read(at + 1, Size::Byte) as usize;
    }
    assert_eq!(found, [(1, 0), (3, 0x1000), (4, 0x2000), (2, 0x3000), (5, 0)]);
}

#[test]
fn registers_are_reached_through_the_configuration_space_too() {
    let mut rig = Rig::new(slow().0);
    let at = rig.transport.access;
    rig.transport.write_configuration(at + 8, Size::Dword, 0x2000);
    rig.transport.write_configuration(at + 12, Size::Dword, 2);
    assert_eq!(rig.transport.read_configuration(at + 16, Size::Word), 0x3412);
    rig.transport.write_configuration(at + 8, Size::Dword, 0x16);
    rig.transport.write_configuration(at + 16, Size::Word, 1);
    assert_eq!(rig.get(0x16, Size::Word), 1);
    assert_eq!(rig.get(0x18, Size::Word), 64);
}

#[test]
fn features_are_what_both_sides_know() {
    let check = |accepted: u64, agreed: bool| {
        let mut rig = Rig::new(slow().0);
        let offered = [0, 1].map(|select| {
            rig.set(0, Size::Dword, select);
            rig.get(4, Size::Dword)
        });
        assert_eq!(offered, [1 << 3 | 1 << 28 | 1 << 29, 1]);
        for (select, part) in [(0, accepted & 0xffff_ffff), (1, accepted >> 32), (2, 77)] {
            rig.set(8, Size::Dword, select);
            rig.set(12, Size::Dword, part);
        }
        rig.set(0x14, Size::Byte, 11);
        assert_eq!(rig.status(), if agreed { 11 } else { 3 });
        rig.set(0x14, Size::Byte, 15);
        assert_eq!(rig.status() & 4 != 0, agreed);
    };
    check(VERSION_1, true);
    check(VERSION_1 | 1 << 3 | EVENT_INDEX, true);
    check(1 << 3, false);
    check(VERSION_1 | 1 << 4, false);
    check(u64::MAX, false);
}

#[test]
fn queues_are_set_up_only_as_they_may_be() {
    let mut rig = Rig::new(slow().0);
    for (size, expected) in [(8, 8), (0, 8), (7, 8), (32, 8), (16, 16)] {
        rig.set(0x18, Size::Word, size);
        assert_eq!(rig.get(0x18, Size::Word), expected);
    }
    rig.set(0x28, Size::Dword, 0x1001);
    rig.set(0x1c, Size::Word, 1);
    assert_eq!(rig.get(0x1c, Size::Word), 0, "the available ring is not aligned");
    rig.set(0x28, Size::Qword, 0x12_3456_7890);
    assert_eq!(rig.get(0x2c, Size::Dword), 0x12);
    rig.set(0x1c, Size::Word, 1);
    assert_eq!(rig.get(0x1c, Size::Word), 1);
    rig.set(0x16, Size::Word, 2);
    assert_eq!(rig.get(0x18, Size::Word), 0, "there is no third queue");
    rig.set(0x1c, Size::Word, 1);
    assert_eq!(rig.get(0x1c, Size::Word), 0);
}

#[test]
fn only_messages_that_there_are_can_be_chosen() {
    let mut rig = Rig::new(slow().0);
    for at in [0x10, 0x1a] {
        for (vector, expected) in [(2, 2), (3, 0xffff), (0xffff, 0xffff)] {
            rig.set(at, Size::Word, vector);
            assert_eq!(rig.get(at, Size::Word), expected);
        }
    }
}

#[test]
fn a_reset_waits_for_what_is_in_flight_and_nobody_waits_for_it() {
    let (device, has_begun, let_go) = slow();
    let mut rig = Rig::started(device);
    rig.chain(0, &[(0x5000, 1, WRITE)]);
    rig.offer(0);
    rig.offer(0);
    rig.word(AVAILABLE + 2, 2);
    let shared = std::sync::Arc::clone(&rig.shared);
    let thread = std::thread::spawn(move || shared.serve(1));
    has_begun.recv().unwrap();
    rig.set(0x14, Size::Byte, 0);
    assert_eq!(rig.status(), 15, "it is at work");
    rig.set(0x16, Size::Word, 1);
    assert_eq!(rig.get(0x16, Size::Word), 0, "nothing is set while it is");
    let_go.send(()).unwrap();
    thread.join().unwrap();
    assert_eq!(rig.status(), 0);
    assert_eq!(rig.used().len(), 1, "the second request is not looked at");
    drop(let_go);
    rig.start(VERSION_1);
}

proptest! {
    #[test]
    fn no_access_does_harm(
        steps in prop::collection::vec((0..4u8, 0..0x4000u64, 0..4u32, any::<u64>()), 0..200)
    ) {
        let (device, _, let_go) = slow();
        drop(let_go);
        let mut rig = Rig::new(device);
        for (kind, at, size, value) in steps {
            let size = Size::from_bytes(1 << size).unwrap();
            // Most of what there is is near the start of a structure.
            let at = if kind & 1 == 0 { at & 0x303f } else { at };
            rig.set(at, size, value & size.mask());
            rig.get(at, size);
            rig.transport.write_configuration((at & 0xfc) as usize, Size::Dword, value as u32);
            rig.transport.read_configuration((at & 0xfc) as usize, Size::Dword);
            rig.shared.serve(3);
        }
        rig.transport.reset();
        prop_assert_eq!(rig.status(), 0);
    }
}
