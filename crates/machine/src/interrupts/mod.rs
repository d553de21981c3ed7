//! The interrupt controllers, wired together: lines to the 8259 pair and the I/O APIC, those to
//! the local APICs, and local APICs to each other.
//!
//! ```text
//! devices --lines--> 8259 pair --INTR--> LINT0 -.
//!                \-> I/O APIC --messages--------> local APIC --> processor
//!                                 local APIC --'
//! ```

mod io_apic;
pub mod lines;
mod local_apic;
mod message;
mod pic;

use std::sync::Arc;

pub use io_apic::IoApic;
use lines::Inputs;
pub use lines::{Line, Wake};
pub use local_apic::{Effect, FREQUENCY as LOCAL_TIMER_FREQUENCY, Fault, LocalApic, StartUp};
pub use message::{DeliveryMode, Destination, Message};
pub use pic::Pic;

use crate::layout::irq;
use crate::time::{Hertz, Nanoseconds};

/// All of them.
pub struct Interrupts {
    inputs: Inputs,
    pic: Pic,
    io_apic: IoApic,
    local: Vec<LocalApic>,
    /// INTR of the 8259 pair as it was last seen.
    intr: bool,
    /// Who was last given a lowest-priority message.
    favoured: usize,
    /// One bit per processor (modulo 64) that was sent something.
    notified: u64,
}

impl Interrupts {
    /// Controllers for so many processors.
    pub fn new(processors: usize, tsc: Hertz, wake: Arc<dyn Wake>) -> Self {
        Self {
            inputs: Inputs::new(wake),
            pic: Pic::default(),
            io_apic: IoApic::default(),
            local: (0..processors as u32).map(|id| LocalApic::new(id, tsc)).collect(),
            intr: false,
            favoured: 0,
            notified: 0,
        }
    }

    /// The device's end of interrupt input `number`.
    pub fn line(&self, number: u8) -> Line {
        self.inputs.line(number)
    }

    /// As after power-on; devices keep driving their lines.
    pub fn reset(&mut self) {
        self.synchronize();
        self.pic = Pic::default();
        self.io_apic.reset();
        self.local.iter_mut().for_each(LocalApic::reset);
        self.intr = false;
        self.notified = 0;
    }

    /// Look at the lines; cheap when nothing has changed.
    #[inline]
    pub fn synchronize(&mut self) {
        if let Some(change) = self.inputs.take_changes() {
            self.apply(change);
        }
    }

    /// Drive an input from within the machine.
    pub fn set_input(&mut self, input: u8, level: bool) {
        self.pic.set_input(input, level);
        let pin = if input == irq::PIT { irq::PIT_PIN } else { input };
        if let Some(message) = self.io_apic.set_pin(pin, level) {
            self.send(&message);
        }
        self.pic_changed();
    }

    /// The same, up and down.
    pub fn pulse_input(&mut self, input: u8) {
        self.set_input(input, true);
        self.set_input(input, false);
    }

    /// The 8259 pair; [`Self::pic_changed`] must follow.
    pub fn pic(&mut self) -> &mut Pic {
        &mut self.pic
    }

    /// Tell the processors what INTR does now.
    pub fn pic_changed(&mut self) {
        let intr = self.pic.is_requesting();
        if intr && !self.intr {
            self.local.iter_mut().for_each(LocalApic::lint0_rises);
            self.notified |= 1;
        }
        self.intr = intr;
    }

    /// Load from the I/O APIC.
    pub fn read_io_apic(&self, offset: u64) -> u32 {
        self.io_apic.read(offset)
    }

    /// Store to the I/O APIC.
    pub fn write_io_apic(&mut self, offset: u64, value: u32) {
        let mut messages = self.io_apic.write(offset, value);
        while let Some(message) = self.io_apic.next_message(&mut messages) {
            self.send(&message);
        }
    }

    /// The local APIC of a processor; what it returns is for [`Self::carry_out`].
    #[inline]
    pub fn local(&mut self, processor: usize) -> Option<&mut LocalApic> {
        self.local.get_mut(processor)
    }

