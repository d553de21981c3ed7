use proptest::prelude::*;

use super::super::message::{DeliveryMode, Destination, Message};
use super::IoApic;
use super::bits::{index, offset};

const LEVEL: u32 = 1 << 15;
const MASKED: u32 = 1 << 16;
const REMOTE_IRR: u32 = 1 << 14;

fn read(apic: &mut IoApic, register: u8) -> u32 {
    apic.write(offset::SELECT, register.into());
    apic.read(offset::WINDOW)
}

fn write(apic: &mut IoApic, register: u8, value: u32) -> Option<Message> {
    apic.write(offset::SELECT, register.into());
    let mut messages = apic.write(offset::WINDOW, value);
    apic.next_message(&mut messages)
}

fn redirect(apic: &mut IoApic, pin: u8, low: u32, high: u32) -> Option<Message> {
    write(apic, index::REDIRECTION + 2 * pin + 1, high);
    write(apic, index::REDIRECTION + 2 * pin, low)
}

fn end(apic: &mut IoApic, vector: u8) -> Option<Message> {
    let mut messages = apic.end_of_interrupt(vector);
    apic.next_message(&mut messages)
}

fn fixed(vector: u8, to: u32, level: bool) -> Option<Message> {
    let destination = Destination::Physical(to);
    Some(Message { destination, mode: DeliveryMode::Fixed, vector, level })
}

#[test]
fn it_says_that_it_has_24_pins_and_an_end_register() {
    let mut apic = IoApic::default();
    assert_eq!(read(&mut apic, index::VERSION), 0x0017_0020);
    write(&mut apic, index::ID, 0xff00_0000);
    assert_eq!(read(&mut apic, index::ID), 0x0f00_0000);
}

#[test]
fn every_pin_is_masked_after_reset() {
    let mut apic = IoApic::default();
    for pin in 0..24 {
        assert_eq!(read(&mut apic, index::REDIRECTION + 2 * pin), MASKED);
        assert_eq!(apic.set_pin(pin, true), None);
    }
}

#[test]
fn an_edge_sends_once() {
    let mut apic = IoApic::default();
    redirect(&mut apic, 4, 0x34, 3 << 24);
    assert_eq!(apic.set_pin(4, true), fixed(0x34, 3, false));
    assert_eq!(apic.set_pin(4, true), None);
    assert_eq!(apic.set_pin(4, false), None);
    assert_eq!(apic.set_pin(4, true), fixed(0x34, 3, false));
}

#[test]
fn an_edge_on_a_masked_pin_is_lost() {
    let mut apic = IoApic::default();
    redirect(&mut apic, 4, 0x34 | MASKED, 0);
    assert_eq!(apic.set_pin(4, true), None);
    assert_eq!(redirect(&mut apic, 4, 0x34, 0), None);
}

#[test]
fn a_level_sends_again_after_its_end() {
    let mut apic = IoApic::default();
    redirect(&mut apic, 9, 0x39 | LEVEL, 0);
    assert_eq!(apic.set_pin(9, true), fixed(0x39, 0, true));
    assert_eq!(read(&mut apic, index::REDIRECTION + 18), 0x39 | LEVEL | REMOTE_IRR);
    assert_eq!(apic.set_pin(9, true), None);
    assert_eq!(end(&mut apic, 0x38), None);
    assert_eq!(end(&mut apic, 0x39), fixed(0x39, 0, true));
    apic.set_pin(9, false);
    assert_eq!(end(&mut apic, 0x39), None);
    assert_eq!(read(&mut apic, index::REDIRECTION + 18), 0x39 | LEVEL);
}

#[test]
fn the_end_register_does_the_same() {
    let mut apic = IoApic::default();
    redirect(&mut apic, 9, 0x39 | LEVEL, 0);
    apic.set_pin(9, true);
    let mut messages = apic.write(offset::END_OF_INTERRUPT, 0x39);
    assert_eq!(apic.next_message(&mut messages), fixed(0x39, 0, true));
    assert_eq!(apic.next_message(&mut messages), None);
}

#[test]
fn unmasking_an_asserted_level_sends() {
    let mut apic = IoApic::default();
    redirect(&mut apic, 9, 0x39 | LEVEL | MASKED, 0);
    assert_eq!(apic.set_pin(9, true), None);
    assert_eq!(redirect(&mut apic, 9, 0x39 | LEVEL, 0), fixed(0x39, 0, true));
}

#[test]
fn destinations_are_physical_logical_or_everybody() {
    let mut apic = IoApic::default();
    redirect(&mut apic, 1, 0x31 | 1 << 11 | 1 << 8, 5 << 24);
    let message = apic.set_pin(1, true).unwrap();
    assert_eq!(message.destination, Destination::Logical(5));
    assert_eq!(message.mode, DeliveryMode::LowestPriority);
    redirect(&mut apic, 3, 0x33, 0xff << 24);
    assert_eq!(apic.set_pin(3, true).unwrap().destination, Destination::All);
}

#[test]
fn making_an_entry_edge_triggered_forgets_that_it_awaits_an_end() {
    let mut apic = IoApic::default();
    redirect(&mut apic, 9, 0x39 | LEVEL, 0);
    apic.set_pin(9, true);
    redirect(&mut apic, 9, 0x39 | MASKED, 0);
    assert_eq!(read(&mut apic, index::REDIRECTION + 18), 0x39 | MASKED);
}

proptest! {
    #[test]
    fn nothing_that_is_written_breaks_it(
        steps in prop::collection::vec(any::<(u8, u8, u32)>(), 0..200),
    ) {
        let mut apic = IoApic::default();
        for (what, at, value) in steps {
            let mut messages = match what % 4 {
                0 => apic.write(u64::from(at & 0x50), value),
                1 => apic.end_of_interrupt(at),
                2 => {
                    apic.read(u64::from(at));
                    continue;
                }
                _ => {
                    apic.set_pin(at, value & 1 != 0);
                    continue;
                }
            };
            let mut count = 0;
            while apic.next_message(&mut messages).is_some() {
                count += 1;
            }
            prop_assert!(count <= super::PINS);
        }
    }
}
