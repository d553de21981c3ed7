use std::time::Duration;

use proptest::prelude::*;

use super::Rtc;
use super::bits::index;
use crate::calendar::Civil;
use crate::time::{Hertz, ManualClock, Nanoseconds};

/// 2026-02-28T23:59:58Z, a Saturday.
const EPOCH: Duration = Duration::from_secs(1_772_323_198);

fn clock() -> ManualClock {
    ManualClock::new(Hertz(1), EPOCH)
}

fn read(rtc: &mut Rtc, at: u8, clock: &ManualClock) -> u8 {
    rtc.write(0, at, clock);
    rtc.read(1, clock)
}

fn write(rtc: &mut Rtc, at: u8, value: u8, clock: &ManualClock) {
    rtc.write(0, at, clock);
    rtc.write(1, value, clock);
}

fn shown(rtc: &mut Rtc, clock: &ManualClock) -> [u8; 8] {
    let order = [
        index::CENTURY,
        index::YEAR,
        index::MONTH,
        index::DAY,
        index::HOURS,
        index::MINUTES,
        index::SECONDS,
        index::WEEKDAY,
    ];
    order.map(|at| read(rtc, at, clock))
}

fn seconds(count: u64) -> Nanoseconds {
    Nanoseconds(count * 1_000_000_000)
}

#[test]
fn it_shows_the_wall_clock_in_decimal() {
    let (mut rtc, clock) = (Rtc::default(), clock());
    assert_eq!(shown(&mut rtc, &clock), [0x20, 0x26, 0x02, 0x28, 0x23, 0x59, 0x58, 7]);
    clock.advance(seconds(2));
    assert_eq!(shown(&mut rtc, &clock), [0x20, 0x26, 0x03, 0x01, 0x00, 0x00, 0x00, 1]);
}

#[test]
fn it_shows_binary_and_twelve_hours_if_asked() {
    let (mut rtc, clock) = (Rtc::default(), clock());
    write(&mut rtc, index::B, 0x04, &clock);
    assert_eq!(read(&mut rtc, index::HOURS, &clock), 11 | 0x80);
    assert_eq!(read(&mut rtc, index::MINUTES, &clock), 59);
    clock.advance(seconds(2));
    assert_eq!(read(&mut rtc, index::HOURS, &clock), 12);
}

#[test]
fn it_can_be_set() {
    let (mut rtc, clock) = (Rtc::default(), clock());
    write(&mut rtc, index::B, 0x82, &clock);
    for (at, value) in [(index::YEAR, 0x99), (index::CENTURY, 0x19), (index::MONTH, 0x12)] {
        write(&mut rtc, at, value, &clock);
    }
    write(&mut rtc, index::DAY, 0x31, &clock);
    clock.advance(seconds(100));
    assert_eq!(read(&mut rtc, index::SECONDS, &clock), 0x58, "it stands still");
    write(&mut rtc, index::B, 0x02, &clock);
    clock.advance(seconds(2));
    assert_eq!(shown(&mut rtc, &clock), [0x20, 0x00, 0x01, 0x01, 0x00, 0x00, 0x00, 7]);
}

#[test]
fn the_update_is_announced() {
    let (mut rtc, clock) = (Rtc::default(), clock());
    assert_eq!(read(&mut rtc, index::A, &clock), 0x26);
    clock.advance(Nanoseconds(999_900_000));
    assert_eq!(read(&mut rtc, index::A, &clock), 0xa6);
}

#[test]
fn it_sleeps_while_no_interrupt_is_wanted() {
    let (mut rtc, clock) = (Rtc::default(), clock());
    assert_eq!(rtc.next_deadline(), Nanoseconds::NEVER);
    write(&mut rtc, index::B, 0x12, &clock);
    assert_eq!(rtc.next_deadline(), seconds(1));
    rtc.reset();
    assert_eq!(rtc.next_deadline(), Nanoseconds::NEVER);
}

#[test]
fn every_update_interrupts_until_the_flags_are_read() {
    let (mut rtc, clock) = (Rtc::default(), clock());
    write(&mut rtc, index::SECONDS_ALARM, 0x30, &clock);
    write(&mut rtc, index::A, 0x20, &clock);
    write(&mut rtc, index::B, 0x12, &clock);
    for _ in 0..3 {
        clock.advance(seconds(1));
        rtc.advance(&clock);
        assert!(rtc.interrupts());
        assert_eq!(read(&mut rtc, index::C, &clock), 0x90);
        assert!(!rtc.interrupts());
    }
}

