//! The local APIC of one vCPU, in xAPIC mode (a page of MMIO) and x2APIC mode (MSRs) (SDM 3A chapter 11).
//!
//! It belongs to its vCPU's thread and reaches no other: its caller carries out what it sends, which is an [`Effect`];
//! what comes in waits in a [`Mailbox`] until the vCPU's thread looks ([`LocalApic::absorb`]).
//!
//! Known differences: there is no interrupt behind the thermal and performance-counter entries of the LVT, and
//! arbitration priority and remote read are zero, as on every processor since the Pentium 4.

mod bits;
mod command;
mod registers;
#[cfg(test)]
mod tests;
mod timer;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use bits::{Base, Errors, Lvt, Spurious, lvt};
pub use timer::FREQUENCY;
use timer::Timer;

use super::mailbox::{Face, Mailbox, Signals};
use super::message::{DeliveryMode, Message};
use super::vectors::Vectors;
use crate::layout::LOCAL_APIC;
use crate::saved::CounterShift;
use crate::time::{Clock, Hertz, Nanoseconds};

/// What an access to a register does beyond the APIC itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Nothing.
    None,
    /// A level-triggered interrupt has ended: tell the I/O APIC.
    End(u8),
    /// Send this.
    Send(Message),
}

/// The instruction is to fault with #GP(0).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault;

/// What a processor that waits to be started is told (SDM 3A 9.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartUp {
    /// INIT: reset, then wait.
    Init,
    /// Start in real mode at this page.
    At(u8),
}

/// A local APIC.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LocalApic {
    #[serde(skip)]
    id: u32,
    #[serde(skip, default = "nowhere")]
    mailbox: Arc<Mailbox>,
    base: Base,
    task_priority: u8,
    logical: u32,
    format: u32,
    spurious: Spurious,
    request: Vectors,
    in_service: Vectors,
    trigger: Vectors,
    /// Errors since the register was last written, and what a read shows.
    errors: Errors,
    shown_errors: Errors,
    command: u64,
    lvt: [Lvt; lvt::ENTRIES],
    timer: Timer,
    non_maskable: bool,
    /// An ExtINT message has come from the I/O APIC.
    external: bool,
    init: bool,
    start_page: Option<u8>,
    /// The processor waits for a start-up message (SDM 3A 9.4.1).
    waits: bool,
}

/// The mailbox of an APIC that is not in a machine yet.
fn nowhere() -> Arc<Mailbox> {
    Arc::new(Mailbox::new(0))
}

/// The state of a local APIC, and what has been left for it.
#[derive(Debug, Serialize, Deserialize)]
pub struct SavedApic {
    apic: LocalApic,
    unhalt: bool,
}

impl LocalApic {
    /// What one that goes on from here has to know.
    pub fn save(&mut self) -> SavedApic {
        self.absorb();
        SavedApic { apic: self.clone(), unhalt: self.mailbox.has_unhalt() }
    }

    /// Go on from there.
    pub fn restore(&mut self, saved: SavedApic, shift: CounterShift) {
        let (id, mailbox) = (self.id, Arc::clone(&self.mailbox));
        let timer = saved.apic.timer.moved(self.timer.tsc(), shift);
        *self = Self { id, mailbox, timer, ..saved.apic };
        self.mailbox.clear();
        if saved.unhalt {
            self.mailbox.restore_unhalt();
        }
        self.publish();
    }

    /// The APIC of processor `id`, of which 0 is the bootstrap processor.
    pub fn new(mailbox: Arc<Mailbox>, tsc: Hertz) -> Self {
        let id = mailbox.id();
        let bootstrap = if id == 0 { Base::BOOTSTRAP } else { Base::empty() };
        mailbox.clear();
        let mut apic = Self {
            id,
            mailbox,
            base: Base::from_bits_truncate(LOCAL_APIC.0) | Base::ENABLED | bootstrap,
            task_priority: 0,
            logical: 0,
            format: 0,
            spurious: Spurious::empty(),
            request: Vectors::default(),
            in_service: Vectors::default(),
            trigger: Vectors::default(),
            errors: Errors::empty(),
            shown_errors: Errors::empty(),
            command: 0,
            lvt: [Lvt::MASKED; lvt::ENTRIES],
            timer: Timer::new(tsc),
            non_maskable: false,
            external: false,
            init: false,
            start_page: None,
            waits: id != 0,
        };
        apic.initialize();
        apic
    }

