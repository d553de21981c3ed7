//! The run loop against processors that follow scripts.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use cpu::Exit;
use machine::saved::{CounterShift, Unfit};
use machine::time::Hertz;
use machine::{Platform, platform};

use super::*;
use crate::clock::HostClock;
use crate::devices::{DebugExit, Devices, Plugged, Serial, SerialBackend, Slots};
use crate::processor::Kick;

mod of_several;

/// Memory enough for the platform's tables.
const MEMORY_BYTES: u64 = 4 << 20;

/// Longer than any test may take, shorter than anybody waits.
const PATIENCE: Duration = Duration::from_secs(120);

/// One thing that the guest does.
enum Step {
    /// Leave with this exit.
    Exit(Exit),
    /// Compute until somebody has kicked since the last such step.
    Compute,
    /// Compute until an interrupt is delivered.
    ComputeUntilInterrupt,
    /// `sti` or `cli`.
    Interrupts(bool),
    /// Halt until an interrupt is delivered, however often it is woken for nothing.
    HaltUntilInterrupt,
    /// Halt until the halt is ended without an interrupt.
    HaltUntilEnd,
    /// Compute until somebody kicks, and halt just before that is noticed.
    HaltWhenKicked,
    /// The host refuses to run guest code.
    Fail,
    /// We have made a mistake.
    Panic,
}

/// What the machine said to the processor.
#[derive(Debug, PartialEq, Eq)]
enum Said {
    Read(u64),
    MsrWritten,
    MsrFailed,
    Interrupt(u8),
    NonMaskable,
    Initialized,
    StartedAt(u8),
    HaltEnded,
    AddressesForgotten,
}

#[derive(Debug, Default)]
struct FakeKick {
    kicked: AtomicBool,
    count: AtomicU32,
}

impl Kick for FakeKick {
    fn kick(&self) {
        self.kicked.store(true, Ordering::SeqCst);
        self.count.fetch_add(1, Ordering::SeqCst);
    }
}

/// A processor that does what it was told; at the end of its script, it shuts down.
#[derive(Default)]
struct Fake {
    script: VecDeque<Step>,
    said: Vec<Said>,
    enabled: bool,
    window_wanted: bool,
    windows: u32,
    halts: u32,
    interrupted: bool,
    halt_ended: bool,
    thread: Option<std::thread::ThreadId>,
    kicks: u32,
    kick: Arc<FakeKick>,
    alarm: Option<Instant>,
    alarm_gone_off: bool,
}

impl Fake {
    /// Have the alarm go off if it is time, and let others compute.
    fn pass_time(&mut self, start: Instant) {
        assert!(start.elapsed() < PATIENCE, "nobody kicked");
        if self.alarm.take_if(|due| *due <= Instant::now()).is_some() {
            self.alarm_gone_off = true;
            self.kick.kick();
        }
        std::thread::yield_now();
    }

    fn step(&mut self) -> Option<Exit> {
        match self.script.pop_front() {
            None => Some(Exit::Shutdown),
            Some(Step::Exit(exit)) => Some(exit),
            Some(Step::Compute) => {
                let start = Instant::now();
                while self.kick.count.load(Ordering::SeqCst) == self.kicks {
                    self.pass_time(start);
                }
                self.kicks = self.kick.count.load(Ordering::SeqCst);
                None
            }
            Some(Step::ComputeUntilInterrupt) => {
                if std::mem::take(&mut self.interrupted) {
                    return None;
                }
                let start = Instant::now();
                while !self.kick.kicked.load(Ordering::SeqCst) {
                    self.pass_time(start);
                }
                self.script.push_front(Step::ComputeUntilInterrupt);
                None
            }
            Some(Step::Interrupts(enabled)) => {
                self.enabled = enabled;
                None
            }
            Some(Step::HaltUntilInterrupt) => {
                if std::mem::take(&mut self.interrupted) {
                    return None;
                }
                self.halts += 1;
                self.script.push_front(Step::HaltUntilInterrupt);
                Some(Exit::Halt)
            }
            Some(Step::HaltUntilEnd) => {
                if std::mem::take(&mut self.halt_ended) {
                    return None;
                }
                self.halts += 1;
                self.script.push_front(Step::HaltUntilEnd);
                Some(Exit::Halt)
            }
            Some(Step::HaltWhenKicked) => {
                let start = Instant::now();
                while !self.kick.kicked.swap(false, Ordering::SeqCst) {
                    self.pass_time(start);
                }
                Some(Exit::Halt)
            }
            Some(Step::Fail | Step::Panic) => unreachable!("they do not come so far"),
        }
    }
}

