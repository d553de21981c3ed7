//! What the targets share: those that drive devices a platform with everything plugged in, and a guest that does what
//! the input says; those that read archives, archives.

#![forbid(unsafe_code)]

pub mod domain;
pub mod forms;
mod mail;
mod pages;
pub mod ring;
mod screen;
pub mod tape;
mod wire;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use devices::serial::{ComPort, Input};
use devices::virtio::balloon::Balloon;
use devices::virtio::block::Block;
use devices::virtio::console::Console;
use devices::virtio::entropy::Entropy;
use devices::virtio::network::{self, Network};
use devices::virtio::socket::Socket;
use devices::virtio::{Device, Doorbell, Shared, Transport};
use devices::{DebugConsole, DebugExit, FwCfg, Post, Serial};
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use machine::layout::port;
use machine::saved::CounterShift;
use machine::time::{Clock, Hertz, ManualClock, Nanoseconds};
use machine::{Backplane, Board, BoardVcpu, Platform, Wake, platform};
use vm_memory::{GuestAddress, GuestMemoryMmap};

use disk::Disk;

mod disk;

const TSC: Hertz = Hertz(2_500_000_000);
const MEMORY_BYTES: u64 = 64 << 10;
const LOCAL_APIC: u64 = 0xfee0_0000;
const IO_APIC: u64 = 0xfec0_0000;
const PROCESSORS: usize = 2;

/// More jobs than a disk has at a time.
const ROUNDS: usize = 1000;

/// A range of ports that a device decodes.
pub type Ports = std::ops::Range<u16>;

/// What a guest, a device's other end, or time does.
#[derive(Debug, Clone, Arbitrary)]
pub enum Step {
    PortRead { port: u16, size: u8 },
    PortWrite { port: u16, size: u8, value: u32 },
    LocalRead { offset: u16, size: u8 },
    LocalWrite { offset: u16, size: u8, value: u32 },
    IoRead { offset: u8, size: u8 },
    IoWrite { offset: u8, size: u8, value: u32 },
    PciRead { at: u32, size: u8 },
    PciWrite { at: u32, size: u8, value: u64 },
    Serve,
    FinishJob { last: bool },
    MsrRead { index: u8 },
    MsrWrite { index: u8, value: u64 },
    Acknowledge,
    TaskPriority { class: u8 },
    Line { input: u8, level: bool },
    Receive { bytes: Vec<u8> },
    Store { address: u16, value: u64 },
    Pass { nanoseconds: u64 },
    PowerButton,
    OtherProcessor,
    Reset,
    GoOn { changes: Vec<(u16, u8)> },
}

struct Nobody;

impl Wake for Nobody {
    fn wake(&self, _processor: usize) {}
}

/// A doorbell that is answered when a step says so.
#[derive(Default)]
struct Rung(AtomicU64);

impl Doorbell for Rung {
    fn ring(&self, queue: usize) {
        self.0.fetch_or(1 << queue, Ordering::SeqCst);
    }
}

struct Bench {
    platform: Platform,
    clock: Arc<ManualClock>,
    memory: Arc<GuestMemoryMmap>,
    com1: Input,
    virtio: Vec<(Arc<Shared>, Arc<Rung>)>,
    disk: Disk,
    processor: usize,
}

impl Bench {
    fn new() -> Self {
        let clock = Arc::new(ManualClock::new(TSC, Duration::from_secs(1_800_000_000)));
        let ranges = [(GuestAddress(0), MEMORY_BYTES as usize)];
        let memory = Arc::new(GuestMemoryMmap::from_ranges(&ranges).expect("some memory"));
        Self::over(clock, memory)
    }