    /// As after power-on (SDM 3A 11.4.7.1).
    pub fn reset(&mut self) {
        *self = Self::new(Arc::clone(&self.mailbox), self.timer.tsc());
    }

    /// As after INIT: all but the id and the base (SDM 3A 11.4.7.3). LINT0 of the bootstrap
    /// processor takes the 8259's interrupts, as firmware leaves it (virtual wire mode, MP 3.6.2.2):
    /// there is no firmware here that could do it.
    fn initialize(&mut self) {
        self.task_priority = 0;
        self.logical = 0;
        self.format = u32::MAX;
        self.spurious = Spurious::VECTOR;
        self.request = Vectors::default();
        self.in_service = Vectors::default();
        self.trigger = Vectors::default();
        self.errors = Errors::empty();
        self.shown_errors = Errors::empty();
        self.command = 0;
        self.lvt = [Lvt::MASKED; lvt::ENTRIES];
        if self.base.contains(Base::BOOTSTRAP) {
            self.lvt[lvt::LINT0] = Lvt::DELIVERY_MODE;
        }
        self.timer.reset();
        self.external = false;
        self.publish();
    }

    /// Tell senders how this APIC is to be addressed.
    #[inline]
    fn publish(&self) {
        let mut face = Face::empty();
        face.set(Face::ENABLED, self.base.contains(Base::ENABLED));
        face.set(Face::ACCEPTS_VECTORS, self.spurious.contains(Spurious::ENABLED));
        face.set(Face::X2APIC, self.base.contains(Base::X2APIC));
        face.set(Face::FLAT, self.format >> 28 == 0xf);
        let lint0_open = !self.lvt[lvt::LINT0].contains(Lvt::MASKED);
        face.set(Face::LINT0_OPEN, lint0_open || !self.base.contains(Base::ENABLED));
        self.mailbox.show(face.with(self.processor_priority(), (self.logical >> 24) as u8));
    }

    /// Add to the processor's time-stamp counter, which TSC deadlines are compared with.
    pub fn set_tsc_offset(&mut self, offset: u64) {
        self.timer.tsc_offset = offset;
    }

    // What the processor asks.

    /// The vector that is to be delivered now.
    #[inline]
    pub fn pending(&self) -> Option<u8> {
        let vector = self.request.highest()?;
        (vector & 0xf0 > self.processor_priority() & 0xf0).then_some(vector)
    }

    /// Deliver what [`Self::pending`] says: it is in service from now on.
    #[inline]
    pub fn acknowledge(&mut self) -> Option<u8> {
        let vector = self.pending()?;
        self.request.remove(vector);
        self.in_service.insert(vector);
        self.publish();
        Some(vector)
    }

    /// Whether INTR of the 8259 pair, when it is `asserted`, interrupts this processor.
    #[inline]
    pub fn takes_external(&self, asserted: bool) -> bool {
        self.external || asserted && self.lint0_is_external()
    }

    /// The vector was asked of the 8259 pair.
    pub fn external_acknowledged(&mut self) {
        self.external = false;
    }

    /// A non-maskable interrupt, once.
    pub fn take_non_maskable(&mut self) -> bool {
        std::mem::take(&mut self.non_maskable)
    }

    /// INIT and then the start-up message, each once. A start-up message that finds the processor
    /// at work is ignored (SDM 3A 9.4.1).
    pub fn take_start_up(&mut self) -> Option<StartUp> {
        if std::mem::take(&mut self.init) {
            return Some(StartUp::Init);
        }
        let page = self.start_page.take()?;
        std::mem::take(&mut self.waits).then_some(StartUp::At(page))
    }

    /// Whether the processor waits for a start-up message and does nothing else.
    #[inline]
    pub fn waits_for_start_up(&self) -> bool {
        self.waits
    }

    /// Whether another processor has ended a halt of this one, once.
    #[inline]
    pub fn take_unhalt(&mut self) -> bool {
        self.mailbox.take_unhalt()
    }

    /// The vector whose end the guest may note in memory: it needs no broadcast, and nothing waits
    /// for it.
    #[inline]
    pub fn silent_end(&self) -> Option<u8> {
        let vector = self.in_service.highest()?;
        (self.request.is_empty() && !self.trigger.contains(vector)).then_some(vector)
    }

    /// CR8.
    pub fn task_priority_class(&self) -> u8 {
        self.task_priority >> 4
    }

    /// CR8: bits 3:0 become bits 7:4 of the register (SDM 3A 11.8.6).
    pub fn set_task_priority_class(&mut self, class: u8) {
        self.task_priority = class << 4;
        self.publish();
    }

