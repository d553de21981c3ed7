use super::{Error, Ports, Width};

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
