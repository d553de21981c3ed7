//! The machine without its processors: everything that a processor reaches by leaving its own
//! registers and memory.
//!
//! A processor's loop, in outline:
//!
//! ```text
//! loop {
//!     if platform.next_deadline() has come { platform.advance(); }
//!     if let Some(request) = platform.take_request() { ... }
//!     if platform.pending_interrupt(0) {
//!         if the processor can take one { inject(platform.acknowledge(0)) }
//!         else { ask it to come back when it can }
//!     }
//!     match run the processor {
//!         IoRead { port, size } => answer(platform.port_read(port, size)),
//!         Halt => sleep until next_deadline() or woken,
//!         ...
//!     }
//! }
//! ```

mod memory_mapped;
mod model_specific;
mod ports;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use vm_memory::GuestAddress;

use crate::bus::{self, Mmio, MmioDevice, PortDevice, Ports, Width};
use crate::interrupts::{Interrupts, Line, Message, StartUp, Wake};
use crate::layout::{APIC_BYTES, DEVICE_HOLE, HIGH_MEMORY, IO_APIC, irq};
use crate::limits::MAX_PROCESSORS;
use crate::memory::Memory;
use crate::paravirtual::ParavirtualClock;
use crate::power::{Keyboard, Power};
use crate::request::{Request, Requests};
use crate::time::{Clock, Hertz, Nanoseconds};
use crate::timers::{Pit, Rtc};
use ports::Target;

/// What distinguishes one platform from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// Processors; their APIC ids are 0 and up.
    pub processors: usize,
    /// Frequency of the guest's time-stamp counter.
    pub tsc: Hertz,
    /// Bytes of RAM.
    pub memory_bytes: u64,
}

/// Why there is no platform.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// None, or more than can be addressed.
    #[error("a machine has 1 to {MAX_PROCESSORS} processors, not {0}")]
    Processors(usize),
    /// The built-in devices are in each other's way: our own mistake.
    #[error(transparent)]
    Bus(#[from] bus::Error),
}

/// What the platform is given by whoever runs it.
#[derive(Clone)]
pub struct Surroundings {
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Guest memory.
    pub memory: Arc<dyn Memory>,
    /// Brings a processor to look for interrupts.
    pub wake: Arc<dyn Wake>,
}

/// Everything but processors, memory and what is plugged in.
pub struct Platform {
    config: Config,
    clock: Arc<dyn Clock>,
    memory: Arc<dyn Memory>,
    interrupts: Interrupts,
    ports: Ports<Target>,
    port_devices: Vec<Box<dyn PortDevice>>,
    mmio: Mmio,
    pit: Pit,
    rtc: Rtc,
    power: Power,
    keyboard: Keyboard,
    paravirtual_clock: ParavirtualClock,
    requests: Requests,
    /// When the first of all timers has something to do.
    deadline: Nanoseconds,
}

impl Platform {
    /// A platform that has just been switched on.
    ///
    /// # Errors
    ///
    /// [`Error`] when the configuration makes no sense.
    pub fn new(config: Config, surroundings: Surroundings) -> Result<Self, Error> {
        if !(1..=MAX_PROCESSORS).contains(&config.processors) {
            return Err(Error::Processors(config.processors));
        }
        let Surroundings { clock, memory, wake } = surroundings;
        let (requests, now) = (Requests::default(), clock.now());
        let mut platform = Self {
            config,
            interrupts: Interrupts::new(config.processors, config.tsc, wake),
            ports: Ports::default(),
            port_devices: Vec::new(),
            mmio: Mmio::default(),
            pit: Pit::default(),
            rtc: Rtc::default(),
            power: Power::new(requests.clone(), now),
            keyboard: Keyboard::new(requests.clone()),
            paravirtual_clock: ParavirtualClock::new(config.processors, config.tsc, now),
            requests,
            deadline: Nanoseconds::NEVER,
            clock,
            memory,
        };
        platform.claim_own_ports()?;
        platform.describe_memory();
        Ok(platform)
    }

    /// Plug in a device that is reached through `count` ports from `first` on.
    ///
    /// # Errors
    ///
    /// [`bus::Error`] when the ports are taken.
    pub fn add_port_device(
        &mut self,
        name: &'static str,
        first: u16,
        count: u16,
        width: Width,
        device: Box<dyn PortDevice>,
    ) -> Result<(), bus::Error> {
        let target = Target::Plugged(self.port_devices.len() as u8);
        self.ports.claim(name, first, count, width, target)?;
        self.port_devices.push(device);
        Ok(())
    }

    /// Plug in a device that is reached through `size` bytes of addresses from `start` on.
    ///
    /// # Errors
    ///
    /// [`bus::Error`] when the addresses are taken.
    pub fn add_mmio_device(
        &mut self,
        name: &'static str,
        start: GuestAddress,
        size: u64,
        device: Box<dyn MmioDevice>,
    ) -> Result<(), bus::Error> {
        let end = start.0.saturating_add(size);
        if start.0 < IO_APIC.0 + APIC_BYTES && end > IO_APIC.0 {
            return Err(bus::Error::Taken { name, address: IO_APIC.0, other: "I/O APIC" });
        }
        self.mmio.register(name, start, size, device)
    }

    /// The device's end of an interrupt input (see [`irq`]).
    pub fn line(&self, input: u8) -> Line {
        self.interrupts.line(input)
    }

    /// Where devices leave what the guest asks for.
    pub fn requests(&self) -> Requests {
        self.requests.clone()
    }