    /// The same with this clock and this memory.
    fn over(clock: Arc<ManualClock>, memory: Arc<GuestMemoryMmap>) -> Self {
        let config = platform::Config {
            processors: PROCESSORS,
            tsc: TSC,
            memory_bytes: MEMORY_BYTES,
            maximum_bytes: MEMORY_BYTES,
            firmware_bytes: 0,
        };
        let surroundings = platform::Surroundings {
            clock: Arc::clone(&clock) as _,
            memory: Arc::clone(&memory) as _,
            wake: Arc::new(Nobody),
        };
        let mut platform = Platform::new(config, surroundings).expect("a sensible configuration");
        let output = Box::new(std::io::sink());
        let com1 = Serial::plug_into(&mut platform, ComPort::Com1, output).expect("its ports");
        DebugExit::plug_into(&mut platform).expect("its ports");
        let output = Box::new(std::io::sink());
        DebugConsole::plug_into(&mut platform, port::DEBUG_CONSOLE, output).expect("its port");
        Post::plug_into(&mut platform).expect("its port");
        let fw_cfg = FwCfg::new(Arc::clone(&memory) as _, 1, MEMORY_BYTES);
        fw_cfg.plug_into(&mut platform).expect("its ports");
        let disk = Disk::default();
        let settings = network::Settings { address: [2; 6], mtu: Some(9000), pairs: 2 };
        let devices: [Box<dyn Device>; 6] = [
            Box::new(Entropy::new(Box::new(|_| true))),
            Box::new(Block::new(Box::new(disk.clone()), PROCESSORS)),
            Box::new(Network::new(Box::new(wire::Wire::new(&memory)), settings)),
            Box::new(Console::new(Box::new(screen::Screen::default()))),
            Box::new(Balloon::new(Box::new(pages::Pages::default()))),
            Box::new(Socket::new(3, Box::new(mail::Mail::default()))),
        ];
        let virtio = devices.map(|device| {
            let rung = Arc::new(Rung::default());
            let (its_memory, its_rung) = (Arc::clone(&memory) as _, Arc::clone(&rung) as _);
            let sender = platform.message_sender().expect("it has a PCI bus");
            let transport = Transport::new(device, its_memory, its_rung, sender);
            let shared = transport.shared();
            transport.plug_into(&mut platform).expect("a slot");
            (shared, rung)
        });
        let virtio = virtio.into();
        Self { platform, clock, memory, com1, virtio, disk, processor: 0 }
    }

    fn take(&mut self, step: Step, within: Option<&Ports>) {
        let mut vcpu = self.platform.vcpu(self.processor);
        let place = |port: u16| match within {
            Some(ports) => ports.start + port % (ports.end - ports.start),
            None => port,
        };
        let local = |offset: u16| GuestAddress(LOCAL_APIC + u64::from(offset & 0xfff));
        let io = |offset: u8| GuestAddress(IO_APIC + u64::from(offset & 0x7f));
        match step {
            Step::PortRead { port, size } => drop(vcpu.port_read(place(port), size)),
            Step::PortWrite { port, size, value } => vcpu.port_write(place(port), size, value),
            Step::LocalRead { offset, size } => {
                vcpu.mmio_read(local(offset), size);
            }
            Step::LocalWrite { offset, size, value } => {
                vcpu.mmio_write(local(offset), size, value.into());
            }
            Step::IoRead { offset, size } => drop(vcpu.mmio_read(io(offset), size)),
            Step::IoWrite { offset, size, value } => {
                vcpu.mmio_write(io(offset), size, value.into());
            }
            Step::PciRead { at, size } => drop(vcpu.mmio_read(pci(at), size)),
            Step::PciWrite { at, size, value } => vcpu.mmio_write(pci(at), size, value),
            Step::MsrRead { index } => drop(vcpu.msr_read(msr(index))),
            Step::MsrWrite { index, value } => {
                let _ = vcpu.msr_write(msr(index), value);
            }
            step => {
                drop(vcpu);
                self.take_rest(step);
            }
        }
    }

    fn take_rest(&mut self, step: Step) {
        let (platform, processor) = (&self.platform, self.processor);
        match step {
            Step::Acknowledge => {
                let mut vcpu = platform.vcpu(processor);
                let waiting = vcpu.has_interrupt();
                assert_eq!(vcpu.acknowledge().is_some(), waiting);
                vcpu.take_nmi();
                vcpu.take_start_up();
            }
            Step::TaskPriority { class } => {
                let mut vcpu = platform.vcpu(processor);
                vcpu.tpr_write(class);
                assert_eq!(vcpu.tpr_read(), class & 0xf);
            }
            Step::Line { input, level } => platform.line(input).set_and_wake(level),
            Step::Receive { bytes } => drop(self.com1.offer(&bytes)),
            Step::Store { address, value } => {
                let _ =
                    vm_memory::Bytes::write_obj(&*self.memory, value, GuestAddress(address.into()));
            }
            Step::Pass { nanoseconds } => self.clock.advance(Nanoseconds(nanoseconds >> 12)),
            Step::Serve => self.serve(),
            Step::FinishJob { last } => {
                self.disk.finish(&*self.memory, last);
                (0..PROCESSORS).for_each(|queue| {
                    self.virtio.iter().for_each(|(_, rung)| rung.ring(queue));
                });
            }
            Step::PowerButton => platform.press_power_button(),
            Step::OtherProcessor => self.processor = (processor + 1) % PROCESSORS,
            Step::Reset => {
                // A reset of the machine waits for what is under way.
                while self.disk.finish(&*self.memory, false) {}
                platform.reset();
            }
            Step::GoOn { changes } => self.go_on(&changes),
            _ => {}
        }
    }