impl Processor for Fake {
    fn run(&mut self) -> Result<Exit, cpu::Error> {
        loop {
            if self.kick.kicked.swap(false, Ordering::SeqCst) {
                return Ok(Exit::Kicked);
            }
            if self.enabled && std::mem::take(&mut self.window_wanted) {
                self.windows += 1;
                return Ok(Exit::InterruptWindow);
            }
            self.thread = Some(std::thread::current().id());
            match self.script.front() {
                Some(Step::Fail) => return Err(cpu::Error::MissingFeature("patience")),
                Some(Step::Panic) => panic!("a mistake that a test makes"),
                _ => {}
            }
            if let Some(exit) = self.step() {
                return Ok(exit);
            }
        }
    }

    fn complete_read(&mut self, value: u64) {
        self.said.push(Said::Read(value));
    }

    fn complete_write_msr(&mut self) {
        self.said.push(Said::MsrWritten);
    }

    fn fail_msr(&mut self) {
        self.said.push(Said::MsrFailed);
    }

    fn has_interrupts_enabled(&self) -> bool {
        self.enabled
    }

    fn can_inject_interrupt(&self) -> bool {
        self.enabled
    }

    fn inject_interrupt(&mut self, vector: u8) {
        assert!(self.enabled, "an interrupt while they are disabled");
        self.interrupted = true;
        self.said.push(Said::Interrupt(vector));
    }

    fn inject_nmi(&mut self) {
        self.said.push(Said::NonMaskable);
    }

    fn request_interrupt_window(&mut self, wanted: bool) {
        self.window_wanted = wanted;
    }

    fn tsc_offset(&self) -> u64 {
        0
    }

    fn initialize(&mut self) {
        self.said.push(Said::Initialized);
    }

    fn start_at(&mut self, page: u8) {
        self.said.push(Said::StartedAt(page));
    }

    fn end_halt(&mut self) {
        self.halt_ended = true;
        self.said.push(Said::HaltEnded);
    }

    fn forget_addresses(&mut self) {
        self.said.push(Said::AddressesForgotten);
    }

    fn leave_thread(&mut self) {}

    fn set_alarm(&mut self, after: Duration) -> Result<(), cpu::Error> {
        self.alarm = Some(Instant::now() + after);
        Ok(())
    }

    fn clear_alarm(&mut self) {
        self.alarm = None;
    }

    fn take_alarm(&mut self) -> bool {
        std::mem::take(&mut self.alarm_gone_off)
    }

    fn computed_elsewhere(&mut self) -> Duration {
        Duration::ZERO
    }

    fn save(&self) -> Vec<u8> {
        Vec::new()
    }

    fn restore(&mut self, _: &[u8], _: CounterShift) -> Result<(), Unfit> {
        Ok(())
    }

    fn describe(&self) -> String {
        "end of script".to_owned()
    }

    fn kick_handle(&self) -> Arc<dyn Kick> {
        Arc::clone(&self.kick) as Arc<dyn Kick>
    }
}

/// Where a test finds what the guest has sent.
#[derive(Clone, Default)]
struct Console(Arc<Mutex<Vec<u8>>>);

impl Console {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned()
    }
}