    /// What the guest has asked for, once.
    #[inline]
    pub fn take_request(&mut self) -> Option<Request> {
        self.requests.take()
    }

    /// Everything as after power-on; devices stay plugged in, the clock keeps the time.
    pub fn reset(&mut self) {
        let now = self.clock.now();
        self.port_devices.iter_mut().for_each(|device| device.reset());
        self.mmio.reset();
        self.pit = Pit::default();
        self.rtc.reset();
        self.power = Power::new(self.requests.clone(), now);
        self.keyboard = Keyboard::new(self.requests.clone());
        self.paravirtual_clock.reset(now);
        self.requests.take();
        self.drive_own_lines();
        self.interrupts.reset();
        self.reschedule();
    }

    // Interrupts, as the processor's loop sees them.

    /// Whether an interrupt is to be delivered, if the processor can take one.
    #[inline]
    pub fn has_interrupt(&mut self, processor: usize) -> bool {
        self.interrupts.pending(processor).is_some()
    }

    /// The interrupt acknowledge cycle: the vector to deliver, which is in service from now on.
    #[inline]
    pub fn acknowledge(&mut self, processor: usize) -> Option<u8> {
        self.interrupts.acknowledge(processor)
    }

    /// A non-maskable interrupt to deliver, once.
    #[inline]
    pub fn take_nmi(&mut self, processor: usize) -> bool {
        self.interrupts.local(processor).is_some_and(|local| local.take_non_maskable())
    }

    /// INIT and the start-up message, each once.
    pub fn take_start_up(&mut self, processor: usize) -> Option<StartUp> {
        self.interrupts.local(processor)?.take_start_up()
    }

    /// Deliver an interrupt message of a device.
    pub fn send_message(&mut self, message: &Message) {
        self.interrupts.send(message);
        self.interrupts.wake_others(usize::MAX);
    }

    /// CR8.
    #[inline]
    pub fn tpr_read(&mut self, processor: usize) -> u8 {
        self.interrupts.local(processor).map_or(0, |local| local.task_priority_class())
    }

    /// CR8: bits 3:0 of `class` count.
    #[inline]
    pub fn tpr_write(&mut self, processor: usize, class: u8) {
        if let Some(local) = self.interrupts.local(processor) {
            local.set_task_priority_class(class & 0xf);
        }
    }

    // Time.

    /// When [`Self::advance`] next has something to do.
    #[inline]
    pub fn next_deadline(&self) -> Option<Nanoseconds> {
        self.deadline.as_deadline()
    }

    /// Do what is due at `now`; cheap when nothing is.
    #[inline]
    pub fn advance(&mut self, now: Nanoseconds) {
        if now >= self.deadline {
            self.expire(now);
        }
    }

    /// What the guest has added to a processor's time-stamp counter (IA32_TSC, IA32_TSC_ADJUST).
    pub fn set_tsc_offset(&mut self, processor: usize, offset: u64) {
        if let Some(local) = self.interrupts.local(processor) {
            local.set_tsc_offset(offset);
        }
    }

    /// Push the power button: a guest that handles it shuts down.
    pub fn press_power_button(&mut self) {
        self.power.press_button();
        self.drive_own_lines();
    }

    fn expire(&mut self, now: Nanoseconds) {
        self.interrupts.advance(now);
        if self.pit.advance(now) {
            self.interrupts.pulse_input(irq::PIT);
        }
        if now >= self.rtc.next_deadline() {
            self.rtc.advance(&*self.clock);
        }
        if now >= self.power.next_deadline() {
            self.power.advance(now);
        }
        self.drive_own_lines();
        self.reschedule();
        self.interrupts.wake_others(0);
    }

    /// The clock's and the power block's lines follow their state.
    fn drive_own_lines(&mut self) {
        self.interrupts.set_input(irq::RTC, self.rtc.interrupts());
        self.interrupts.set_input(irq::SCI, self.power.interrupts());
    }

    /// To be called whenever a timer was armed.
    #[inline]
    fn reschedule(&mut self) {
        let chips = self.pit.next_deadline().min(self.rtc.next_deadline());
        let power = self.power.next_deadline();
        self.deadline = self.interrupts.next_deadline().min(chips).min(power);
    }

    /// The sizes that firmware leaves in the clock's memory (QEMU, hw/i386/pc.c).
    fn describe_memory(&mut self) {
        let low = self.config.memory_bytes.min(DEVICE_HOLE.0);
        let high = self.config.memory_bytes - low;
        let conventional = [0x15, 0x16];
        let extended = [0x17, 0x18, 0x30, 0x31];
        let above_16m = [0x34, 0x35];
        let above_4g = [0x5b, 0x5c, 0x5d];
        let kib = (low.saturating_sub(HIGH_MEMORY.0) >> 10).min(0xffff) as u16;
        let chunks = (low.saturating_sub(16 << 20) >> 16).min(0xffff) as u16;
        let bytes = |value: u64| (0..8).map(move |n| (value >> (8 * n)) as u8);
        let kib_twice = u64::from(kib) << 16 | u64::from(kib);
        let all = conventional.into_iter().zip(bytes(640));
        let all = all.chain(extended.into_iter().zip(bytes(kib_twice)));
        let all = all.chain(above_16m.into_iter().zip(bytes(chunks.into())));
        for (at, value) in all.chain(above_4g.into_iter().zip(bytes(high >> 16))) {
            self.rtc.set_memory(at, value);
        }
    }
}
