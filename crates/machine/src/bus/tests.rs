use vm_memory::GuestAddress;

use super::{Error, MemoryBus, MemoryDevice, Ports, Size, Width};

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

/// Tells where it was read, and counts stores.
#[derive(Default)]
struct Echo(u64);

impl MemoryDevice for Echo {
    fn read(&mut self, offset: u64, _: Size) -> u64 {
        offset | self.0 << 8 | 1 << 63
    }

    fn write(&mut self, _: u64, _: Size, value: u64) {
        self.0 += value;
    }

    fn reset(&mut self) {
        self.0 = 0;
    }
}

#[test]
fn an_access_to_memory_belongs_to_the_device_at_its_first_byte() {
    let mut bus = MemoryBus::default();
    bus.add("a", GuestAddress(0x1000), 0x10, Box::<Echo>::default()).unwrap();
    bus.add("end", GuestAddress(u64::MAX), 1, Box::<Echo>::default()).unwrap();
    let read = |bus: &mut MemoryBus, at| bus.read(GuestAddress(at), Size::Dword);
    assert_eq!(read(&mut bus, 0xfff), None);
    assert_eq!(read(&mut bus, 0x100f), Some(0xf));
    assert_eq!(read(&mut bus, 0x1010), None);
    assert_eq!(read(&mut bus, u64::MAX), Some(0));
    assert!(bus.write(GuestAddress(0x1000), Size::Byte, 0xf02));
    assert!(!bus.write(GuestAddress(0x1010), Size::Byte, 1));
    assert_eq!(read(&mut bus, 0x1001), Some(0x201));
    bus.reset();
    assert_eq!(read(&mut bus, 0x1001), Some(1));
}

#[test]
fn memory_devices_cannot_overlap() {
    let mut bus = MemoryBus::default();
    let mut add =
        |name, first, bytes| bus.add(name, GuestAddress(first), bytes, Box::<Echo>::default());
    add("a", 0x1000, 0x1000).unwrap();
    let taken = |address| Err(Error::Taken { name: "b", address, other: "a" });
    assert_eq!(add("b", 0xfff, 2), taken(0x1000));
    assert_eq!(add("b", 0x1fff, 1), taken(0x1fff));
    assert_eq!(add("b", 0, u64::MAX), taken(0x1000));
    assert_eq!(add("b", 0x2000, 0), Err(Error::BadRange { name: "b", address: 0x2000 }));
    assert_eq!(add("b", 0x2000, u64::MAX), Err(Error::BadRange { name: "b", address: 0x2000 }));
    add("b", 0x2000, 1).unwrap();
}
