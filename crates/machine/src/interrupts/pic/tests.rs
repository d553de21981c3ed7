use proptest::prelude::*;

use super::Pic;

const EOI: u8 = 0x20;

/// As Linux does it: vectors 0x30 and 0x38, nothing masked.
fn initialized() -> Pic {
    let mut pic = Pic::default();
    for (chip, base, wiring) in [(0, 0x30, 4), (1, 0x38, 2)] {
        pic.write(chip, 0, 0x11);
        pic.write(chip, 1, base);
        pic.write(chip, 1, wiring);
        pic.write(chip, 1, 0x01);
        pic.write(chip, 1, 0x00);
    }
    pic
}

fn served(pic: &mut Pic) -> Option<u8> {
    pic.is_requesting().then(|| pic.acknowledge())
}

#[test]
fn an_edge_is_served_once() {
    let mut pic = initialized();
    pic.set_input(4, true);
    assert_eq!(served(&mut pic), Some(0x34));
    pic.write(0, 0, EOI);
    assert_eq!(served(&mut pic), None);
    pic.set_input(4, false);
    pic.set_input(4, true);
    assert_eq!(served(&mut pic), Some(0x34));
}

#[test]
fn lower_numbers_go_first_and_hold_back_higher_ones() {
    let mut pic = initialized();
    pic.set_input(4, true);
    pic.set_input(1, true);
    assert_eq!(served(&mut pic), Some(0x31));
    assert_eq!(served(&mut pic), None);
    pic.write(0, 0, EOI);
    assert_eq!(served(&mut pic), Some(0x34));
    pic.set_input(0, true);
    assert_eq!(served(&mut pic), Some(0x30), "a higher priority interrupts");
}

#[test]
fn the_second_chip_comes_through_the_cascade() {
    let mut pic = initialized();
    pic.set_input(8, true);
    pic.set_input(12, true);
    assert_eq!(served(&mut pic), Some(0x38));
    pic.write(1, 0, EOI);
    pic.write(0, 0, EOI);
    assert_eq!(served(&mut pic), Some(0x3c));
}

#[test]
fn a_level_is_served_until_it_falls() {
    let mut pic = initialized();
    pic.write_level_control(1, 0xff);
    assert_eq!(pic.read_level_control(1), 0xde, "the clock and the coprocessor stay edges");
    pic.set_input(9, true);
    assert_eq!(served(&mut pic), Some(0x39));
    pic.write(1, 0, EOI);
    pic.write(0, 0, EOI);
    assert_eq!(served(&mut pic), Some(0x39));
    pic.set_input(9, false);
    pic.write(1, 0, EOI);
    pic.write(0, 0, EOI);
    assert_eq!(served(&mut pic), None);
}

#[test]
fn a_request_that_is_gone_is_spurious() {
    let mut pic = initialized();
    assert_eq!(pic.acknowledge(), 0x37);
    pic.write_level_control(1, 0x02);
    pic.set_input(9, true);
    pic.set_input(9, false);
    assert!(pic.is_requesting(), "the first chip has latched the edge");
    assert_eq!(pic.acknowledge(), 0x3f);
}

#[test]
fn masks_are_read_back_and_hold() {
    let mut pic = initialized();
    pic.write(0, 1, 0xfb);
    assert_eq!(pic.read(0, 1), 0xfb);
    pic.set_input(0, true);
    assert!(!pic.is_requesting());
    assert_eq!(pic.read(0, 0), 0x01, "the request register");
    pic.write(0, 1, 0);
    assert_eq!(served(&mut pic), Some(0x30));
    pic.write(0, 0, 0x0b);
    assert_eq!(pic.read(0, 0), 0x01, "the in-service register");
}

#[test]
fn automatic_end_leaves_nothing_in_service() {
    let mut pic = initialized();
    pic.write(0, 0, 0x11);
    for word in [0x30, 4, 0x03, 0] {
        pic.write(0, 1, word);
    }
    pic.set_input(5, true);
    assert_eq!(served(&mut pic), Some(0x35));
    pic.write(0, 0, 0x0b);
    assert_eq!(pic.read(0, 0), 0);
}

#[test]
fn rotation_makes_the_served_input_the_last() {
    let mut pic = initialized();
    pic.set_input(3, true);
    assert_eq!(served(&mut pic), Some(0x33));
    pic.write(0, 0, 0xa0);
    pic.set_input(3, false);
    pic.set_input(3, true);
    pic.set_input(5, true);
    assert_eq!(served(&mut pic), Some(0x35));
}

#[test]
fn a_poll_acknowledges() {
    let mut pic = initialized();
    pic.set_input(6, true);
    pic.write(0, 0, 0x0c);
    assert_eq!(pic.read(0, 0), 0x86);
    assert!(!pic.is_requesting());
    pic.write(0, 0, 0x0c);
    assert_eq!(pic.read(0, 0), 0);
}

proptest! {
    #[test]
    fn nothing_that_is_written_breaks_it(steps in prop::collection::vec(any::<[u8; 3]>(), 0..200)) {
        let mut pic = Pic::default();
        for [what, chip, value] in steps {
            match what % 6 {
                0 | 1 => pic.write(chip.into(), (what >> 7).into(), value),
                2 => drop(pic.read(chip.into(), (what >> 7).into())),
                3 => pic.set_input(chip, value & 1 != 0),
                4 => pic.write_level_control(chip.into(), value),
                _ => drop(pic.acknowledge()),
            }
            let pending = pic.is_requesting();
            let vector = pending.then(|| pic.acknowledge());
            prop_assert_eq!(vector.is_some(), pending);
        }
    }
}
