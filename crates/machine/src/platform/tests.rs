use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use proptest::prelude::*;
use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};

use super::{Config, Error, Platform, Surroundings};
use crate::board::{Backplane, Board, BoardVcpu};
use crate::bus::{self, PortDevice, Size, Width};
use crate::interrupts::{DeliveryMode, Destination, Fault, Message, StartUp, Wake};
use crate::layout::irq;
use crate::request::Request;
use crate::saved::{self, CounterShift, Part};
use crate::time::{Clock, Hertz, ManualClock, Nanoseconds};

const LOCAL: u64 = 0xfee0_0000;
const IO: u64 = 0xfec0_0000;

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
        let clock = Arc::new(ManualClock::new(Hertz(1_000_000_000), Duration::ZERO));
        let memory = GuestMemoryMmap::from_ranges(&[(GuestAddress(0), 0x4000)]).unwrap();
        let (memory, woken) = (Arc::new(memory), Arc::new(Woken::default()));
        let config = Config {
            processors,
            tsc: Hertz(1_000_000_000),
            memory_bytes: 6 << 30,
            maximum_bytes: 6 << 30,
            firmware_bytes: 0,
        };
        let surroundings = Surroundings {
            clock: Arc::clone(&clock) as _,
            memory: Arc::clone(&memory) as _,
            wake: Arc::clone(&woken) as _,
        };
        let platform = Platform::new(config, surroundings).unwrap();
        Self { platform, clock, memory, woken }
    }

    fn local(&mut self, processor: usize, offset: u64, value: u32) {
        let at = GuestAddress(LOCAL + offset);
        self.platform.vcpu(processor).mmio_write(at, 4, value.into());
    }

    /// Enable the local APIC; route `input` through the I/O APIC; mask the 8259s.
    fn route(&mut self, input: u8, low: u32) {
        self.local(0, 0xf0, 0x1ff);
        self.platform.vcpu(0).port_write(0x21, 1, 0xff);
        self.platform.vcpu(0).port_write(0xa1, 1, 0xff);
        for (register, value) in [(0x11 + 2 * input, 0), (0x10 + 2 * input, low)] {
            self.platform.vcpu(0).mmio_write(GuestAddress(IO), 4, register.into());
            self.platform.vcpu(0).mmio_write(GuestAddress(IO + 0x10), 4, value.into());
        }
    }

    /// As a PC's firmware leaves the 8259s.
    fn initialize_pic(&mut self) {
        for (chip, base, wiring) in [(0x20, 8, 4), (0xa0, 0x70, 2)] {
            self.platform.vcpu(0).port_write(chip, 1, 0x11);
            for word in [base, wiring, 1, 0] {
                self.platform.vcpu(0).port_write(chip + 1, 1, word);
            }
        }
    }

    fn pass(&mut self, time: Nanoseconds) {
        self.clock.advance(time);
        self.platform.vcpu(0).advance(self.clock.now());
    }

    fn take_woken(&self) -> u64 {
        self.woken.0.swap(0, Ordering::Relaxed)
    }
}

#[test]
fn a_machine_has_a_sensible_number_of_processors() {
    let bench = Bench::new(1);
    for processors in [0, 256] {
        let surroundings = Surroundings {
            clock: Arc::clone(&bench.clock) as _,
            memory: Arc::clone(&bench.memory) as _,
            wake: Arc::clone(&bench.woken) as _,
        };
        let config = Config {
            processors,
            tsc: Hertz(1),
            memory_bytes: 0,
            maximum_bytes: 0,
            firmware_bytes: 0,
        };
        assert!(matches!(Platform::new(config, surroundings), Err(Error::Processors(_))));
    }
}

#[test]
fn what_nobody_decodes_reads_as_ones() {
    let mut bench = Bench::new(1);
    let platform = &mut bench.platform;
    assert_eq!(
        [1, 2, 4].map(|size| platform.vcpu(0).port_read(0x300, size)),
        [0xff, 0xffff, u32::MAX]
    );
    assert_eq!(platform.vcpu(0).port_read(0x300, 3), u32::MAX);
    assert_eq!(platform.vcpu(0).mmio_read(GuestAddress(0xd000_0000), 8), u64::MAX);
    platform.vcpu(0).port_write(0x300, 4, 1);
    platform.vcpu(0).port_write(0xcf8, 4, 0x8000_0600);
    assert_eq!(
        platform.requests().take(),
        None,
        "0xcf9 is not reached by a wider access before it"
    );
    platform.vcpu(0).mmio_write(GuestAddress(0xd000_0000), 8, 1);
}

