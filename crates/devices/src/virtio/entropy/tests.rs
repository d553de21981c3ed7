use vm_memory::{Bytes, GuestAddress};

use super::Entropy;
use crate::virtio::rig::*;

fn sevens() -> Entropy {
    Entropy::new(Box::new(|bytes| {
        bytes.fill(7);
        true
    }))
}

#[test]
fn what_is_offered_is_filled() {
    let mut rig = Rig::started(sevens());
    rig.chain(0, &[(0x5000, 3, WRITE), (0x6000, 5, WRITE)]);
    rig.offer(0);
    rig.kick();
    assert_eq!(rig.used(), [(0, 8)]);
    let filled = rig.memory.read_obj::<[u8; 6]>(GuestAddress(0x6000)).unwrap();
    assert_eq!(filled, [7, 7, 7, 7, 7, 0]);
}

#[test]
fn much_is_given_in_part_and_nothing_when_there_is_none() {
    let mut rig = Rig::started(sevens());
    rig.chain(0, &[(0x8000, 0x8000, WRITE)]);
    rig.offer(0);
    rig.kick();
    assert_eq!(rig.used(), [(0, 4096)]);
    let mut rig = Rig::started(Entropy::new(Box::new(|_| false)));
    rig.chain(0, &[(0x8000, 100, WRITE)]);
    rig.offer(0);
    rig.kick();
    assert_eq!(rig.used(), [(0, 0)]);
}

#[test]
fn a_buffer_that_is_no_memory_stops_the_device() {
    let mut rig = Rig::started(sevens());
    rig.chain(0, &[(0xf000_0000, 100, WRITE)]);
    rig.offer(0);
    rig.kick();
    assert_eq!((rig.used(), rig.status()), (vec![], 15 | 64));
}

#[test]
fn a_device_goes_on_where_another_was() {
    let mut rig = Rig::started(sevens());
    rig.chain(0, &[(0x5000, 3, WRITE)]);
    for _ in 0..3 {
        rig.offer(0);
        rig.kick();
    }
    assert_eq!(rig.used().len(), 3);
    let mut rig = rig.going_on(sevens()).unwrap();
    assert_eq!(rig.status(), 15);
    rig.serve();
    assert_eq!(rig.used(), []);
    rig.offer(0);
    rig.kick();
    assert_eq!(rig.used(), [(0, 3)]);
}
