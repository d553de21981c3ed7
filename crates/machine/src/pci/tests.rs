use std::sync::{Arc, Mutex};

use proptest::prelude::*;
use vm_memory::GuestAddress;

use super::{Configuration, Error, Function, Identity, MessageSender, Root, Vectors};
use crate::bus::Size;
use crate::interrupts::{DeliveryMode, Destination, Message, Router, Wake};

const ECAM: u64 = 0xe000_0000;
const WINDOW: u64 = 0xd000_0000;
const IDENTITY: Identity =
    Identity { vendor: 0x1af4, device: 0x1042, class: 0x01_80_00, revision: 1, subsystem: (1, 2) };

struct Nobody;

impl Wake for Nobody {
    fn wake(&self, _: usize) {}
}

/// Remembers what is written behind its first base address.
struct Echo(Configuration, Arc<Mutex<Vec<(usize, u64, u64)>>>);

impl Function for Echo {
    fn configuration(&mut self) -> &mut Configuration {
        &mut self.0
    }

    fn read(&mut self, bar: usize, offset: u64, _: Size) -> u64 {
        (bar as u64) << 32 | offset
    }

    fn write(&mut self, bar: usize, offset: u64, _: Size, value: u64) {
        self.1.lock().unwrap().push((bar, offset, value));
    }

    fn reset(&mut self) {
        self.1.lock().unwrap().clear();
    }
}

fn router() -> Arc<Router> {
    Arc::new(Router::new(1, Arc::new(Nobody)))
}

fn echo() -> Echo {
    let mut configuration =
        Configuration::new(IDENTITY).with_memory(0, 0x4000).with_memory(2, 0x1000);
    let vectors = Vectors::new(3, MessageSender::new(&router()));
    configuration.add_vectors(vectors, 2);
    Echo(configuration, Arc::default())
}

fn root() -> Root {
    let mut root = Root::default();
    assert_eq!(root.plug_in(Box::new(echo())), Ok(1));
    root
}

fn read(root: &mut Root, slot: u64, at: u64, size: Size) -> u64 {
    root.read(GuestAddress(ECAM + (slot << 15) + at), size) & size.mask()
}

fn write(root: &mut Root, slot: u64, at: u64, size: Size, value: u64) {
    root.write(GuestAddress(ECAM + (slot << 15) + at), size, value);
}

#[test]
fn functions_are_found_through_ecam_and_through_ports() {
    let mut root = root();
    assert_eq!(read(&mut root, 0, 8, Size::Dword), 0x0600_0000);
    assert_eq!(read(&mut root, 1, 0, Size::Dword), 0x1042_1af4);
    assert_eq!(read(&mut root, 1, 2, Size::Word), 0x1042);
    assert_eq!(read(&mut root, 1, 3, Size::Byte), 0x10);
    assert_eq!(read(&mut root, 2, 0, Size::Dword), 0xffff_ffff);
    root.write_mechanism(Size::Dword, 0x8000_0800);
    assert_eq!(root.read_data(0, Size::Dword), 0x1042_1af4);
    assert_eq!(root.read_data(2, Size::Word), 0x1042);
    root.write_mechanism(Size::Dword, 0x0000_0800);
    assert_eq!(root.read_data(0, Size::Dword), u32::MAX);
}

#[test]
fn what_is_beside_registers_and_functions_reads_as_ones() {
    let mut root = root();
    assert_eq!(read(&mut root, 1, 0x1000, Size::Dword), 0xffff_ffff, "function 1");
    assert_eq!(read(&mut root, 1, 0x100, Size::Dword), 0xffff_ffff, "extended space");
    assert_eq!(read(&mut root, 1, 2, Size::Dword), 0xffff_ffff, "across registers");
    assert_eq!(read(&mut root, 1, 0, Size::Qword), u64::MAX);
    let last = root.read(GuestAddress(WINDOW + 0xfff_ffff), Size::Byte);
    assert_eq!(last, u64::MAX);
}

#[test]
fn memory_is_placed_measured_and_moved() {
    let mut root = root();
    assert_eq!(read(&mut root, 1, 0x10, Size::Dword), WINDOW | 4);
    assert_eq!(read(&mut root, 1, 0x18, Size::Dword), (WINDOW + 0x4000) | 4);
    assert_eq!(root.read(GuestAddress(WINDOW + 0x123), Size::Dword), 0x123);
    for at in [0x10, 0x14] {
        write(&mut root, 1, at, Size::Dword, 0xffff_ffff);
    }
    assert_eq!(read(&mut root, 1, 0x10, Size::Dword), 0xffff_c004);
    assert_eq!(read(&mut root, 1, 0x14, Size::Dword), 0xffff_ffff);
    write(&mut root, 1, 0x10, Size::Dword, WINDOW + 0x10_0000);
    write(&mut root, 1, 0x14, Size::Dword, 0);
    assert_eq!(root.read(GuestAddress(WINDOW + 0x123), Size::Dword), u64::MAX);
    assert_eq!(root.read(GuestAddress(WINDOW + 0x10_0123), Size::Dword), 0x123);
    write(&mut root, 1, 4, Size::Word, 0);
    assert_eq!(root.read(GuestAddress(WINDOW + 0x10_0123), Size::Dword), u64::MAX);
    root.reset();
    assert_eq!(root.read(GuestAddress(WINDOW + 0x123), Size::Dword), 0x123);
}

#[test]
fn the_bus_has_room_for_so_many() {
    let mut root = Root::default();
    for slot in 1..=31 {
        assert_eq!(root.plug_in(Box::new(echo())), Ok(slot));
    }
    assert_eq!(root.plug_in(Box::new(echo())), Err(Error::Full));
    let mut root = Root::default();
    let large = Configuration::new(IDENTITY).with_memory(0, 1 << 29);
    let large = Box::new(Echo(large, Arc::default()));
    assert_eq!(root.plug_in(large), Err(Error::NoRoom(1 << 29)));
}

