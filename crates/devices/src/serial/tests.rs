use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use machine::bus::{PortDevice, Size};
use machine::time::{Hertz, ManualClock};
use machine::{Backplane, Board, BoardVcpu, Platform, Wake, platform};
use proptest::prelude::*;
use vm_memory::{GuestAddress, GuestMemoryMmap};

use super::{Closed, ComPort, Input, Serial};

const BASE: u16 = 0x3f8;

#[derive(Clone, Default)]
struct Output(Arc<Mutex<Vec<u8>>>);

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(&self, _processor: usize) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A platform with one port, and the 8259s telling whether it interrupts.
struct Bench {
    platform: Platform,
    input: Input,
    output: Output,
    wakes: Arc<Wakes>,
}

impl Bench {
    fn new() -> Self {
        let wakes = Arc::new(Wakes::default());
        let memory = GuestMemoryMmap::<()>::from_ranges(&[(GuestAddress(0), 0x1000)]).unwrap();
        let config = platform::Config {
            processors: 1,
            tsc: Hertz(1),
            memory_bytes: 0x1000,
            maximum_bytes: 0x1000,
            firmware_bytes: 0,
        };
        let surroundings = platform::Surroundings {
            clock: Arc::new(ManualClock::new(Hertz(1), Duration::ZERO)),
            memory: Arc::new(memory),
            wake: Arc::clone(&wakes) as Arc<dyn Wake>,
        };
        let mut platform = Platform::new(config, surroundings).unwrap();
        for (port, value) in [(0x20, 0x11), (0x21, 0x20), (0x21, 4), (0x21, 3), (0x21, 0)] {
            platform.vcpu(0).port_write(port, 1, value);
        }
        let output = Output::default();
        let input =
            Serial::plug_into(&mut platform, ComPort::Com1, Box::new(output.clone())).unwrap();
        Self { platform, input, output, wakes }
    }

    fn read(&mut self, offset: u16) -> u8 {
        self.platform.vcpu(0).port_read(BASE + offset, 1) as u8
    }

    fn write(&mut self, offset: u16, value: u8) {
        self.platform.vcpu(0).port_write(BASE + offset, 1, value.into());
    }

    /// Whether an interrupt is delivered; it is ended automatically.
    fn interrupts(&mut self) -> bool {
        self.platform.vcpu(0).acknowledge().is_some()
    }
}

#[test]
fn what_is_written_comes_out() {
    let mut bench = Bench::new();
    for byte in *b"hello" {
        assert_eq!(bench.read(5) & 0x60, 0x60, "ready for more");
        bench.write(0, byte);
    }
    assert_eq!(*bench.output.0.lock().unwrap(), b"hello");
}

#[test]
fn the_divisor_is_not_output() {
    let mut bench = Bench::new();
    bench.write(3, 0x83);
    bench.write(0, 0x01);
    bench.write(1, 0x02);
    assert_eq!([bench.read(0), bench.read(1)], [1, 2]);
    bench.write(3, 0x03);
    assert_eq!(bench.read(1), 0);
    assert!(bench.output.0.lock().unwrap().is_empty());
}

#[test]
fn input_waits_until_the_driver_listens() {
    let mut bench = Bench::new();
    assert_eq!(bench.input.offer(b"early"), 0);
    bench.write(2, 0x07);
    bench.read(0);
    bench.write(1, 0x01);
    assert_eq!(bench.input.offer(b"late"), 4);
    assert!(bench.interrupts());
    assert_eq!(bench.read(2), 0xc4);
    let bytes: Vec<u8> =
        std::iter::from_fn(|| (bench.read(5) & 1 != 0).then(|| bench.read(0))).collect();
    assert_eq!(bytes, b"late");
    assert_eq!(bench.read(2), 0xc1);
}

#[test]
fn a_guest_that_polls_is_given_input() {
    let mut bench = Bench::new();
    for _ in 0..16 {
        assert_eq!(bench.input.offer(b"x"), 0);
        bench.read(5);
    }
    assert_eq!(bench.input.offer(b"x"), 1);
    assert_eq!(bench.read(5) & 1, 1);
    assert!(!bench.interrupts(), "it has not enabled any");
}