#[test]
fn a_wide_access_to_byte_wide_chips_is_made_of_bytes() {
    let bench = Bench::new(1);
    bench.platform.vcpu(0).port_write(0x70, 2, 0x5a0f);
    assert_eq!(bench.platform.vcpu(0).port_read(0x71, 1), 0x5a);
    assert_eq!(bench.platform.vcpu(0).port_read(0x71, 2), 0xff5a);
    assert_eq!(bench.platform.vcpu(0).port_read(0xffff, 4), u32::MAX);
}

#[test]
fn a_timer_interrupts_through_the_8259s_in_virtual_wire_mode() {
    let mut bench = Bench::new(1);
    bench.initialize_pic();
    for (port, value) in [(0x43, 0x34), (0x40, 0xa9), (0x40, 0x04)] {
        bench.platform.vcpu(0).port_write(port, 1, value);
    }
    let deadline = bench.platform.vcpu(0).next_deadline().unwrap();
    assert!((999_000..1_001_000).contains(&deadline.0));
    assert!(!bench.platform.vcpu(0).has_interrupt());
    bench.pass(deadline);
    assert!(bench.platform.vcpu(0).has_interrupt());
    assert_eq!(bench.platform.vcpu(0).acknowledge(), Some(8));
    assert_eq!(bench.platform.vcpu(0).acknowledge(), None);
    assert!(bench.platform.vcpu(0).next_deadline().unwrap() > deadline);
}

#[test]
fn after_firmware_the_8259s_have_its_vectors_and_the_timer_ticks() {
    let mut bench = Bench::new(1);
    assert_eq!(bench.platform.vcpu(0).next_deadline(), None);
    bench.platform.initialize_as_firmware();
    // 65536 counts of 1.193182 MHz.
    let deadline = bench.platform.vcpu(0).next_deadline().unwrap();
    assert!((54_925_000..54_926_000).contains(&deadline.0), "{deadline:?}");
    bench.pass(deadline);
    assert_eq!(bench.platform.vcpu(0).acknowledge(), Some(0x08));
    bench.platform.vcpu(0).port_write(0x20, 1, 0x20);
    let line = bench.platform.line(11);
    line.pulse();
    assert_eq!(bench.platform.vcpu(0).acknowledge(), None, "it is masked");
    let mask = bench.platform.vcpu(0).port_read(0xa1, 1);
    bench.platform.vcpu(0).port_write(0xa1, 1, mask & !(1 << 3));
    assert_eq!(bench.platform.vcpu(0).acknowledge(), Some(0x73));
    bench.platform.reset();
    assert_eq!(bench.platform.vcpu(0).next_deadline(), None);
}

#[test]
fn the_timer_is_wired_to_pin_2_of_the_io_apic() {
    let mut bench = Bench::new(1);
    bench.route(2, 0x30);
    for (port, value) in [(0x43, 0x34), (0x40, 0xa9), (0x40, 0x04)] {
        bench.platform.vcpu(0).port_write(port, 1, value);
    }
    bench.pass(Nanoseconds(1_100_000));
    assert_eq!(bench.platform.vcpu(0).acknowledge(), Some(0x30));
}

#[test]
fn a_line_of_another_thread_wakes_and_interrupts() {
    let mut bench = Bench::new(1);
    bench.route(4, 0x34);
    let line = bench.platform.line(irq::COM1);
    std::thread::spawn(move || line.pulse_and_wake()).join().unwrap();
    assert_eq!(bench.take_woken(), 1);
    assert_eq!(bench.platform.vcpu(0).acknowledge(), Some(0x34));
    bench.local(0, 0xb0, 0);
    assert_eq!(bench.platform.vcpu(0).acknowledge(), None);
}

