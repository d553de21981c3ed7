use vm_memory::GuestAddress;

use super::{Error, Mmio, MmioDevice, Ports, Size, Width};

/// Answers with its own number and the offset.
struct Echo(u64);

impl MmioDevice for Echo {
    fn read(&mut self, offset: u64, _size: Size) -> u64 {
        self.0 << 32 | offset
    }

    fn write(&mut self, _offset: u64, _size: Size, value: u64) {
        self.0 = value;
    }

    fn reset(&mut self) {
        self.0 = 0;
    }
}

#[test]
fn a_port_belongs_to_who_claimed_it() {
    let mut ports = Ports::default();
    ports.claim("a", 0x20, 2, Width::Byte, 1).unwrap();
    ports.claim("b", 0x22, 1, Width::Any, 2).unwrap();
    ports.claim("end", 0xffff, 1, Width::Any, 3).unwrap();
    let target = |port| ports.find(port).map(|route| route.target);
    assert_eq!([0x1f, 0x20, 0x21, 0x22, 0x23].map(target), [None, Some(1), Some(1), Some(2), None]);
    assert_eq!(target(0xffff), Some(3));
}

#[test]
fn ports_cannot_overlap() {
    let mut ports = Ports::default();
    ports.claim("first", 0x60, 1, Width::Byte, ()).unwrap();
    let error = ports.claim("second", 0x5e, 4, Width::Byte, ()).unwrap_err();
    assert_eq!(error, Error::Taken { name: "second", address: 0x60, other: "first" });
    ports.claim("third", 0x5e, 2, Width::Byte, ()).unwrap();
}

#[test]
fn port_ranges_stay_inside_the_address_space() {
    let mut ports = Ports::default();
    assert!(matches!(ports.claim("x", 0xffff, 2, Width::Any, ()), Err(Error::BadRange { .. })));
    assert!(matches!(ports.claim("x", 0x10, 0, Width::Any, ()), Err(Error::BadRange { .. })));
}

#[test]
fn the_port_bus_fills_up() {
    let mut ports = Ports::default();
    let results: Vec<_> = (0..300).map(|n| ports.claim("x", n, 1, Width::Any, n)).collect();
    assert!(results[..crate::limits::MAX_BUS_DEVICES].iter().all(Result::is_ok));
    assert_eq!(results[299], Err(Error::Full { name: "x" }));
    assert_eq!(ports.find(249).unwrap().target, 249);
}

#[test]
fn mmio_is_dispatched_by_offset_and_unclaimed_reads_all_ones() {
    let mut mmio = Mmio::default();
    mmio.register("high", GuestAddress(0x2000), 0x10, Box::new(Echo(2))).unwrap();
    mmio.register("low", GuestAddress(0x1000), 0x10, Box::new(Echo(1))).unwrap();
    mmio.register("top", GuestAddress(u64::MAX), 1, Box::new(Echo(3))).unwrap();
    assert_eq!(mmio.read(GuestAddress(0x100f), Size::Qword), 1 << 32 | 0xf);
    assert_eq!(mmio.read(GuestAddress(0x2001), Size::Word), 1);
    assert_eq!(mmio.read(GuestAddress(0x1010), Size::Word), 0xffff);
    assert_eq!(mmio.read(GuestAddress(0), Size::Qword), u64::MAX);
    assert_eq!(mmio.read(GuestAddress(u64::MAX), Size::Qword), 3 << 32);
    mmio.write(GuestAddress(0x1000), Size::Byte, 0x1ff);
    assert_eq!(mmio.read(GuestAddress(0x1000), Size::Qword), 0xff << 32);
}

#[test]
fn mmio_ranges_cannot_overlap() {
    let mut mmio = Mmio::default();
    mmio.register("first", GuestAddress(0x1000), 0x1000, Box::new(Echo(1))).unwrap();
    let error = mmio.register("second", GuestAddress(0xfff), 2, Box::new(Echo(2))).unwrap_err();
    assert_eq!(error, Error::Taken { name: "second", address: 0x1000, other: "first" });
    let error = mmio.register("third", GuestAddress(u64::MAX), 2, Box::new(Echo(2))).unwrap_err();
    assert_eq!(error, Error::BadRange { name: "third", address: u64::MAX });
}