    /// Let another machine go on from the state of this one, in which some bytes were changed; if that makes
    /// no sense, this one does.
    fn go_on(&mut self, changes: &[(u16, u8)]) {
        // Nothing is under way then, and no request waits that would be.
        for _ in 0..ROUNDS {
            self.virtio.iter().for_each(|(device, _)| device.serve(u64::MAX));
            if !self.disk.finish(&*self.memory, false) {
                break;
            }
        }
        let Some((shared, own)) = changed(&self.platform, PROCESSORS, changes) else { return };
        let other = Self::over(Arc::clone(&self.clock), Arc::clone(&self.memory));
        let shift = CounterShift::new(1, 0, true);
        if other.platform.restore(&shared, &own, shift).is_ok() {
            *self = Self { processor: self.processor, ..other };
        }
    }

    fn serve(&self) {
        self.virtio
            .iter()
            .for_each(|(device, rung)| device.serve(rung.0.swap(0, Ordering::SeqCst)));
        // Only the disk leaves something for later.
        let again = self.disk.take_again();
        self.virtio.iter().for_each(|(_, rung)| {
            rung.0.fetch_or(again, Ordering::SeqCst);
        });
    }

    /// What must hold whatever the guest does.
    fn check(&mut self) {
        let now = self.clock.now();
        for processor in 0..PROCESSORS {
            let mut vcpu = self.platform.vcpu(processor);
            vcpu.advance(now);
            assert!(vcpu.next_deadline().is_none_or(|deadline| deadline > now));
        }
        self.platform.requests().take();
    }
}

/// What a board and its processors save, with some bytes changed; none if it cannot now.
fn changed(
    board: &impl Board,
    processors: usize,
    changes: &[(u16, u8)],
) -> Option<(Vec<u8>, Vec<Vec<u8>>)> {
    let mut shared = board.vcpu(0).save_shared().ok()?;
    let mut own: Vec<_> = (0..processors).map(|number| board.vcpu(number).save_own()).collect();
    board.vcpu(0).thaw();
    for (at, value) in changes {
        let states = [&mut shared].into_iter().chain(&mut own);
        let mut bytes: Vec<_> = states.flat_map(|state| state.iter_mut()).collect();
        let place = usize::from(*at) % bytes.len();
        *bytes[place] ^= value;
    }
    Some((shared, own))
}

/// Configuration space of the first functions, or the start of the window.
fn pci(at: u32) -> GuestAddress {
    let within = u64::from(at & 0xf_ffff);
    GuestAddress(if at >> 31 == 0 {
        0xe000_0000 + (within & 0x1_ffff)
    } else {
        0xd000_0000 + within
    })
}

/// The platform's registers and some beside them.
fn msr(index: u8) -> u32 {
    match index {
        0..=0xf6 => 0x800 + u32::from(index),
        0xf8 => 0x1b,
        0xf9 => 0x6e0,
        0xfa => 0x11,
        0xfb => 0x12,
        0xfc => 0x4b56_4d00,
        0xfd => 0x4b56_4d01,
        0xf7 => 0x4b56_4d03,
        0xfe => 0x4b56_4d04,
        0xff => 0x10,
    }
}

/// Take all steps; port accesses go to `within`, or anywhere.
pub fn drive(steps: Vec<Step>, within: Option<Ports>) {
    let mut bench = Bench::new();
    for step in steps {
        // An instant so late that adding to it saturates is beyond what a machine lives to see.
        if bench.clock.now().0 > 1 << 60 {
            return;
        }
        bench.take(step, within.as_ref());
        bench.check();
    }
}