#[test]
fn a_level_interrupts_until_the_device_is_served() {
    let mut bench = Bench::new(1);
    bench.route(9, 0x39 | 1 << 15);
    bench.platform.vcpu(0).port_write(0x602, 2, 0x0100);
    bench.platform.press_power_button();
    for _ in 0..2 {
        assert_eq!(bench.platform.vcpu(0).acknowledge(), Some(0x39));
        assert_eq!(bench.platform.vcpu(0).acknowledge(), None);
        bench.local(0, 0xb0, 0);
    }
    assert_eq!(bench.platform.vcpu(0).acknowledge(), Some(0x39));
    bench.platform.vcpu(0).port_write(0x600, 2, 0x0100);
    bench.local(0, 0xb0, 0);
    assert_eq!(bench.platform.vcpu(0).acknowledge(), None);
}

#[test]
fn the_tsc_deadline_msr_arms_a_timer() {
    let mut bench = Bench::new(1);
    bench.local(0, 0xf0, 0x1ff);
    bench.local(0, 0x320, 2 << 17 | 0xec);
    bench.platform.vcpu(0).msr_write(0x6e0, 5_000).unwrap();
    assert_eq!(bench.platform.vcpu(0).next_deadline(), Some(Nanoseconds(5_000)));
    bench.pass(Nanoseconds(4_999));
    assert!(!bench.platform.vcpu(0).has_interrupt());
    bench.pass(Nanoseconds(1));
    assert_eq!(bench.platform.vcpu(0).acknowledge(), Some(0xec));
    assert_eq!(bench.platform.vcpu(0).next_deadline(), None);
}

#[test]
fn a_processor_starts_another() {
    let mut bench = Bench::new(3);
    for processor in 0..3 {
        bench.local(processor, 0xf0, 0x1ff);
    }
    bench.local(0, 0x310, 1 << 24);
    bench.local(0, 0x300, 0xc500);
    bench.local(0, 0x300, 0x0608);
    assert_eq!(bench.take_woken(), 0b010);
    let taken: Vec<_> = std::iter::from_fn(|| bench.platform.vcpu(1).take_start_up()).collect();
    assert_eq!(taken, [StartUp::Init, StartUp::At(8)]);
    assert_eq!(bench.platform.vcpu(2).take_start_up(), None);
}

#[test]
fn a_broadcast_wakes_the_others() {
    let mut bench = Bench::new(3);
    for processor in 0..3 {
        bench.local(processor, 0xf0, 0x1ff);
    }
    bench.take_woken();
    bench.local(1, 0x300, 0xc_0044);
    assert_eq!(bench.take_woken(), 0b101);
    assert_eq!(
        [0, 1, 2].map(|p| bench.platform.vcpu(p).acknowledge()),
        [Some(0x44), None, Some(0x44)]
    );
    bench.local(1, 0x310, 2 << 24);
    bench.local(1, 0x300, 0x0400);
    assert_eq!([0, 1, 2].map(|p| bench.platform.vcpu(p).take_nmi()), [false, false, true]);
}

#[test]
fn the_lowest_priority_message_goes_to_who_does_the_least() {
    let mut bench = Bench::new(2);
    for processor in 0..2 {
        bench.local(processor, 0xf0, 0x1ff);
        bench.local(processor, 0xd0, 1 << (24 + processor));
    }
    bench.platform.vcpu(0).tpr_write(5);
    let message = Message {
        destination: Destination::Logical(3),
        mode: DeliveryMode::LowestPriority,
        vector: 0x80,
        level: false,
    };
    bench.platform.send_message(&message);
    assert_eq!([0, 1].map(|p| bench.platform.vcpu(p).acknowledge()), [None, Some(0x80)]);
    bench.platform.send_message(&message);
    assert_eq!([0, 1].map(|p| bench.platform.vcpu(p).acknowledge()), [Some(0x80), None]);
}

fn has_msr(index: u32) -> bool {
    Platform::MSRS.iter().any(|range| range.contains(&index))
}

