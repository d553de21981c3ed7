//! The interrupt controllers: lines to the 8259 pair and the I/O APIC, those to the local APICs,
//! and local APICs to each other.
//!
//! ```text
//! devices --lines--> 8259 pair --INTR--> LINT0 -----.
//!                \-> I/O APIC --messages--> router --> mailbox -> local APIC --> processor
//!                                 local APIC --'
//! ```
//!
//! The 8259 pair and the I/O APIC are the [`Controllers`], which are locked with the rest of the
//! chip set. A local APIC belongs to its processor's thread. Between them are the [`Router`] and the
//! mailboxes, which anybody may use at any time.

mod io_apic;
pub mod lines;
mod local_apic;
mod mailbox;
mod message;
mod pic;
mod router;
mod vectors;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub use io_apic::IoApic;
pub(crate) use lines::{Inputs, LineStates};
pub use lines::{InterruptLine, Wake};
pub use local_apic::{
    Effect, FREQUENCY as LOCAL_TIMER_FREQUENCY, Fault, LocalApic, SavedApic, StartUp,
};
pub use message::{DeliveryMode, Destination, Message};
pub use pic::Pic;
pub(crate) use router::Router;

use crate::layout::irq;

/// The state of the controllers that lines lead to, and of the lines.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SavedControllers {
    pic: Pic,
    io_apic: IoApic,
    levels: u32,
}

/// The controllers that lines lead to.
pub(crate) struct Controllers {
    inputs: Inputs,
    pic: Pic,
    io_apic: IoApic,
    router: Arc<Router>,
    /// The processor on whose thread this is used, where it is one's.
    pub user: Option<usize>,
}

impl Controllers {
    /// Controllers that send through `router`.
    pub fn new(router: Arc<Router>, inputs: Inputs) -> Self {
        Self { inputs, pic: Pic::default(), io_apic: IoApic::default(), router, user: None }
    }

    /// As after power-on; devices keep driving their lines.
    pub fn reset(&mut self) {
        self.synchronize();
        self.pic = Pic::default();
        self.io_apic.reset();
        self.pic_changed();
    }

    /// What controllers that go on from here have to know.
    pub fn save(&mut self) -> SavedControllers {
        self.synchronize();
        let (pic, io_apic) = (self.pic.clone(), self.io_apic.clone());
        SavedControllers { pic, io_apic, levels: self.inputs.levels() }
    }

    /// Go on from there.
    pub fn restore(&mut self, saved: SavedControllers) {
        self.pic = saved.pic;
        self.io_apic = saved.io_apic;
        self.inputs.restore(saved.levels);
        self.router.restore_intr(self.pic.is_requesting());
    }

    /// Look at the lines; cheap when nothing has changed.
    #[inline]
    pub fn synchronize(&mut self) {
        while let Some(change) = self.inputs.take_changes() {
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
        self.router.set_intr(self.pic.is_requesting(), self.user);
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

    /// A level-triggered interrupt has ended at some processor.
    pub fn end_of_interrupt(&mut self, vector: u8) {
        let mut messages = self.io_apic.end_of_interrupt(vector);
        while let Some(message) = self.io_apic.next_message(&mut messages) {
            self.send(&message);
        }
    }

    /// The interrupt acknowledge cycle of the 8259 pair.
    pub fn acknowledge_pic(&mut self) -> u8 {
        let vector = self.pic.acknowledge();
        self.pic_changed();
        vector
    }

    fn send(&self, message: &Message) {
        self.router.send(message, self.user);
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
}