    /// Do what an access to a local APIC asks for.
    #[inline]
    pub fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::None => {}
            Effect::Send(message) => self.send(&message),
            Effect::End(vector) => {
                let mut messages = self.io_apic.end_of_interrupt(vector);
                while let Some(message) = self.io_apic.next_message(&mut messages) {
                    self.send(&message);
                }
            }
        }
    }

    /// Deliver a message, also from a device that signals by messages.
    pub fn send(&mut self, message: &Message) {
        if message.mode == DeliveryMode::LowestPriority {
            if let Some(processor) = self.lowest_priority(message.destination) {
                self.deliver(processor, message);
            }
            return;
        }
        for processor in 0..self.local.len() {
            if self.is_addressed(processor, message.destination) {
                self.deliver(processor, message);
            }
        }
    }

    /// What is to be delivered to a processor: first what the 8259 pair has, whose vector is not
    /// known before it is acknowledged.
    #[inline]
    pub fn pending(&mut self, processor: usize) -> Option<Pending> {
        self.synchronize();
        let local = self.local.get(processor)?;
        if local.takes_external(self.intr) {
            return Some(Pending::External);
        }
        local.pending().map(Pending::Vector)
    }

    /// The interrupt acknowledge cycle.
    #[inline]
    pub fn acknowledge(&mut self, processor: usize) -> Option<u8> {
        match self.pending(processor)? {
            Pending::Vector(_) => self.local.get_mut(processor)?.acknowledge(),
            Pending::External => {
                self.local.get_mut(processor)?.external_acknowledged();
                let vector = self.pic.acknowledge();
                self.pic_changed();
                Some(vector)
            }
        }
    }

    /// When the first timer of a local APIC expires.
    #[inline]
    pub fn next_deadline(&self) -> Nanoseconds {
        self.local.iter().map(LocalApic::next_deadline).min().unwrap_or(Nanoseconds::NEVER)
    }

    /// Time has passed.
    pub fn advance(&mut self, now: Nanoseconds) {
        for (processor, local) in self.local.iter_mut().enumerate() {
            if local.advance(now) {
                self.notified |= 1 << (processor & 63);
            }
        }
    }

    /// Wake the processors that were sent something, but not `current`, which is about to look.
    #[inline]
    pub fn wake_others(&mut self, current: usize) {
        let notified = std::mem::take(&mut self.notified);
        if self.local.len() > 1 && notified & !(1 << (current & 63)) != 0 {
            let others = (0..self.local.len()).filter(|&processor| processor != current);
            others
                .filter(|processor| notified & 1 << (processor & 63) != 0)
                .for_each(|processor| self.inputs.wake(processor));
        }
    }

    fn apply(&mut self, change: lines::Change) {
        let mut left = change.changed;
        while left != 0 {
            let input = left.trailing_zeros() as u8;
            left &= left - 1;
            if change.risen & 1 << input != 0 {
                self.set_input(input, false);
                self.set_input(input, true);
            }
            if change.level & 1 << input == 0 {
                self.set_input(input, false);
            }
        }
    }

    fn deliver(&mut self, processor: usize, message: &Message) {
        self.local[processor].accept(message);
        self.notified |= 1 << (processor & 63);
    }

    fn is_addressed(&self, processor: usize, destination: Destination) -> bool {
        match destination {
            Destination::All => true,
            Destination::AllBut(sender) => processor != sender,
            Destination::Processor(only) => processor == only,
            Destination::Physical(id) => self.local[processor].has_id(id),
            Destination::Logical(address) => self.local[processor].matches_logical(address),
        }
    }

    /// Among equals they take turns.
    fn lowest_priority(&mut self, destination: Destination) -> Option<usize> {
        let count = self.local.len();
        let turns = (1..=count).map(|step| (self.favoured + step) % count);
        let addressed = turns.filter(|&processor| self.is_addressed(processor, destination));
        let ranked = addressed.filter_map(|p| Some((self.local[p].arbitration()?, p)));
        let chosen = ranked.min_by_key(|&(priority, _)| priority)?.1;
        self.favoured = chosen;
        Some(chosen)
    }
}

/// What waits for a processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pending {
    /// A vector of the local APIC.
    Vector(u8),
    /// Something of the 8259 pair.
    External,
}
