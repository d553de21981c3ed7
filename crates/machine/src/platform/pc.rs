//! The PC itself: what its vCPUs share, each vCPU's part, and the slots for devices.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use locks::Unpoisoned;
use vm_memory::GuestAddress;

use super::chipset::Chipset;
use super::local::Local;
use super::port_map;
use crate::board::{Backplane, Config, Error, Surroundings};
use crate::bus::{self, MemoryDevice, PortDevice, Width};
use crate::interrupts::{
    Controllers, Inputs, InterruptLine, LineStates, LocalApic, Message, Router,
};
use crate::limits::MAX_PROCESSORS;
use crate::memory::Memory;
use crate::paravirtual::{self, MachineClock};
use crate::pci::{self, MessageSender, Root};
use crate::request::Requests;
use crate::time::{Clock, Nanoseconds};

/// Everything but processors, memory and what is plugged in.
pub struct Platform {
    pub(super) clock: Arc<dyn Clock>,
    pub(super) memory: Arc<dyn Memory>,
    pub(super) paravirtual_clock: Mutex<MachineClock>,
    pub(super) router: Arc<Router>,
    pub(super) lines: Arc<LineStates>,
    pub(super) locals: Vec<Mutex<Local>>,
    chipset: Mutex<Chipset>,
    /// When the first of the chip set's timers has something to do.
    deadline: AtomicU64,
    pub(super) requests: Requests,
}

impl Platform {
    /// A PC that has just been switched on ([`Board::new`](crate::board::Board::new)).
    pub(super) fn assemble(config: Config, surroundings: Surroundings) -> Result<Self, Error> {
        if !(1..=MAX_PROCESSORS).contains(&config.processors) {
            return Err(Error::Processors(config.processors));
        }
        let Surroundings { clock, memory, wake } = surroundings;
        let (requests, now) = (Requests::default(), clock.now());
        let router = Arc::new(Router::new(config.processors, Arc::clone(&wake)));
        let inputs = Inputs::new(wake);
        let lines = Arc::clone(inputs.states());
        let controllers = Controllers::new(Arc::clone(&router), inputs);
        let firmware = config.firmware_bytes != 0;
        let pci = if firmware { Root::of_firmware() } else { Root::default() };
        let mut chipset = Chipset::new(Arc::clone(&clock), controllers, requests.clone(), pci);
        port_map::claim(&mut chipset.port_bus.ports, firmware)?;
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

    /// What the paravirtual registers of each vCPU work on.
    pub(super) fn paravirtual(&self) -> paravirtual::Shared<'_> {
        paravirtual::Shared {
            clock: &*self.clock,
            memory: &*self.memory,
            machine_clock: &self.paravirtual_clock,
        }
    }

    /// Deliver an interrupt message of a device, from any thread.
    pub fn send_message(&self, message: &Message) {
        self.router.send(message, None);
    }

    /// Push the power button: a guest that handles it shuts down.
    pub fn press_power_button(&self) {
        self.press_button_by(None);
    }

    pub(super) fn press_button_by(&self, user: Option<usize>) {
        self.with_chipset(user, |chipset| {
            chipset.power.press_button();
            chipset.drive_own_lines();
        });
    }

    /// When the chip set next has something to do.
    #[inline]
    pub(super) fn deadline(&self) -> Nanoseconds {
        Nanoseconds(self.deadline.load(Ordering::Acquire))
    }

    /// Use the chip set, on the thread of the processor `user` if it is one's.
    #[inline]
    pub(super) fn with_chipset<R>(
        &self,
        user: Option<usize>,
        act: impl FnOnce(&mut Chipset) -> R,
    ) -> R {
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
        chipset.port_bus.add(name, first, count, width, device)
    }

    fn add_memory_device(
        &mut self,
        name: &'static str,
        first: GuestAddress,
        bytes: u64,
        device: Box<dyn MemoryDevice>,
    ) -> Result<(), bus::Error> {
        self.chipset.lock().unpoisoned().memory_bus.add(name, first, bytes, device)
    }

    fn add_pci_function(&mut self, function: Box<dyn pci::Function>) -> Result<u8, pci::Error> {
        self.chipset.lock().unpoisoned().pci.plug_in(function)
    }

    fn message_sender(&self) -> Result<MessageSender, pci::Error> {
        Ok(MessageSender::new(&self.router))
    }

    fn line(&self, input: u8) -> InterruptLine {
        InterruptLine::new(&self.lines, input)
    }

    fn requests(&self) -> Requests {
        self.requests.clone()
    }
}