#[test]
fn data_that_is_left_goes_on_interrupting() {
    let mut bench = Bench::new();
    bench.write(1, 0x01);
    bench.input.offer(b"ab");
    assert_eq!(bench.read(2), 0x04);
    bench.read(0);
    assert_eq!(bench.read(2), 0x04);
    bench.read(0);
    assert_eq!(bench.read(2), 0x01);
}

#[test]
fn the_empty_transmitter_interrupts_once_for_every_burst() {
    let mut bench = Bench::new();
    bench.write(1, 0x02);
    assert!(bench.interrupts());
    assert_eq!(bench.read(2) & 0x0f, 0x02);
    assert_eq!(bench.read(2) & 0x0f, 0x01);
    for byte in 0..16 {
        bench.write(0, byte);
    }
    assert!(bench.interrupts());
    assert!(!bench.interrupts());
    assert_eq!(bench.read(2) & 0x0f, 0x02);
}

#[test]
fn enabling_what_is_already_there_interrupts() {
    let mut bench = Bench::new();
    bench.write(1, 0x01);
    bench.write(1, 0x00);
    bench.input.offer(b"x");
    assert!(!bench.interrupts());
    bench.write(1, 0x01);
    assert!(bench.interrupts());
}

#[test]
fn a_sender_waits_for_room_and_wakes_the_processor() {
    let mut bench = Bench::new();
    bench.write(1, 0x01);
    let input = bench.input.clone();
    let text: Vec<u8> = (0..=255).collect();
    let sent = text.clone();
    let sender = std::thread::spawn(move || input.send(&sent));
    let mut received = Vec::new();
    while received.len() < text.len() {
        if bench.read(5) & 1 != 0 {
            received.push(bench.read(0));
        }
    }
    assert_eq!(received, text);
    assert_eq!(sender.join().unwrap(), Ok(()));
    assert!(bench.wakes.0.load(Ordering::Relaxed) >= 1);
}

#[test]
fn closing_ends_the_wait() {
    let bench = Bench::new();
    let input = bench.input.clone();
    let sender = std::thread::spawn(move || input.send(b"nobody listens"));
    std::thread::sleep(Duration::from_millis(10));
    bench.input.close();
    assert_eq!(sender.join().unwrap(), Err(Closed));
}

#[test]
fn clearing_the_fifo_empties_it() {
    let mut bench = Bench::new();
    bench.write(1, 0x01);
    bench.input.offer(b"gone");
    bench.write(2, 0x03);
    assert_eq!(bench.read(5) & 1, 0);
    assert_eq!(bench.read(2), 0xc1);
    assert_eq!(bench.read(1), 0x01, "the other registers stay");
    assert_eq!(bench.input.offer(b"here"), 4);
}

#[test]
fn loop_back_gives_back_what_is_written() {
    let mut bench = Bench::new();
    bench.write(4, 0x1a);
    assert_eq!(bench.read(6) & 0xf0, 0x90, "how Linux finds the chip");
    bench.write(0, 0x55);
    assert_eq!(bench.read(0), 0x55);
    assert!(bench.output.0.lock().unwrap().is_empty());
}

#[test]
fn reset_forgets_all_but_the_output() {
    let mut bench = Bench::new();
    bench.write(1, 0x01);
    bench.input.offer(b"x");
    bench.platform.reset();
    assert_eq!([bench.read(1), bench.read(5) & 1], [0, 0]);
    bench.write(0, b'y');
    assert_eq!(*bench.output.0.lock().unwrap(), b"y");
}

proptest! {
    #[test]
    fn nothing_that_is_written_breaks_it(steps in prop::collection::vec(any::<[u8; 3]>(), 0..300)) {
        let mut bench = Bench::new();
        for [what, at, value] in steps {
            match what % 4 {
                0 => drop(bench.read((at & 7).into())),
                1 => drop(bench.input.offer(&vec![value; usize::from(at)])),
                _ => bench.write((at & 7).into(), value),
            }
        }
        bench.platform.reset();
        prop_assert!(!bench.interrupts());
        prop_assert_eq!(bench.input.offer(b"x"), 0);
    }
}

#[test]
fn a_port_ignores_offsets_that_it_does_not_have() {
    let bench = Bench::new();
    let (mut serial, _) = Serial::new(bench.platform.line(4), Box::new(std::io::sink()));
    serial.write(0x108, Size::Byte, 0xff);
    assert_eq!(serial.read(0x105, Size::Byte), 0x60);
}
