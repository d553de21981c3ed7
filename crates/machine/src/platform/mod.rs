//! The machine without its processors: everything that a processor reaches by leaving its own
//! registers and memory.
//!
//! This is the PC with KVM's interface, the first [`Board`].
//!
//! # Locks
//!
//! In this order: a processor's own part (held by its thread as long as it runs), then the chip
//! set, then what a device locks for itself. The paravirtual clock is locked last, and nothing under
//! it. Messages between processors, interrupt lines and [`Requests`] need no lock.

mod chipset;
mod ports;
mod saved;
pub use saved::has_clock;
#[cfg(test)]
mod tests;
mod vcpu;

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use locks::Unpoisoned;

use crate::board::{Backplane, Board, Hypervisor};
pub use crate::board::{Config, Error, Surroundings};
use crate::bus::{self, PortDevice, Width};
use crate::interrupts::{Controllers, Inputs, Line, LineStates, LocalApic, Message, Router};
use crate::limits::MAX_PROCESSORS;
use crate::memory::Memory;
use crate::paravirtual::{self, MachineClock};
use crate::pci::{self, MessageSender};
use crate::request::Requests;
use crate::saved::{CounterShift, Unfit};
use crate::time::{Clock, Nanoseconds};
use chipset::Chipset;
use ports::Target;
use vcpu::Local;
pub use vcpu::PcVcpu;

/// Everything but processors, memory and what is plugged in.
pub struct Platform {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) memory: Arc<dyn Memory>,
    pub(crate) paravirtual_clock: Mutex<MachineClock>,
    router: Arc<Router>,
    lines: Arc<LineStates>,
    locals: Vec<Mutex<Local>>,
    chipset: Mutex<Chipset>,
    /// When the first of the chip set's timers has something to do.
    deadline: AtomicU64,
    requests: Requests,
}

impl Platform {
    /// Deliver an interrupt message of a device, from any thread.
    pub fn send_message(&self, message: &Message) {
        self.router.send(message, None);
    }

    /// Push the power button: a guest that handles it shuts down.
    pub fn press_power_button(&self) {
        self.press_button_by(None);
    }

    fn press_button_by(&self, user: Option<usize>) {
        self.with_chipset(user, |chipset| {
            chipset.power.press_button();
            chipset.drive_own_lines();
        });
    }

    /// When the chip set next has something to do.
    #[inline]
    fn deadline(&self) -> Nanoseconds {
        Nanoseconds(self.deadline.load(Ordering::Acquire))
    }

    /// Use the chip set, on the thread of the processor `user` if it is one's.
    #[inline]
    fn with_chipset<R>(&self, user: Option<usize>, act: impl FnOnce(&mut Chipset) -> R) -> R {
        let mut chipset = self.chipset.lock().unpoisoned();
        chipset.controllers.user = user;
        let result = act(&mut chipset);
        chipset.controllers.synchronize();
        let (old, new) = (self.deadline(), chipset.next_deadline());
        if old != new {
            self.deadline.store(new.0, Ordering::Release);
        }
        drop(chipset);
        if new < old && user != Some(0) {
            // It is the first processor that looks after these timers.
            self.router.wake(0);
        }
        result
    }
}

impl Backplane for Platform {
    fn processors(&self) -> usize {
        self.locals.len()
    }

    fn add_port_device(
        &mut self,
        name: &'static str,
        first: u16,
        count: u16,
        width: Width,
        device: Box<dyn PortDevice>,
    ) -> Result<(), bus::Error> {
        let mut chipset = self.chipset.lock().unpoisoned();
        let target = Target::Plugged(chipset.port_devices.len() as u8);
        chipset.ports.claim(name, first, count, width, target)?;
        chipset.port_devices.push(device);
        Ok(())
    }

    fn add_pci_function(&mut self, function: Box<dyn pci::Function>) -> Result<u8, pci::Error> {
        self.chipset.lock().unpoisoned().pci.plug_in(function)
    }

    fn message_sender(&self) -> Result<MessageSender, pci::Error> {
        Ok(MessageSender::new(&self.router))
    }

    fn line(&self, input: u8) -> Line {
        Line::new(&self.lines, input)
    }

    fn requests(&self) -> Requests {
        self.requests.clone()
    }
}

impl Board for Platform {
    type Vcpu<'a> = PcVcpu<'a>;

    const HAS_FIRMWARE: bool = true;
    const MSRS: &'static [RangeInclusive<u32>] = &vcpu::MSRS;
    const HYPERVISOR: Option<Hypervisor> = Some(paravirtual::HYPERVISOR);

    fn new(config: Config, surroundings: Surroundings) -> Result<Self, Error> {
        if !(1..=MAX_PROCESSORS).contains(&config.processors) {
            return Err(Error::Processors(config.processors));
        }
        let Surroundings { clock, memory, wake } = surroundings;
        let (requests, now) = (Requests::default(), clock.now());
        let router = Arc::new(Router::new(config.processors, Arc::clone(&wake)));
        let inputs = Inputs::new(wake);
        let lines = Arc::clone(inputs.states());
        let controllers = Controllers::new(Arc::clone(&router), inputs);
        let mut chipset = Chipset::new(Arc::clone(&clock), controllers, requests.clone());
        chipset.claim_own_ports()?;
        chipset.describe_memory(&config);
        let local = |processor| Local {
            apic: LocalApic::new(Arc::clone(router.mailbox(processor)), config.tsc),
            paravirtual: paravirtual::Processor::default(),
        };
        Ok(Self {
            paravirtual_clock: Mutex::new(MachineClock::new(now)),
            lines,
            locals: (0..config.processors).map(|number| Mutex::new(local(number))).collect(),
            deadline: AtomicU64::new(chipset.next_deadline().0),
            chipset: Mutex::new(chipset),
            router,
            requests,
            clock,
            memory,
        })
    }

    fn vcpu(&self, number: usize) -> PcVcpu<'_> {
        PcVcpu { platform: self, number, local: self.locals[number].lock().unpoisoned() }
    }

    /// As a PC's firmware: the 8259s at vectors 08h and 70h, the PIT ticking (PC/AT BIOS).
    fn initialize_as_firmware(&self) {
        self.with_chipset(None, Chipset::initialize_as_firmware);
    }

    fn reset(&self) {
        *self.paravirtual_clock.lock().unpoisoned() = MachineClock::new(self.clock.now());
        for local in &self.locals {
            let mut local = local.lock().unpoisoned();
            local.apic.reset();
            local.paravirtual = paravirtual::Processor::default();
        }
        self.with_chipset(None, Chipset::reset);
        self.requests.take();
    }

    fn restore(
        &self,
        shared: &[u8],
        processors: &[Vec<u8>],
        shift: CounterShift,
    ) -> Result<(), Unfit> {
        self.restore_chipset(shared, processors, shift)
    }
}
