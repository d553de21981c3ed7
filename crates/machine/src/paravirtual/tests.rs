use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use proptest::prelude::*;
use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};

use super::clock::scale;
use super::{Answer, Call, Done, msr};
use crate::board::{Board, BoardVcpu};
use crate::interrupts::{Fault, Wake};
use crate::platform::{Config, Platform, Surroundings};
use crate::time::{Hertz, ManualClock, Nanoseconds};

const TSC: Hertz = Hertz(2_893_202_000);
const WALL: Duration = Duration::new(1_700_000_000, 250_000_000);
const LOCAL: u64 = 0xfee0_0000;

/// One bit per processor that was woken.
#[derive(Default)]
struct Woken(AtomicU64);

impl Wake for Woken {
    fn wake(&self, processor: usize) {
        self.0.fetch_or(1 << processor, Ordering::Relaxed);
    }
}

struct Bench {
    platform: Platform,
    clock: Arc<ManualClock>,
    memory: Arc<GuestMemoryMmap>,
    woken: Arc<Woken>,
}

impl Bench {
    fn new(processors: usize) -> Self {
        let clock = Arc::new(ManualClock::new(TSC, WALL));
        let memory = GuestMemoryMmap::from_ranges(&[(GuestAddress(0), 0x4000)]).unwrap();
        let (memory, woken) = (Arc::new(memory), Arc::new(Woken::default()));
        let config = Config {
            processors,
            tsc: TSC,
            memory_bytes: 0x4000,
            maximum_bytes: 0x4000,
            firmware_bytes: 0,
        };
        let surroundings = Surroundings {
            clock: Arc::clone(&clock) as _,
            memory: Arc::clone(&memory) as _,
            wake: Arc::clone(&woken) as _,
        };
        Self { platform: Platform::new(config, surroundings).unwrap(), clock, memory, woken }
    }

    fn write(&self, processor: usize, index: u32, value: u64) -> Result<(), Fault> {
        self.platform.vcpu(processor).msr_write(index, value)
    }

    fn read<T: vm_memory::ByteValued>(&self, at: u64) -> T {
        self.memory.read_obj(GuestAddress(at)).unwrap()
    }

    fn local(&self, processor: usize, offset: u64, value: u64) {
        self.platform.vcpu(processor).mmio_write(GuestAddress(LOCAL + offset), 4, value);
    }

    fn interrupt(&self, processor: usize, vector: u64) {
        self.local(processor, 0xf0, 0x1ff);
        self.local(processor, 0x310, (processor as u64) << 24);
        self.local(processor, 0x300, 0x4000 | vector);
    }

    fn call(&self, number: u64, arguments: [u64; 4]) -> i64 {
        self.answer(&Call { number, arguments }).value as i64
    }

    fn answer(&self, call: &Call) -> Answer {
        self.platform.vcpu(0).hypercall(call)
    }

    fn take_woken(&self) -> u64 {
        self.woken.0.swap(0, Ordering::Relaxed)
    }

    /// What a guest computes from the page at `at` (`__pvclock_read_cycles`).
    fn guest_time(&self, at: u64, tsc: u64) -> u64 {
        let (stamp, time): (u64, u64) = (self.read(at + 8), self.read(at + 16));
        let (multiplier, shift): (u32, i8) = (self.read(at + 24), self.read(at + 28));
        let delta = tsc.wrapping_sub(stamp);
        let delta = if shift < 0 { delta >> -shift } else { delta << shift };
        time + ((u128::from(delta) * u128::from(multiplier)) >> 32) as u64
    }
}

#[test]
fn the_guest_computes_nanoseconds() {
    let bench = Bench::new(1);
    bench.clock.advance(Nanoseconds(5_000_000));
    bench.write(0, msr::SYSTEM_TIME, 0x1001).unwrap();
    assert_eq!(bench.platform.vcpu(0).msr_read(msr::SYSTEM_TIME), Ok(0x1001));
    let later = TSC.ticks_in(Nanoseconds(1_005_000_000));
    assert!(bench.guest_time(0x1000, later).abs_diff(1_005_000_000) < 10);
    assert_eq!(bench.read::<u8>(0x1000 + 29), 1);
}

#[test]
fn all_processors_read_the_same_time() {
    let bench = Bench::new(3);
    for processor in 0..3 {
        bench.clock.advance(Nanoseconds(1_234_567_891));
        bench.write(processor, msr::SYSTEM_TIME, 0x1001 + 0x100 * processor as u64).unwrap();
    }
    for tsc in [TSC.0 * 5, TSC.0 * 100_000, TSC.0 * 10_000_000 + 12_345] {
        let times = [0, 1, 2].map(|n| bench.guest_time(0x1000 + 0x100 * n, tsc));
        assert_eq!(times, [times[0]; 3]);
    }
}

#[test]
fn a_processor_that_moves_its_counter_keeps_the_time() {
    let bench = Bench::new(2);
    bench.write(0, msr::SYSTEM_TIME, 0x1001).unwrap();
    bench.write(1, msr::SYSTEM_TIME, 0x1101).unwrap();
    let offset = 0u64.wrapping_sub(TSC.0);
    bench.platform.vcpu(1).set_tsc_offset(offset);
    let tsc = TSC.0 * 10;
    let moved = bench.guest_time(0x1100, tsc.wrapping_add(offset));
    assert_eq!(moved, bench.guest_time(0x1000, tsc));
}