#[test]
fn messages_are_sent_held_back_and_released() {
    let router = router();
    let vectors = Vectors::new(2, MessageSender::new(&router));
    let is_pending = || vectors.read(super::vectors::TABLE_BYTES, Size::Qword);
    vectors.write(16, Size::Qword, 0xfee0_0000);
    vectors.write(24, Size::Dword, 0x51);
    vectors.trigger(1);
    assert_eq!(is_pending(), 0, "disabled messages are lost");
    vectors.control(1 << 15);
    vectors.trigger(1);
    vectors.trigger(77);
    assert_eq!(is_pending(), 2);
    vectors.control(1 << 15 | 1 << 14);
    vectors.write(28, Size::Dword, 0);
    assert_eq!(is_pending(), 2, "the function is masked");
    vectors.control(1 << 15);
    assert_eq!(is_pending(), 0);
    vectors.trigger(1);
    assert_eq!(is_pending(), 0);
}

#[test]
fn memory_writes_are_messages() {
    let check = |address, data, expected| {
        assert_eq!(Message::from_memory_write(address, data), expected);
    };
    let message =
        |destination, mode| Some(Message { destination, mode, vector: 0x31, level: false });
    check(0xfee0_3000, 0x31, message(Destination::Physical(3), DeliveryMode::Fixed));
    check(0xfee0_300c, 0x131, message(Destination::Logical(3), DeliveryMode::LowestPriority));
    check(0xfeef_f000, 0x31, message(Destination::All, DeliveryMode::Fixed));
    check(0xfed0_0000, 0x31, None);
    check(1 << 32 | 0xfee0_0000, 0x31, None);
}

proptest! {
    #[test]
    fn no_access_does_harm(
        accesses in prop::collection::vec((0..3u8, 0..0x3_0000u64, 0..4u32, any::<u64>()), 0..200)
    ) {
        let mut root = root();
        for (kind, at, size, value) in accesses {
            let size = Size::from_bytes(1 << size).unwrap();
            match kind {
                0 => root.write(GuestAddress(ECAM + at), size, value & size.mask()),
                1 => root.write(GuestAddress(WINDOW + at), size, value & size.mask()),
                _ => root.write_mechanism(size, value as u32),
            }
            root.read(GuestAddress(ECAM + at), size);
            root.read(GuestAddress(WINDOW + at), size);
            root.read_data((at & 3) as u16, Size::Byte);
        }
        prop_assert_eq!(read(&mut root, 1, 0, Size::Dword), 0x1042_1af4);
    }
}

#[test]
fn firmware_finds_an_intel_440fx() {
    let mut root = Root::of_firmware();
    assert_eq!(root.plug_in(Box::new(echo())), Ok(2), "behind the chips");
    let mut read = |place: u32, at: u32, size| {
        root.write_mechanism(Size::Dword, 1 << 31 | place << 8 | at & !3);
        root.read_data((at & 3) as u16, size)
    };
    assert_eq!(read(0, 0, Size::Dword), 0x1237_8086);
    assert_eq!(
        (read(1 << 3, 0, Size::Dword), read(1 << 3, 8, Size::Dword)),
        (0x7000_8086, 0x0601_0000)
    );
    assert_eq!(read(1 << 3, 0xe, Size::Byte), 0x80, "there are more functions");
    assert_eq!(read(1 << 3, 4, Size::Byte) & 1, 1, "the bridge decodes ports");
    assert_eq!(read(1 << 3 | 1, 0, Size::Dword), u32::MAX);
    assert_eq!(read(1 << 3 | 3, 0, Size::Dword), 0x7113_8086);
    assert_eq!(
        (read(1 << 3 | 3, 0x40, Size::Dword), read(1 << 3 | 3, 0x80, Size::Byte)),
        (0xb001, 1)
    );
    assert_eq!(read(2 << 3, 0, Size::Dword), 0x1042_1af4);
}

#[test]
fn attributes_of_low_memory_are_kept_until_a_reset() {
    let mut root = Root::of_firmware();
    let write = |root: &mut Root, at: u32, value| {
        root.write_mechanism(Size::Dword, 1 << 31 | at & !3);
        root.write_data((at & 3) as u16, Size::Byte, value);
        root.read_data((at & 3) as u16, Size::Byte)
    };
    for at in 0x59..=0x5f {
        assert_eq!(write(&mut root, at, 0x33), 0x33, "{at:#x}");
    }
    assert_eq!(write(&mut root, 0x58, 0x33), 0);
    root.reset();
    root.write_mechanism(Size::Dword, 1 << 31 | 0x5c);
    assert_eq!(root.read_data(0, Size::Dword), 0);
}

#[test]
fn firmware_puts_functions_anywhere() {
    let mut root = Root::of_firmware();
    root.plug_in(Box::new(echo())).unwrap();
    assert_eq!(read(&mut root, 0, 0, Size::Dword), 0xffff_ffff, "there is no ECAM");
    let mut write = |at: u32, value| {
        root.write_mechanism(Size::Dword, 1 << 31 | 2 << 11 | at);
        root.write_data(0, Size::Dword, value);
    };
    write(0x10, 0);
    write(0x14, 0x3800);
    for at in [0x3800_0000_0123, 0x8000_0000] {
        assert!(root.is_at(GuestAddress(at)));
    }
    assert_eq!(root.read(GuestAddress(0x3800_0000_0123), Size::Dword), 0x123);
    assert_eq!(root.read(GuestAddress(0x8000_0000), Size::Dword), u64::MAX);
}
