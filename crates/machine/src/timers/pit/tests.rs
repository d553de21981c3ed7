use proptest::prelude::*;

use super::Pit;
use super::bits::FREQUENCY;
use crate::time::Nanoseconds;

const START: Nanoseconds = Nanoseconds(5_000_000);

fn after(ticks: u64) -> Nanoseconds {
    START.after(FREQUENCY.time_of(ticks))
}

fn load(pit: &mut Pit, channel: u16, mode: u8, count: u16) {
    pit.write(3, (channel as u8) << 6 | 0x30 | mode << 1, START);
    for byte in count.to_le_bytes() {
        pit.write(channel, byte, START);
    }
}

fn count(pit: &mut Pit, channel: u16, now: Nanoseconds) -> u16 {
    pit.write(3, (channel as u8) << 6, now);
    u16::from_le_bytes([pit.read(channel, now), pit.read(channel, now)])
}

#[test]
fn nothing_interrupts_before_a_count_is_loaded() {
    let mut pit = Pit::default();
    assert_eq!(pit.next_deadline(), Nanoseconds::NEVER);
    pit.write(3, 0x34, START);
    pit.write(0, 0x00, START);
    assert_eq!(pit.next_deadline(), Nanoseconds::NEVER);
    pit.write(0, 0x10, START);
    assert_eq!(pit.next_deadline(), after(0x1000));
}

#[test]
fn the_rate_generator_interrupts_without_drift() {
    let mut pit = Pit::default();
    load(&mut pit, 0, 2, 11_932);
    for period in 1..1000 {
        assert_eq!(pit.next_deadline(), after(11_932 * period));
        assert!(!pit.advance(Nanoseconds(pit.next_deadline().0 - 1)));
        assert!(pit.advance(pit.next_deadline()));
    }
}

#[test]
fn missed_periods_are_made_up_for() {
    let mut pit = Pit::default();
    load(&mut pit, 0, 2, 1000);
    let mut now = after(10_500);
    for _ in 0..11 {
        assert!(pit.advance(now));
        assert!(!pit.advance(now), "not all at once");
        now = pit.next_deadline();
    }
    assert_eq!(now, after(12_000), "what passed meanwhile was made up for, too");
}

#[test]
fn a_machine_that_stood_still_for_long_starts_anew() {
    let mut pit = Pit::default();
    load(&mut pit, 0, 2, 1000);
    let now = START.after(Nanoseconds(3_600_000_000_000));
    assert!(pit.advance(now));
    assert!(pit.next_deadline().since(now) > Nanoseconds(0));
    assert!(pit.advance(pit.next_deadline()));
    let late = now.after(Nanoseconds(5_000_000));
    assert!(pit.next_deadline() < late);
}

#[test]
fn a_count_of_one_does_not_interrupt_all_the_time() {
    let mut pit = Pit::default();
    load(&mut pit, 0, 2, 1);
    let now = pit.next_deadline();
    assert!(pit.advance(now));
    assert!(pit.next_deadline().since(now) >= Nanoseconds(100_000));
}

#[test]
fn terminal_count_interrupts_once_and_goes_on_counting() {
    let mut pit = Pit::default();
    load(&mut pit, 0, 0, 100);
    assert_eq!(count(&mut pit, 0, after(40)), 60);
    assert!(pit.advance(after(100)));
    assert_eq!(pit.next_deadline(), Nanoseconds::NEVER);
    assert_eq!(count(&mut pit, 0, after(101)), 0xffff);
}

#[test]
fn zero_counts_65536() {
    let mut pit = Pit::default();
    load(&mut pit, 0, 2, 0);
    assert_eq!(pit.next_deadline(), after(0x1_0000));
    assert_eq!(count(&mut pit, 0, after(1)), 0xffff);
}

