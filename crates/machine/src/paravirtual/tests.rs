use std::time::Duration;

use proptest::prelude::*;
use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};

use super::{ParavirtualClock, msr, scale};
use crate::interrupts::Fault;
use crate::time::{Hertz, ManualClock, Nanoseconds};

const TSC: Hertz = Hertz(2_893_202_000);
const WALL: Duration = Duration::new(1_700_000_000, 250_000_000);

fn memory() -> GuestMemoryMmap {
    GuestMemoryMmap::from_ranges(&[(GuestAddress(0), 0x2000)]).unwrap()
}

/// What a guest computes from the page (`__pvclock_read_cycles`).
fn guest_time(memory: &GuestMemoryMmap, at: u64, tsc: u64) -> u64 {
    let stamp: u64 = memory.read_obj(GuestAddress(at + 8)).unwrap();
    let time: u64 = memory.read_obj(GuestAddress(at + 16)).unwrap();
    let multiplier: u32 = memory.read_obj(GuestAddress(at + 24)).unwrap();
    let shift: i8 = memory.read_obj(GuestAddress(at + 28)).unwrap();
    let delta = tsc - stamp;
    let delta = if shift < 0 { delta >> -shift } else { delta << shift };
    time + ((u128::from(delta) * u128::from(multiplier)) >> 32) as u64
}

#[test]
fn the_guest_computes_nanoseconds() {
    let clock = ManualClock::new(TSC, WALL);
    let memory = memory();
    let mut kvmclock = ParavirtualClock::new(1, TSC, Nanoseconds(0));
    clock.advance(Nanoseconds(5_000_000));
    kvmclock.write(0, msr::SYSTEM_TIME, 0x1001, &clock, &memory).unwrap();
    assert_eq!(kvmclock.read(0, msr::SYSTEM_TIME), Ok(0x1001));
    let later = TSC.ticks_in(Nanoseconds(1_005_000_000));
    assert!(guest_time(&memory, 0x1000, later).abs_diff(1_005_000_000) < 10);
    let flags: u8 = memory.read_obj(GuestAddress(0x1000 + 29)).unwrap();
    assert_eq!(flags, 1);
}

#[test]
fn the_version_is_even_and_changes() {
    let (clock, memory) = (ManualClock::new(TSC, WALL), memory());
    let mut kvmclock = ParavirtualClock::new(1, TSC, Nanoseconds(0));
    let versions: Vec<u32> = (0..3)
        .map(|_| {
            kvmclock.write(0, msr::SYSTEM_TIME, 0x1001, &clock, &memory).unwrap();
            memory.read_obj(GuestAddress(0x1000)).unwrap()
        })
        .collect();
    assert_eq!(versions, [2, 4, 6]);
}

#[test]
fn the_wall_clock_is_that_of_time_zero() {
    let (clock, memory) = (ManualClock::new(TSC, WALL), memory());
    clock.advance(Nanoseconds::SECOND);
    let mut kvmclock = ParavirtualClock::new(1, TSC, Nanoseconds(500_000_000));
    kvmclock.write(0, msr::WALL_CLOCK, 0x100, &clock, &memory).unwrap();
    let words: [u32; 3] = memory.read_obj(GuestAddress(0x100)).unwrap();
    assert_eq!(words, [2, 1_700_000_000, 750_000_000]);
}

#[test]
fn disabled_pages_and_pages_outside_memory_are_not_written() {
    let (clock, memory) = (ManualClock::new(TSC, WALL), memory());
    let mut kvmclock = ParavirtualClock::new(1, TSC, Nanoseconds(0));
    kvmclock.write(0, msr::SYSTEM_TIME, 0x1000, &clock, &memory).unwrap();
    kvmclock.write(0, msr::SYSTEM_TIME, 0xffff_ffff_ffff_fff1, &clock, &memory).unwrap();
    kvmclock.write(0, msr::SYSTEM_TIME_OLD, 0x1ff1, &clock, &memory).unwrap();
    kvmclock.write(0, msr::WALL_CLOCK_OLD, u64::MAX, &clock, &memory).unwrap();
    assert_eq!(memory.read_obj::<u64>(GuestAddress(0x1000)).unwrap(), 0);
}

#[test]
fn other_registers_and_processors_fault() {
    let (clock, memory) = (ManualClock::new(TSC, WALL), memory());
    let mut kvmclock = ParavirtualClock::new(1, TSC, Nanoseconds(0));
    assert_eq!(kvmclock.read(0, msr::SYSTEM_TIME + 1), Err(Fault));
    assert_eq!(kvmclock.write(1, msr::SYSTEM_TIME, 1, &clock, &memory), Err(Fault));
}

proptest! {
    #[test]
    fn the_scale_is_exact(hertz in 1_000_000u64..20_000_000_000, seconds in 1u64..100) {
        let (multiplier, shift) = scale(Hertz(hertz));
        let ticks = hertz * seconds;
        let shifted = if shift < 0 { ticks >> -shift } else { ticks << shift };
        let time = (u128::from(shifted) * u128::from(multiplier)) >> 32;
        let exact = u128::from(seconds) * 1_000_000_000;
        prop_assert!(time.abs_diff(exact) * 1_000_000_000 <= exact * 2 + 10_000_000_000);
    }
}