#[test]
fn platform_registers_are_dispatched_and_others_fault() {
    let bench = Bench::new(1);
    assert_eq!(bench.platform.vcpu(0).msr_read(0x1b), Ok(0xfee0_0900));
    bench.platform.vcpu(0).msr_write(0x1b, 0xfee0_0d00).unwrap();
    assert_eq!(bench.platform.vcpu(0).msr_read(0x803), Ok(0x0005_0014));
    assert_eq!(bench.platform.vcpu(0).mmio_read(GuestAddress(LOCAL + 0x30), 4), 0xffff_ffff);
    bench.platform.vcpu(0).msr_write(0x4b56_4d01, 0x1001).unwrap();
    assert_eq!(bench.memory.read_obj::<u32>(GuestAddress(0x1000)).unwrap(), 2);
    assert_eq!(bench.platform.vcpu(0).msr_read(0x4b56_4d02), Err(Fault));
    assert_eq!(bench.platform.vcpu(0).msr_write(0x10, 0), Err(Fault));
    for index in [0x1b, 0x6e0, 0x800, 0x8ff, 0x11, 0x12, 0x4b56_4d00, 0x4b56_4d03, 0x4b56_4d04] {
        assert!(has_msr(index));
    }
    assert!(!has_msr(0x10) && !has_msr(0x900) && !has_msr(0x4b56_4d02));
}

#[test]
fn processors_but_the_first_wait_to_be_started() {
    let mut bench = Bench::new(2);
    assert!(!bench.platform.vcpu(0).waits_for_start_up());
    assert!(bench.platform.vcpu(1).waits_for_start_up());
    bench.local(0, 0x310, 1 << 24);
    bench.local(0, 0x300, 0x0608);
    assert_eq!(bench.platform.vcpu(1).take_start_up(), Some(StartUp::At(8)));
    assert!(!bench.platform.vcpu(1).waits_for_start_up());
    bench.local(0, 0x300, 0x0609);
    assert_eq!(bench.platform.vcpu(1).take_start_up(), None, "it is at work");
    bench.platform.reset();
    assert!(bench.platform.vcpu(1).waits_for_start_up());
}

#[test]
fn only_the_first_of_many_messages_wakes_a_processor() {
    let mut bench = Bench::new(2);
    bench.local(1, 0xf0, 0x1ff);
    bench.local(0, 0x310, 1 << 24);
    bench.local(0, 0x300, 0x4041);
    assert_eq!(bench.take_woken(), 0b10);
    bench.local(0, 0x300, 0x4042);
    assert_eq!(bench.take_woken(), 0, "it has not looked yet");
    assert_eq!(bench.platform.vcpu(1).acknowledge(), Some(0x42));
    bench.local(0, 0x300, 0x4051);
    assert_eq!(bench.take_woken(), 0b10);
}

#[test]
fn an_interrupt_of_a_device_goes_to_any_processor() {
    let mut bench = Bench::new(3);
    bench.route(4, 0x34);
    bench.local(2, 0xf0, 0x1ff);
    bench.local(2, 0xd0, 4 << 24);
    // Physical destination 2, then logical destination 4, then lowest priority among all.
    for (low, high) in [(0x34, 2 << 24), (0x834, 4 << 24), (0x934, 6 << 24)] {
        for (register, value) in [(0x19, high), (0x18, low)] {
            let mut vcpu = bench.platform.vcpu(0);
            vcpu.mmio_write(GuestAddress(IO), 4, register);
            vcpu.mmio_write(GuestAddress(IO + 0x10), 4, value);
        }
        bench.take_woken();
        bench.platform.line(irq::COM1).pulse_and_wake();
        assert!(!bench.platform.vcpu(0).has_interrupt());
        assert_eq!(bench.take_woken() & 0b100, 0b100);
        assert_eq!(bench.platform.vcpu(2).acknowledge(), Some(0x34));
        bench.local(2, 0xb0, 0);
    }
}

#[test]
fn any_processor_may_end_a_level() {
    let mut bench = Bench::new(2);
    bench.route(9, 0x39 | 1 << 15);
    bench.local(1, 0xf0, 0x1ff);
    for (register, value) in [(0x23, 1 << 24), (0x22, 0x39 | 1 << 15)] {
        bench.platform.vcpu(0).mmio_write(GuestAddress(IO), 4, register);
        bench.platform.vcpu(0).mmio_write(GuestAddress(IO + 0x10), 4, value);
    }
    bench.platform.vcpu(0).port_write(0x602, 2, 0x0100);
    bench.platform.press_power_button();
    for _ in 0..2 {
        assert_eq!(bench.platform.vcpu(1).acknowledge(), Some(0x39));
        assert_eq!(bench.platform.vcpu(1).acknowledge(), None);
        bench.local(1, 0xb0, 0);
    }
}