    /// SDM 3A 11.8.3.1.
    #[inline]
    fn processor_priority(&self) -> u8 {
        let served = self.in_service.highest().unwrap_or(0) & 0xf0;
        if self.task_priority & 0xf0 >= served { self.task_priority } else { served }
    }

    // What comes in.

    /// Take what others have left; cheap when that is nothing.
    #[inline]
    pub fn absorb(&mut self) {
        if self.mailbox.take_attention() {
            self.take_mail();
        }
    }

    fn take_mail(&mut self) {
        let signals = self.mailbox.take_signals();
        let mailbox = Arc::clone(&self.mailbox);
        mailbox.move_vectors(&mut self.request, &mut self.trigger);
        if signals.contains(Signals::INIT) {
            self.initialize();
            self.non_maskable = false;
            self.init = true;
            self.start_page = None;
            self.waits = !self.base.contains(Base::BOOTSTRAP);
        }
        if signals.contains(Signals::START_UP) {
            self.start_page.get_or_insert((signals.bits() >> 8) as u8);
        }
        self.non_maskable |= signals.contains(Signals::NON_MASKABLE);
        self.external |= signals.contains(Signals::EXTERNAL);
        if signals.contains(Signals::ILLEGAL_VECTOR) {
            self.report(Errors::RECEIVED_ILLEGAL_VECTOR);
        }
        if signals.contains(Signals::LINT0) {
            self.local_interrupt(lvt::LINT0);
        }
    }

    /// NMI of the chip set, on LINT1.
    pub fn lint1_rises(&mut self) {
        self.local_interrupt(lvt::LINT1);
    }

    // Time.

    /// When the timer has something to do.
    #[inline]
    pub fn next_deadline(&self) -> Nanoseconds {
        self.timer.deadline()
    }

    /// Time has passed; whether an interrupt came of it.
    #[inline]
    pub fn advance(&mut self, now: Nanoseconds) -> bool {
        self.timer.expire(now) && self.local_interrupt(lvt::TIMER)
    }

    /// IA32_TSC_DEADLINE.
    pub fn tsc_deadline(&mut self, clock: &dyn Clock) -> u64 {
        self.advance(clock.now());
        self.timer.tsc_deadline()
    }

    /// IA32_TSC_DEADLINE: arms the timer.
    pub fn set_tsc_deadline(&mut self, value: u64, clock: &dyn Clock) {
        self.timer.set_tsc_deadline(value, clock);
    }

    // Inside.

    fn lint0_is_external(&self) -> bool {
        let entry = self.lvt[lvt::LINT0];
        let external = entry & (Lvt::MASKED | Lvt::DELIVERY_MODE) == Lvt::DELIVERY_MODE;
        !self.base.contains(Base::ENABLED) || external
    }

    /// The source of an LVT entry has something; whether an interrupt came of it.
    fn local_interrupt(&mut self, which: usize) -> bool {
        let entry = self.lvt[which];
        if entry.contains(Lvt::MASKED) || !self.base.contains(Base::ENABLED) {
            return false;
        }
        match DeliveryMode::from_register(entry.bits()) {
            DeliveryMode::Fixed => self.accept_vector(entry.vector(), false),
            DeliveryMode::NonMaskable => self.non_maskable = true,
            _ => return false,
        }
        true
    }

    fn accept_vector(&mut self, vector: u8, level: bool) {
        if !self.spurious.contains(Spurious::ENABLED) {
            return;
        }
        if vector < 16 {
            return self.report(Errors::RECEIVED_ILLEGAL_VECTOR);
        }
        self.request.insert(vector);
        if level {
            self.trigger.insert(vector);
        } else {
            self.trigger.remove(vector);
        }
    }

    /// Note an error and interrupt for it, unless that interrupt's vector is itself the error.
    fn report(&mut self, error: Errors) {
        self.errors |= error;
        let entry = self.lvt[lvt::ERROR];
        if entry.vector() >= 16 {
            self.local_interrupt(lvt::ERROR);
        }
    }

    /// The interrupt in service with the highest priority has ended.
    #[inline]
    pub fn end_of_interrupt(&mut self) -> Effect {
        let Some(vector) = self.in_service.highest() else { return Effect::None };
        self.in_service.remove(vector);
        self.publish();
        if self.trigger.contains(vector) { Effect::End(vector) } else { Effect::None }
    }
}