#[test]
fn the_version_is_even_and_changes() {
    let bench = Bench::new(1);
    let versions: Vec<u32> = (0..3)
        .map(|_| {
            bench.write(0, msr::SYSTEM_TIME, 0x1001).unwrap();
            bench.read(0x1000)
        })
        .collect();
    assert_eq!(versions, [2, 4, 6]);
}

#[test]
fn a_guest_that_was_stopped_is_told_so_once() {
    const FLAGS: u64 = 29;
    let bench = Bench::new(2);
    for processor in 0..2 {
        let at = 0x1000 + 0x100 * processor as u64;
        bench.write(processor, msr::SYSTEM_TIME, at | 1).unwrap();
        let (version, flags): (u32, u8) = (bench.read(at), bench.read(at + FLAGS));
        assert_eq!(flags, 1);
        bench.platform.vcpu(processor).has_been_stopped();
        assert_eq!(bench.read::<u8>(at + FLAGS), 3);
        assert_eq!(bench.read::<u32>(at), version + 2);
    }
    // A processor whose clock is off has nothing to be told.
    Bench::new(1).platform.vcpu(0).has_been_stopped();
}

#[test]
fn the_wall_clock_is_that_of_time_zero() {
    let bench = Bench::new(1);
    bench.clock.advance(Nanoseconds(500_000_000));
    bench.platform.reset();
    bench.clock.advance(Nanoseconds(500_000_000));
    bench.write(0, msr::WALL_CLOCK, 0x100).unwrap();
    assert_eq!(bench.read::<[u32; 3]>(0x100), [2, 1_700_000_000, 750_000_000]);
    assert_eq!(bench.platform.vcpu(0).msr_read(msr::WALL_CLOCK), Ok(0x100));
}

#[test]
fn disabled_pages_and_pages_outside_memory_are_not_written() {
    let bench = Bench::new(1);
    bench.write(0, msr::SYSTEM_TIME, 0x1000).unwrap();
    bench.write(0, msr::SYSTEM_TIME, 0xffff_ffff_ffff_fff1).unwrap();
    bench.write(0, msr::SYSTEM_TIME_OLD, 0x3ff1).unwrap();
    bench.write(0, msr::WALL_CLOCK_OLD, u64::MAX).unwrap();
    bench.write(0, msr::STEAL_TIME, 0xffff_ffff_ffff_ffc1).unwrap();
    bench.write(0, msr::END_OF_INTERRUPT, 0xffff_ffff_ffff_fffd).unwrap();
    let mut vcpu = bench.platform.vcpu(0);
    vcpu.fall_asleep();
    assert!(!vcpu.wake_up());
    vcpu.set_stolen_time(Nanoseconds(5));
    vcpu.enter();
    vcpu.leave();
    assert_eq!(bench.read::<u64>(0x1000), 0);
}

#[test]
fn other_registers_and_reserved_bits_fault() {
    let bench = Bench::new(1);
    let read = |index| bench.platform.vcpu(0).msr_read(index);
    assert_eq!(read(0x4b56_4d02), Err(Fault));
    assert_eq!(bench.write(0, 0x4b56_4d05, 0), Err(Fault));
    assert_eq!(bench.write(0, msr::STEAL_TIME, 0x1003), Err(Fault));
    assert_eq!(bench.write(0, msr::STEAL_TIME, 0x1021), Err(Fault));
    assert_eq!(bench.write(0, msr::END_OF_INTERRUPT, 0x1003), Err(Fault));
    assert_eq!((read(msr::STEAL_TIME), read(msr::END_OF_INTERRUPT)), (Ok(0), Ok(0)));
    assert_eq!(bench.write(0, msr::STEAL_TIME, 0x1001), Ok(()));
    assert_eq!(bench.write(0, msr::END_OF_INTERRUPT, 0x1005), Ok(()));
    assert_eq!((read(msr::STEAL_TIME), read(msr::END_OF_INTERRUPT)), (Ok(0x1001), Ok(0x1005)));
}

#[test]
fn stolen_time_counts_from_when_it_was_asked_for() {
    let bench = Bench::new(1);
    let told = |total| bench.platform.vcpu(0).set_stolen_time(Nanoseconds(total));
    told(1_000);
    assert!(!bench.platform.vcpu(0).counts_stolen_time());
    bench.write(0, msr::STEAL_TIME, 0x1001).unwrap();
    assert!(bench.platform.vcpu(0).counts_stolen_time());
    told(5_000);
    assert_eq!((bench.read::<u64>(0x1000), bench.read::<u32>(0x1008)), (0, 0));
    told(5_700);
    told(5_700);
    told(5_900);
    assert_eq!((bench.read::<u64>(0x1000), bench.read::<u32>(0x1008)), (900, 4));
}