#[test]
fn the_first_processor_is_woken_for_a_timer_that_another_sets() {
    let bench = Bench::new(2);
    bench.take_woken();
    for (port, value) in [(0x43, 0x34), (0x40, 0xa9), (0x40, 0x04)] {
        bench.platform.vcpu(1).port_write(port, 1, value);
    }
    assert_eq!(bench.take_woken(), 1);
    assert!(bench.platform.vcpu(0).next_deadline().is_some());
    assert_eq!(bench.platform.vcpu(1).next_deadline(), None);
}

#[test]
fn threads_send_each_other_interrupts_and_none_is_lost() {
    const ROUNDS: u32 = 2_000;
    let mut bench = Bench::new(2);
    for processor in 0..2 {
        bench.local(processor, 0xf0, 0x1ff);
        bench.local(processor, 0x310, (1 - processor as u32) << 24);
    }
    let platform = &bench.platform;
    // Each waits for the other's interrupt before it sends the next.
    let play = |processor: usize| {
        let mut vcpu = platform.vcpu(processor);
        for round in 0..ROUNDS {
            if processor == 1 || round > 0 {
                while vcpu.acknowledge().is_none() {
                    std::thread::yield_now();
                }
                vcpu.mmio_write(GuestAddress(LOCAL + 0xb0), 4, 0);
            }
            vcpu.mmio_write(GuestAddress(LOCAL + 0x300), 4, 0x4041);
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| play(0));
        scope.spawn(|| play(1));
    });
}

#[test]
fn cr8_is_the_task_priority() {
    let bench = Bench::new(1);
    bench.platform.vcpu(0).tpr_write(0xf9);
    assert_eq!(bench.platform.vcpu(0).tpr_read(), 9);
    assert_eq!(bench.platform.vcpu(0).mmio_read(GuestAddress(LOCAL + 0x80), 4), 0x90);
}

#[test]
fn the_apic_takes_aligned_words_and_gives_any_part() {
    let bench = Bench::new(1);
    let at = |offset| GuestAddress(LOCAL + offset);
    bench.platform.vcpu(0).mmio_write(at(0x80), 1, 0x50);
    bench.platform.vcpu(0).mmio_write(at(0x82), 4, 0x50);
    assert_eq!(bench.platform.vcpu(0).tpr_read(), 0);
    bench.platform.vcpu(0).mmio_write(at(0x80), 8, 0x50);
    assert_eq!(bench.platform.vcpu(0).tpr_read(), 5);
    assert_eq!(bench.platform.vcpu(0).mmio_read(at(0x30), 1), 0x14);
    assert_eq!(bench.platform.vcpu(0).mmio_read(at(0x32), 2), 0x05);
}

/// Remembers what was written; shared with the test.
#[derive(Clone, Default)]
struct Recorder(Arc<Mutex<Vec<(u64, Size, u64)>>>);

impl PortDevice for Recorder {
    fn kind(&self) -> &'static str {
        "recorder"
    }

    fn read(&mut self, offset: u16, _size: Size) -> u32 {
        0xaaaa_0000 | u32::from(offset)
    }

    fn write(&mut self, offset: u16, size: Size, value: u32) {
        self.0.lock().unwrap().push((offset.into(), size, value.into()));
    }

    fn reset(&mut self) {
        self.0.lock().unwrap().clear();
    }
}

#[test]
fn devices_plug_into_the_port_bus() {
    let mut bench = Bench::new(1);
    let ports = Recorder::default();
    let platform = &mut bench.platform;
    platform.add_port_device("p", 0x400, 4, Width::Any, Box::new(ports.clone())).unwrap();
    platform.add_port_device("b", 0x404, 2, Width::Byte, Box::new(ports.clone())).unwrap();
    platform.vcpu(0).port_write(0x402, 2, 0x1_2345);
    platform.vcpu(0).port_write(0x404, 4, 0x0403_0201);
    assert_eq!(platform.vcpu(0).port_read(0x401, 2), 1);
    let written = [(2, Size::Word, 0x2345), (0, Size::Byte, 1), (1, Size::Byte, 2)];
    assert_eq!(*ports.0.lock().unwrap(), written);
    platform.reset();
    assert!(ports.0.lock().unwrap().is_empty());
}