#[test]
fn a_latched_count_stands_still_until_it_is_read() {
    let mut pit = Pit::default();
    load(&mut pit, 0, 2, 1000);
    pit.write(3, 0, after(10));
    pit.write(3, 0, after(20));
    assert_eq!(pit.read(0, after(30)), 990u16.to_le_bytes()[0]);
    assert_eq!(pit.read(0, after(30)), 990u16.to_le_bytes()[1]);
    assert_eq!(pit.read(0, after(30)), 970u16.to_le_bytes()[0]);
}

#[test]
fn read_back_latches_status_and_count() {
    let mut pit = Pit::default();
    load(&mut pit, 0, 3, 1000);
    pit.write(3, 0b1100_0010, after(100));
    assert_eq!(pit.read(0, after(900)), 0b1011_0110, "output high, both bytes, mode 3");
    assert_eq!(u16::from_le_bytes([pit.read(0, after(900)), pit.read(0, after(900))]), 800);
}

#[test]
fn the_square_wave_is_high_for_half_of_its_period() {
    let mut pit = Pit::default();
    pit.write_control_b(0x01, START);
    load(&mut pit, 2, 3, 1000);
    let output = |ticks| pit.read_control_b(after(ticks)) & 0x20 != 0;
    assert_eq!([1, 499, 500, 999, 1000].map(output), [true, true, false, false, true]);
}

/// How Linux calibrates the time-stamp counter (`pit_calibrate_tsc`).
#[test]
fn a_kernel_calibrates_by_the_output_of_channel_2() {
    let mut pit = Pit::default();
    pit.write_control_b(pit.read_control_b(START) & !0x02 | 0x01, START);
    load(&mut pit, 2, 0, 0xe90b);
    let output = |ticks| pit.read_control_b(after(ticks)) & 0x20 != 0;
    assert_eq!([0, 0xe90a, 0xe90b, 0x1_0000].map(output), [false, false, true, true]);
}

#[test]
fn a_low_gate_holds_the_count() {
    let mut pit = Pit::default();
    pit.write_control_b(0x01, START);
    load(&mut pit, 2, 0, 1000);
    pit.write_control_b(0x00, after(100));
    assert_eq!(count(&mut pit, 2, after(500)), 900);
    pit.write_control_b(0x01, after(500));
    assert_eq!(count(&mut pit, 2, after(600)), 800);
}

#[test]
fn the_gate_triggers_the_one_shot() {
    let mut pit = Pit::default();
    load(&mut pit, 2, 1, 1000);
    let output = |pit: &Pit, ticks| pit.read_control_b(after(ticks)) & 0x20 != 0;
    assert!(output(&pit, 5));
    pit.write_control_b(0x01, after(10));
    assert!(!output(&pit, 11));
    assert!(output(&pit, 1010));
}

#[test]
fn the_refresh_bit_changes() {
    let pit = Pit::default();
    let bit = |now| pit.read_control_b(Nanoseconds(now)) & 0x10;
    assert_ne!(bit(0), bit(15_085));
}

#[test]
fn decimal_counts_count_in_tens() {
    let mut pit = Pit::default();
    pit.write(3, 0x31, START);
    pit.write(0, 0x00, START);
    pit.write(0, 0x10, START);
    assert_eq!(pit.next_deadline(), after(1000));
    assert_eq!(count(&mut pit, 0, after(1)), 0x0999);
    assert_eq!(count(&mut pit, 0, after(1001)), 0x9999);
}

proptest! {
    #[test]
    fn nothing_that_is_written_breaks_it(
        steps in prop::collection::vec(any::<(u8, u8, u32)>(), 0..200),
    ) {
        let mut pit = Pit::default();
        let mut now = Nanoseconds(0);
        for (what, value, later) in steps {
            match what % 8 {
                0 => pit.write_control_b(value, now),
                1 => drop(pit.read_control_b(now)),
                2 | 3 => drop(pit.read((what >> 3).into(), now)),
                4 => now = Nanoseconds((now.0 + (u64::from(later) << (value % 24))).min(1 << 60)),
                _ => pit.write((what >> 6).into(), value, now),
            }
            pit.advance(now);
            prop_assert!(pit.next_deadline() > now);
        }
    }
}
