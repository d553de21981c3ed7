use std::time::Duration;

use proptest::prelude::*;

use super::bits::TIMER_FREQUENCY;
use super::{Keyboard, Power};
use crate::bus::Size;
use crate::request::{Request, Requests};
use crate::time::{Clock, Hertz, ManualClock, Nanoseconds};

fn clock() -> ManualClock {
    ManualClock::new(Hertz(1), Duration::ZERO)
}

fn power() -> (Power, Requests) {
    let requests = Requests::default();
    (Power::new(requests.clone(), Nanoseconds(0)), requests)
}

#[test]
fn sleep_type_zero_switches_off() {
    let (mut power, requests) = power();
    power.write(4, Size::Word, 0x0400 | 0x2000, &clock());
    assert_eq!(requests.take(), None, "there is no such sleep");
    power.write(4, Size::Word, 0x2000, &clock());
    assert_eq!(requests.take(), Some(Request::PowerOff));
    assert_eq!(power.read(4, Size::Word, &clock()), 1, "SCI_EN only");
}

#[test]
fn the_power_button_interrupts_until_it_is_acknowledged() {
    let (mut power, _) = power();
    power.press_button();
    assert!(!power.interrupts());
    power.write(2, Size::Word, 0x0100, &clock());
    assert!(power.interrupts());
    assert_eq!(power.read(0, Size::Dword, &clock()), 0x0100_0100);
    power.write(0, Size::Word, 0x0100, &clock());
    assert!(!power.interrupts());
}

#[test]
fn bytes_reach_their_half_of_a_register() {
    let (mut power, _) = power();
    power.write(3, Size::Byte, 0x01, &clock());
    power.write(2, Size::Byte, 0x21, &clock());
    assert_eq!(power.read(2, Size::Word, &clock()), 0x0121);
    assert_eq!(power.read(3, Size::Byte, &clock()), 0x01);
}

#[test]
fn the_timer_counts_at_its_frequency() {
    let (mut power, clock) = (power().0, clock());
    clock.advance(Nanoseconds::SECOND);
    assert_eq!(power.read(8, Size::Dword, &clock), 3_579_545);
    assert_eq!(power.read(9, Size::Byte, &clock) & 0xff, 3_579_545 >> 8 & 0xff);
}

#[test]
fn the_timer_interrupts_when_its_highest_bit_changes() {
    let (mut power, clock) = (power().0, clock());
    assert_eq!(power.next_deadline(), Nanoseconds::NEVER);
    power.write(2, Size::Word, 1, &clock);
    assert_eq!(power.next_deadline(), TIMER_FREQUENCY.time_of(1 << 31));
    clock.advance(power.next_deadline());
    power.advance(clock.now());
    assert!(power.interrupts());
    power.write(0, Size::Word, 1, &clock);
    assert!(!power.interrupts());
    assert_eq!(power.next_deadline(), TIMER_FREQUENCY.time_of(1 << 32));
}

#[test]
fn the_reset_register_resets_on_a_rising_bit() {
    let (mut power, requests) = power();
    power.write_reset_control(0x02);
    assert_eq!(requests.take(), None);
    power.write_reset_control(0x06);
    assert_eq!(requests.take(), Some(Request::Reset));
    power.write_reset_control(0x0e);
    assert_eq!(requests.take(), None);
    power.write_control_a(0x03);
    assert_eq!(requests.take(), Some(Request::Reset));
}

#[test]
fn the_keyboard_controller_resets() {
    let requests = Requests::default();
    let mut keyboard = Keyboard::new(requests.clone());
    assert_eq!(keyboard.read_status() & 0x02, 0, "ready for a command");
    keyboard.write_command(0xfe);
    assert_eq!(requests.take(), Some(Request::Reset));
    keyboard.write_command(0xd1);
    keyboard.write_data(0x02);
    assert_eq!(requests.take(), Some(Request::Reset));
    keyboard.write_data(0x02);
    assert_eq!(requests.take(), None);
}

#[test]
fn the_keyboard_controller_says_that_nothing_is_connected() {
    let mut keyboard = Keyboard::new(Requests::default());
    keyboard.write_command(0xaa);
    assert_eq!(keyboard.read_status() & 1, 1);
    assert_eq!(keyboard.read_data(), 0x55);
    assert_eq!(keyboard.read_status() & 1, 0);
    keyboard.write_command(0xab);
    assert_ne!(keyboard.read_data(), 0);
}

proptest! {
    #[test]
    fn nothing_that_is_written_breaks_it(
        steps in prop::collection::vec(any::<(u8, u16, u32, u8)>(), 0..100),
    ) {
        let ((mut power, requests), clock) = (power(), clock());
        let mut keyboard = Keyboard::new(requests.clone());
        for (what, at, value, shift) in steps {
            let size = [Size::Byte, Size::Word, Size::Dword][usize::from(what >> 4) % 3];
            match what % 8 {
                0 => drop(power.read(at % 12, size, &clock)),
                1 => power.write_reset_control(value as u8),
                2 => power.write_control_a(value as u8),
                3 => keyboard.write_command(value as u8),
                4 => keyboard.write_data(value as u8),
                5 => clock.advance(Nanoseconds(u64::from(value) << (shift % 24))),
                _ => power.write(at % 12, size, value, &clock),
            }
            keyboard.read_status();
            power.advance(clock.now());
            prop_assert!(power.next_deadline() > clock.now());
            requests.take();
        }
    }
}