#[test]
fn addresses_without_a_device_read_as_ones() {
    let bench = Bench::new(1);
    let address = GuestAddress(0xc800_0008);
    bench.platform.vcpu(0).mmio_write(address, 8, 7);
    assert_eq!(bench.platform.vcpu(0).mmio_read(address, 8), u64::MAX);
    assert_eq!(bench.platform.vcpu(0).mmio_read(address, 2), 0xffff);
}

#[test]
fn devices_cannot_take_the_platforms_own_places() {
    let mut bench = Bench::new(1);
    let device = || Box::new(Recorder::default());
    let error = bench.platform.add_port_device("x", 0x6f, 2, Width::Any, device()).unwrap_err();
    assert_eq!(error, bus::Error::Taken { name: "x", address: 0x70, other: "RTC" });
}

#[test]
fn the_clocks_memory_tells_sizes() {
    let bench = Bench::new(1);
    let byte = |at| {
        bench.platform.vcpu(0).port_write(0x70, 1, at);
        bench.platform.vcpu(0).port_read(0x71, 1)
    };
    assert_eq!((byte(0x16) << 8 | byte(0x15)), 640);
    assert_eq!((byte(0x31) << 8 | byte(0x30)), 0xffff);
    assert_eq!((byte(0x35) << 8 | byte(0x34)) as u64 * 0x1_0000 + (16 << 20), 3 << 30);
    assert_eq!((byte(0x5d) << 16 | byte(0x5c) << 8 | byte(0x5b)) as u64 * 0x1_0000, 3 << 30);
}

#[test]
fn reset_is_as_power_on() {
    let mut bench = Bench::new(1);
    bench.route(4, 0x34);
    bench.platform.vcpu(0).msr_write(0x1b, 0xfee0_0d00).unwrap();
    bench.platform.line(4).set(true);
    bench.platform.vcpu(0).port_write(0x64, 1, 0xfe);
    assert_eq!(bench.platform.requests().take(), Some(Request::Reset));
    bench.platform.vcpu(0).port_write(0xcf9, 1, 0x06);
    bench.platform.reset();
    assert_eq!(bench.platform.requests().take(), None);
    assert_eq!(bench.platform.vcpu(0).msr_read(0x1b), Ok(0xfee0_0900));
    assert!(!bench.platform.vcpu(0).has_interrupt());
    assert_eq!(bench.platform.vcpu(0).next_deadline(), None);
    bench.route(4, 0x34);
    assert!(!bench.platform.vcpu(0).has_interrupt(), "the line was high already");
    bench.platform.line(4).set(false);
    bench.platform.line(4).set(true);
    assert_eq!(bench.platform.vcpu(0).acknowledge(), Some(0x34));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn nothing_that_a_guest_does_breaks_it(
        steps in prop::collection::vec(any::<(u8, u16, u32, u8)>(), 0..400),
    ) {
        let mut bench = Bench::new(2);
        let ports = [0x20u16, 0x40, 0x60, 0x70, 0x92, 0xa0, 0x4d0, 0x600, 0xcf8, 0xfffc];
        for (what, at, value, more) in steps {
            let processor = usize::from(more & 1);
            let size = 1 << (more >> 1 & 3);
            let port = ports[usize::from(at >> 8) % ports.len()] + (at & 0xf).min(3);
            let page = if more & 0x80 == 0 { LOCAL } else { IO };
            let address = GuestAddress(page + u64::from(at & 0xfff));
            let platform = &mut bench.platform;
            match what % 8 {
                0 => drop(platform.vcpu(0).port_read(port, size)),
                1 | 2 => platform.vcpu(0).port_write(port, size, value),
                3 => drop(platform.vcpu(processor).mmio_read(address, size)),
                4 => platform.vcpu(processor).mmio_write(address, size, value.into()),
                5 => {
                    let index = 0x800 + u32::from(at & 0x7f);
                    let _ = platform.vcpu(processor).msr_write(index, value.into());
                }
                6 => drop(platform.vcpu(processor).acknowledge()),
                _ => bench.pass(Nanoseconds(u64::from(value) << (more & 15))),
            }
            let now = bench.clock.now();
            bench.platform.vcpu(0).advance(now);
            let deadline = bench.platform.vcpu(0).next_deadline();
            prop_assert!(deadline.is_none_or(|deadline| deadline > now));
            bench.platform.requests().take();
        }
    }
}