impl Write for Console {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct Bench {
    runner: Runner<Fake, Platform>,
    console: Console,
    memory: host::GuestMemory,
    _threads: Vec<Box<dyn Send>>,
}

impl Bench {
    /// The first processor.
    fn cpu(&mut self) -> &mut Fake {
        &mut self.runner.cpus[0]
    }
}

fn machine(script: impl IntoIterator<Item = Step>) -> Bench {
    build(vec![script.into_iter().collect()], None)
}

/// One script for each processor.
fn build(scripts: Vec<VecDeque<Step>>, input: Option<OwnedFd>) -> Bench {
    let cpus: Vec<_> =
        scripts.into_iter().map(|script| Fake { script, ..Fake::default() }).collect();
    let clock = Arc::new(HostClock::new());
    let memory = host::GuestMemory::new(&[(0, MEMORY_BYTES)]).unwrap();
    let wakers: Vec<_> = cpus.iter().map(|cpu| Waker::new(cpu.kick_handle())).collect();
    let config = platform::Config {
        processors: cpus.len(),
        tsc: Hertz(u64::from(clock.tsc_khz()) * 1000),
        memory_bytes: MEMORY_BYTES,
        maximum_bytes: MEMORY_BYTES,
        firmware_bytes: 0,
    };
    let surroundings = platform::Surroundings {
        clock: Arc::clone(&clock) as Arc<dyn Clock>,
        memory: Arc::new(memory.map().clone()),
        wake: Arc::new(Wakers(wakers.clone())),
    };
    let mut platform = Platform::new(config, surroundings).unwrap();
    let console = Console::default();
    let line = SerialBackend { input, output: Some(Box::new(console.clone())) };
    let devices: Devices = vec![
        Box::new(Serial::first(line)),
        Box::new(Serial::second(SerialBackend::default())),
        Box::new(DebugExit),
    ];
    let group = cpu::VcpuGroup::in_memory(&memory).unwrap();
    let device_memory = crate::device_memory::DeviceMemory::new(&memory, &group);
    let mut slots = Slots::new(&mut platform, &device_memory, &memory, None);
    devices.into_iter().for_each(|device| device.plug_in(&mut slots).unwrap());
    let Plugged { threads, polled, .. } = slots.plugged;
    let runner = Runner::new(cpus, platform, polled, clock, wakers).unwrap();
    Bench { runner, console, memory, _threads: threads }
}

fn write(port: u16, value: u32) -> Step {
    Step::Exit(Exit::IoWrite { port, size: 1, value })
}

fn wrmsr(index: u32, value: u64) -> Step {
    Step::Exit(Exit::MsrWrite { index, value })
}

/// The local APIC in x2APIC mode, enabled, with its timer at `vector` in one-shot mode, to go off
/// after `ticks` (SDM 3A 12.12.1).
fn timer(vector: u8, ticks: u64) -> Vec<Step> {
    vec![
        wrmsr(0x1b, 0xfee0_0d00),
        wrmsr(0x80f, 0x1ff),
        wrmsr(0x832, u64::from(vector)),
        wrmsr(0x83e, 0b1011),
        wrmsr(0x838, ticks),
    ]
}

fn check(script: Vec<Step>, outcome: &Outcome, said: &[Said]) {
    let mut bench = machine(script);
    assert_eq!(bench.runner.run().unwrap(), *outcome);
    assert_eq!(bench.cpu().said, said);
}

fn end_of_script() -> Outcome {
    Outcome::TripleFault("end of script".to_owned())
}

#[test]
fn a_shutdown_is_a_triple_fault_with_the_processors_state() {
    check(vec![], &end_of_script(), &[]);
}

#[test]
fn reads_are_answered_once() {
    // Nothing is at port 0x999 or below the I/O APIC: reads of nothing give ones.
    let port = Step::Exit(Exit::IoRead { port: 0x999, size: 1 });
    let mmio = Step::Exit(Exit::MmioRead { address: 0xd000_0000, size: 4 });
    check(vec![port, mmio], &end_of_script(), &[Said::Read(0xff), Said::Read(0xffff_ffff)]);
}

#[test]
fn registers_that_do_not_exist_fail() {
    let read = Step::Exit(Exit::MsrRead { index: 0x1234_5678 });
    check(
        vec![read, wrmsr(0x1234_5678, 0), wrmsr(0x1b, 0xfee0_0d00)],
        &end_of_script(),
        &[Said::MsrFailed, Said::MsrFailed, Said::MsrWritten],
    );
}

#[test]
fn the_debug_exit_port_gives_the_status() {
    check(vec![write(0xf4, 0x10)], &Outcome::DebugExit(0x21), &[]);
}

#[test]
fn the_reset_port_resets() {
    check(vec![write(0xcf9, 0x06)], &Outcome::Reset, &[]);
}

#[test]
fn what_the_guest_sends_arrives_though_it_never_exits_again() {
    let mut bench = machine([write(0x3f8, 'h'.into()), write(0x3f8, 'i'.into()), Step::Compute]);
    let console = bench.console.clone();
    // The alarm that passes the bytes on is what ends the computation.
    bench.cpu().script.push_back(Step::Exit(Exit::Kicked));
    bench.cpu().script.push_back(write(0xf4, 0));
    bench.runner.run().unwrap();
    assert_eq!(console.text(), "hi");
}

#[test]
fn a_timer_interrupts_a_guest_that_computes() {
    let mut script = timer(0x40, 10_000);
    script.extend([Step::Interrupts(true), Step::Compute]);
    let mut bench = machine(script);
    bench.runner.run().unwrap();
    assert_eq!(bench.cpu().said.last(), Some(&Said::Interrupt(0x40)));
}

/// The next instruction would end the machine; no thread but the processor's has had a turn.
#[test]
fn a_timer_that_is_due_when_it_is_set_interrupts_at_once() {
    let deadline = vec![
        wrmsr(0x1b, 0xfee0_0d00),
        wrmsr(0x80f, 0x1ff),
        wrmsr(0x832, 0x4_0040),
        wrmsr(0x6e0, 1),
    ];
    for mut script in [timer(0x40, 1), timer(0x40, 1000), deadline] {
        script.insert(0, Step::Interrupts(true));
        let mut bench = machine(script);
        assert_eq!(bench.runner.run().unwrap(), end_of_script());
        assert_eq!(bench.cpu().said.last(), Some(&Said::Interrupt(0x40)));
    }
}

#[test]
fn a_timer_wakes_a_guest_that_sleeps_and_only_then() {
    let mut script = timer(0x41, 30_000_000);
    script.extend([Step::Interrupts(true), Step::HaltUntilInterrupt]);
    let mut bench = machine(script);
    let start = Instant::now();
    assert_eq!(bench.runner.run().unwrap(), end_of_script());
    assert!(start.elapsed() >= Duration::from_millis(30), "{:?}", start.elapsed());
    assert_eq!(bench.cpu().said.last(), Some(&Said::Interrupt(0x41)));
    let halts = bench.cpu().halts;
    assert!(halts <= 5, "woken {halts} times");
}

#[test]
fn an_interrupt_waits_for_its_window() {
    let mut script = timer(0x42, 1);
    script.extend([Step::Interrupts(true), Step::HaltUntilInterrupt]);
    let mut bench = machine(script);
    bench.runner.run().unwrap();
    assert_eq!(bench.cpu().said.last(), Some(&Said::Interrupt(0x42)));
    assert_eq!(bench.cpu().windows, 1);
}

#[test]
fn a_halt_for_ever_costs_nothing_and_can_be_stopped() {
    // An interrupt is pending all the time, but the guest does not take any: `cli; hlt`.
    let mut script = timer(0x43, 1);
    script.extend([Step::Compute, Step::HaltUntilInterrupt]);
    let mut bench = machine(script);
    let control = bench.runner.control();
    let other = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(100));
        control.stop();
    });
    assert_eq!(bench.runner.run().unwrap(), Outcome::Stopped);
    other.join().unwrap();
    let halts = bench.cpu().halts;
    assert!(halts <= 5, "woken {halts} times");
}