#[test]
fn a_sleeping_processor_says_so_and_flushes_if_it_is_asked_to() {
    let bench = Bench::new(1);
    bench.write(0, msr::STEAL_TIME, 0x1001).unwrap();
    let mut vcpu = bench.platform.vcpu(0);
    vcpu.fall_asleep();
    assert_eq!(bench.read::<u8>(0x1010), 1);
    assert!(!vcpu.wake_up());
    assert_eq!(bench.read::<u8>(0x1010), 0);
    vcpu.fall_asleep();
    bench.memory.write_obj(3u8, GuestAddress(0x1010)).unwrap();
    assert!(vcpu.wake_up());
    assert_eq!(bench.read::<u8>(0x1010), 0);
}

#[test]
fn an_interrupt_ends_in_memory() {
    let bench = Bench::new(1);
    bench.write(0, msr::END_OF_INTERRUPT, 0x1001).unwrap();
    bench.interrupt(0, 0x41);
    let mut vcpu = bench.platform.vcpu(0);
    vcpu.enter();
    assert_eq!(bench.read::<u8>(0x1000), 0, "nothing is in service");
    vcpu.leave();
    assert_eq!(vcpu.acknowledge(), Some(0x41));
    vcpu.enter();
    assert_eq!(bench.read::<u8>(0x1000), 1);
    // The guest clears it: the interrupt has ended.
    bench.memory.write_obj(0u8, GuestAddress(0x1000)).unwrap();
    vcpu.leave();
    vcpu.enter();
    assert_eq!(bench.read::<u8>(0x1000), 0);
    vcpu.leave();
    drop(vcpu);
    bench.interrupt(0, 0x40);
    assert_eq!(bench.platform.vcpu(0).acknowledge(), Some(0x40), "of the same class");
}

#[test]
fn an_interrupt_for_whose_end_another_waits_ends_with_an_exit() {
    let bench = Bench::new(1);
    bench.write(0, msr::END_OF_INTERRUPT, 0x1001).unwrap();
    bench.interrupt(0, 0x41);
    let acknowledged = bench.platform.vcpu(0).acknowledge();
    assert_eq!(acknowledged, Some(0x41));
    bench.platform.vcpu(0).enter();
    bench.platform.vcpu(0).leave();
    assert_eq!(bench.read::<u8>(0x1000), 0, "the offer was taken back");
    bench.interrupt(0, 0x40);
    let mut vcpu = bench.platform.vcpu(0);
    assert_eq!(vcpu.acknowledge(), None);
    vcpu.enter();
    assert_eq!(bench.read::<u8>(0x1000), 0);
    vcpu.leave();
    vcpu.mmio_write(GuestAddress(LOCAL + 0xb0), 4, 0);
    assert_eq!(vcpu.acknowledge(), Some(0x40));
}

#[test]
fn a_call_ends_a_halt_that_is_or_is_to_come() {
    let bench = Bench::new(3);
    assert_eq!(bench.call(5, [0, 2, 0, 0]), 0);
    assert_eq!(bench.take_woken(), 0b100);
    assert!(!bench.platform.vcpu(1).take_unhalt());
    let mut vcpu = bench.platform.vcpu(2);
    assert!(vcpu.take_unhalt() && !vcpu.take_unhalt());
    drop(vcpu);
    assert_eq!(bench.call(5, [0, 77, 0, 0]), 0, "nobody is there");
    assert_eq!(bench.call(5, [0, u64::MAX, 0, 0]), 0);
}

#[test]
fn a_call_sends_an_interrupt_to_many() {
    let bench = Bench::new(4);
    (0..4).for_each(|processor| bench.local(processor, 0xf0, 0x1ff));
    let acknowledged = || [0, 1, 2, 3].map(|p| bench.platform.vcpu(p).acknowledge());
    assert_eq!(bench.call(10, [0b1101, 0, 0, 0x4051]), 3);
    assert_eq!(bench.take_woken(), 0b1100);
    assert_eq!(acknowledged(), [Some(0x51), None, Some(0x51), Some(0x51)]);
    assert_eq!(bench.call(10, [1 << 63, 1, 0u64.wrapping_sub(63), 0x4061]), 0, "far away");
    assert_eq!(bench.call(10, [0b101, u64::MAX, 1, 0x4061]), 2);
    assert_eq!(acknowledged(), [None, Some(0x61), None, Some(0x61)]);
    assert_eq!(bench.call(10, [0b10, 0, 0, 0x0400]), 1);
    assert!(bench.platform.vcpu(1).take_nmi());
    assert_eq!(bench.call(10, [0b10, 0, 0, 0x0500]), -1000, "no reset in this way");
    assert_eq!(bench.platform.vcpu(1).take_start_up(), None);
}

#[test]
fn other_calls_say_what_they_are() {
    let bench = Bench::new(2);
    let call = |number| {
        let Answer { value, done } = bench.answer(&Call { number, arguments: [1, 0, 0, 0] });
        (value as i64, done == Done::Yielded)
    };
    assert_eq!(call(11), (0, true));
    assert_eq!(call(1), (0, false));
    assert_eq!(call(9), (-1000, false));
    assert_eq!(call(u64::MAX), (-1000, false));
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