#[test]
fn a_platform_goes_on_where_another_was() {
    let shift = CounterShift::new(2000, 1000, true);
    let mut first = Bench::new(2);
    first.route(irq::COM1, 0x41);
    first.platform.vcpu(0).port_write(0x70, 1, 0x0f);
    first.platform.vcpu(0).port_write(0x71, 1, 0x5a);
    let line = first.platform.line(irq::COM1);
    line.set_and_wake(true);
    let (shared, own) = {
        let shared = first.platform.vcpu(0).save_shared().unwrap();
        let own: Vec<_> = (0..2).map(|number| first.platform.vcpu(number).save_own()).collect();
        first.platform.vcpu(0).thaw();
        (shared, own)
    };
    let second = Bench::new(2);
    second.platform.restore(&shared, &own, shift).unwrap();
    let mut vcpu = second.platform.vcpu(0);
    assert_eq!(vcpu.port_read(0x70 + 1, 1), 0x5a);
    assert_eq!(vcpu.acknowledge(), Some(0x41), "it was on its way");
    assert_eq!(vcpu.acknowledge(), None, "and has come once");
    drop(vcpu);
    let other = Bench::new(1);
    assert!(other.platform.restore(&shared, &own, shift).is_err());
    assert!(other.platform.restore(&shared, &own[..1], shift).is_ok());
}

/// What a platform with one processor says of the state of another, after this was done to it.
fn refusal(change: impl FnOnce(Vec<Part>) -> Vec<Part>) -> String {
    let bench = Bench::new(1);
    let mut vcpu = bench.platform.vcpu(0);
    let (shared, own) = (vcpu.save_shared().unwrap(), vcpu.save_own());
    drop(vcpu);
    let parts = change(saved::decode(&shared, "the chip set").unwrap());
    let shift = CounterShift::new(0, 0, true);
    let restored = bench.platform.restore(&saved::encode(&parts), &[own], shift);
    restored.map_or_else(|error| error.to_string(), |()| String::new())
}

#[test]
fn the_state_of_each_part_of_the_board_is_there_once_and_in_a_version_that_is_known() {
    let changed = |kind: &'static str, change: fn(&mut Part)| {
        move |mut parts: Vec<Part>| {
            parts.iter_mut().filter(|part| part.kind == kind).for_each(change);
            parts
        }
    };
    assert_eq!(refusal(|parts| parts), "");
    assert_eq!(refusal(|parts| parts.into_iter().rev().collect()), "", "in any order");
    let newer = refusal(changed("i8254", |part| part.version = 2));
    assert_eq!(newer, "it has a device i8254 of version 2; this biv knows versions up to 1");
    let unknown = refusal(|mut parts| {
        let (kind, bytes) = ("virtio-foo".to_owned(), vec![1]);
        parts.push(Part { kind, instance: 0, version: 3, bytes });
        parts
    });
    assert_eq!(unknown, "it has a device virtio-foo of version 3, and this machine has none");
    let missing = refusal(|parts| parts.into_iter().filter(|it| it.kind != "i8042").collect());
    assert_eq!(missing, "it has no state of the device i8042, which this machine has");
    let twice = refusal(|mut parts| {
        parts.push(parts[0].clone());
        parts
    });
    assert!(twice.ends_with("twice"), "{twice}");
}

proptest! {
    #[test]
    fn no_state_is_too_strange(
        at in 0usize..2000,
        bytes in prop::collection::vec(any::<u8>(), 1..40),
    ) {
        let bench = Bench::new(1);
        let mut shared = bench.platform.vcpu(0).save_shared().unwrap();
        let mut own = bench.platform.vcpu(0).save_own();
        let shift = CounterShift::new(0, 0, true);
        for state in [&mut shared, &mut own] {
            let at = at % state.len();
            let end = (at + bytes.len()).min(state.len());
            state[at..end].copy_from_slice(&bytes[..end - at]);
        }
        if bench.platform.restore(&shared, &[own], shift).is_ok() {
            bench.clock.advance(Nanoseconds(50_000_000));
            let mut vcpu = bench.platform.vcpu(0);
            vcpu.advance(bench.clock.now());
            for port in (0..0x100).chain(0x3f8..0x400).chain(0x4d0..0x4d2).chain(0xcf8..0xd00) {
                vcpu.port_read(port, 1);
                vcpu.port_write(port, 1, 0x55);
            }
            let _ = vcpu.acknowledge();
        }
    }
}