#[test]
fn a_guest_that_computes_for_ever_can_be_stopped() {
    let mut bench = machine([Step::Compute]);
    let control = bench.runner.control();
    let other = std::thread::spawn(move || {
        control.stop();
    });
    assert_eq!(bench.runner.run().unwrap(), Outcome::Stopped);
    other.join().unwrap();
}

#[test]
fn input_wakes_a_guest_that_sleeps() {
    let (from, mut to) = io::pipe().unwrap();
    // The guest's driver: the I/O APIC's input 4 to vector 0x44, FIFOs and the receive interrupt on.
    let redirect = |register: u64, value: u64| {
        [(0xfec0_0000, register), (0xfec0_0010, value)]
            .map(|(address, value)| Step::Exit(Exit::MmioWrite { address, size: 4, value }))
    };
    let mut script = timer(0x45, 0);
    script.extend(redirect(0x10 + 2 * 4 + 1, 0));
    script.extend(redirect(0x10 + 2 * 4, 0x44));
    script.extend([write(0x3fa, 0x07), write(0x3fc, 0x0b), write(0x3f9, 0x01)]);
    script.extend([Step::Interrupts(true), Step::HaltUntilInterrupt]);
    script.push(Step::Exit(Exit::IoRead { port: 0x3f8, size: 1 }));
    let mut bench = build(vec![script.into()], Some(from.into()));
    let typist = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(50));
        to.write_all(b"x").unwrap();
        to
    });
    assert_eq!(bench.runner.run().unwrap(), end_of_script());
    let said = &bench.runner.cpus[0].said;
    assert_eq!(said[said.len() - 2..], [Said::Interrupt(0x44), Said::Read('x'.into())]);
    typist.join().unwrap();
}