#[test]
fn flags_can_be_polled_without_interrupts() {
    let (mut rtc, clock) = (Rtc::default(), clock());
    read(&mut rtc, index::C, &clock);
    assert_eq!(read(&mut rtc, index::C, &clock), 0);
    clock.advance(Nanoseconds(2_000_000));
    assert_eq!(read(&mut rtc, index::C, &clock), 0x40);
    clock.advance(seconds(1));
    assert_eq!(read(&mut rtc, index::C, &clock), 0x50);
    assert!(!rtc.interrupts());
}

#[test]
fn the_alarm_interrupts_at_its_time() {
    let (mut rtc, clock) = (Rtc::default(), clock());
    for (at, value) in [(index::HOURS_ALARM, 0xff), (index::MINUTES_ALARM, 0x00)] {
        write(&mut rtc, at, value, &clock);
    }
    write(&mut rtc, index::SECONDS_ALARM, 0x03, &clock);
    write(&mut rtc, index::B, 0x22, &clock);
    let mut rang = Vec::new();
    for second in 1..=70 {
        clock.advance(seconds(1));
        rtc.advance(&clock);
        if read(&mut rtc, index::C, &clock) & 0x20 != 0 {
            rang.push(second);
        }
    }
    assert_eq!(rang, [5]);
}

#[test]
fn an_alarm_is_not_missed_when_the_machine_is_late() {
    let (mut rtc, clock) = (Rtc::default(), clock());
    write(&mut rtc, index::SECONDS_ALARM, 0x01, &clock);
    write(&mut rtc, index::MINUTES_ALARM, 0x00, &clock);
    write(&mut rtc, index::B, 0x22, &clock);
    clock.advance(seconds(10));
    rtc.advance(&clock);
    assert!(rtc.interrupts());
}

#[test]
fn the_periodic_interrupt_has_its_rate() {
    let (mut rtc, clock) = (Rtc::default(), clock());
    write(&mut rtc, index::B, 0x42, &clock);
    let mut count = 0;
    while rtc.next_deadline() <= seconds(1) {
        let wait = rtc.next_deadline().since(crate::time::Clock::now(&clock));
        clock.advance(wait);
        rtc.advance(&clock);
        assert_eq!(read(&mut rtc, index::C, &clock), 0xc0);
        count += 1;
    }
    assert_eq!(count, 1024);
}

#[test]
fn memory_is_remembered_across_reset() {
    let (mut rtc, clock) = (Rtc::default(), clock());
    write(&mut rtc, 0x80 | 0x0f, 0x0a, &clock);
    rtc.reset();
    assert_eq!(read(&mut rtc, 0x0f, &clock), 0x0a);
    assert_eq!(read(&mut rtc, index::D, &clock), 0x80);
}

#[test]
fn the_calendar_knows_its_days() {
    let civil = Civil::from_seconds(951_782_400);
    assert_eq!((civil.year, civil.month, civil.day, civil.weekday), (2000, 2, 29, 3));
    let civil = Civil::from_seconds(-1);
    assert_eq!((civil.year, civil.month, civil.day, civil.second), (1969, 12, 31, 59));
}

proptest! {
    #[test]
    fn the_calendar_goes_both_ways(seconds in -62_000_000_000i64..250_000_000_000) {
        prop_assert_eq!(Civil::from_seconds(seconds).to_seconds(), seconds);
    }

    #[test]
    fn nothing_that_is_written_breaks_it(
        steps in prop::collection::vec(any::<(u8, u8, u32)>(), 0..300),
    ) {
        let (mut rtc, clock) = (Rtc::default(), clock());
        for (what, value, later) in steps {
            match what % 4 {
                0 => write(&mut rtc, what >> 4, value, &clock),
                1 => drop(read(&mut rtc, what >> 3, &clock)),
                2 => clock.advance(Nanoseconds(u64::from(later) << (value % 16))),
                _ => rtc.write((what >> 7).into(), value, &clock),
            }
            rtc.advance(&clock);
            prop_assert!(rtc.next_deadline() > crate::time::Clock::now(&clock));
        }
    }
}
