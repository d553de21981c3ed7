//! The run loop: what one processor and its platform say to each other until the machine ends.
//!
//! 1. Interrupts are offered before every run, in the manner of KVM: injected when the processor
//!    can take one, otherwise it is asked to say when it can.
//! 2. Time is looked at when the alarm says that something is due, when the processor is idle, and
//!    every [`EXITS_PER_LOOK`] exits; never in between.
//! 3. A halted processor costs nothing: its thread sleeps until the next deadline or until another
//!    thread has something for it. With interrupts disabled, only a non-maskable interrupt or the
//!    end of the machine can wake it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cpu::Exit;
use machine::time::{Clock, Nanoseconds};
use machine::{Platform, Request};
use vm_memory::GuestAddress;

use crate::alarm::{Alarm, Waker};
use crate::configuration::{Error, Outcome};
use crate::line::{Collector, FLUSH_AFTER, Lines};
use crate::processor::Processor;

#[cfg(test)]
mod tests;

/// There is one processor.
const PROCESSOR: usize = 0;

/// Exits after which the clock is looked at, whatever they were.
const EXITS_PER_LOOK: u32 = 64;

/// One processor at work in its platform.
pub(crate) struct Runner<P> {
    pub(crate) cpu: P,
    pub(crate) platform: Platform,
    pub(crate) lines: Lines,
    clock: Arc<dyn Clock>,
    waker: Waker,
    alarm: Alarm,
    stop: Arc<AtomicBool>,
    /// When waiting output is to be passed on at the latest.
    flush_at: Option<Nanoseconds>,
}

impl<P: Processor> Runner<P> {
    /// A processor that has not started. `waker` is the one that the platform has.
    ///
    /// # Errors
    ///
    /// [`Error::Host`] when there is no thread or timer for the alarm.
    pub(crate) fn new(
        cpu: P,
        platform: Platform,
        lines: Lines,
        clock: Arc<dyn Clock>,
        waker: Waker,
    ) -> Result<Self, Error> {
        Ok(Self {
            alarm: Alarm::new(cpu.kick_handle())?,
            cpu,
            platform,
            lines,
            clock,
            waker,
            stop: Arc::new(AtomicBool::new(false)),
            flush_at: None,
        })
    }

    /// What makes [`Self::run`] return [`Outcome::Stopped`]: set it, then wake the processor.
    pub(crate) fn stop_request(&self) -> (Arc<AtomicBool>, Waker) {
        (Arc::clone(&self.stop), self.waker.clone())
    }

    /// Run until the machine ends or resets. Everything that the guest has sent is passed on then.
    ///
    /// # Errors
    ///
    /// [`Error::Processor`] when the host fails.
    pub(crate) fn run(&mut self) -> Result<Outcome, Error> {
        let outcome = self.run_loop();
        self.flush();
        outcome
    }

    fn run_loop(&mut self) -> Result<Outcome, Error> {
        let mut until_look = 0;
        loop {
            if until_look == 0 {
                self.look();
                until_look = EXITS_PER_LOOK;
            }
            until_look -= 1;
            if let Some(outcome) = self.take_requests() {
                return Ok(outcome);
            }
            self.offer_interrupts();
            self.set_alarm();
            let exit = self.cpu.run()?;
            if matches!(exit, Exit::Kicked | Exit::Halt | Exit::InterruptWindow) {
                until_look = 0;
            }
            if let Some(outcome) = self.answer(exit) {
                return Ok(outcome);
            }
        }
    }

    /// Do what time has made due.
    fn look(&mut self) {
        let now = self.clock.now();
        self.platform.advance(now);
        if self.flush_at.is_some_and(|due| due <= now) {
            self.flush();
        }
    }

    /// See to it that what the guest has just sent is passed on, even if this was its last exit.
    fn expect_flush(&mut self) {
        if self.flush_at.is_none() && self.lines.collectors.iter().any(Collector::is_waiting) {
            self.flush_at = Some(self.clock.now().after(FLUSH_AFTER));
        }
    }

    /// Pass on what the guest has sent over its serial lines.
    pub(crate) fn flush(&mut self) {
        self.flush_at = None;
        self.lines.collectors.iter().for_each(Collector::flush);
    }

    fn take_requests(&mut self) -> Option<Outcome> {
        if self.stop.load(Ordering::Acquire) {
            return Some(Outcome::Stopped);
        }
        self.platform.take_request().map(|request| match request {
            Request::PowerOff => Outcome::PoweredOff,
            Request::Reset => Outcome::Reset,
            // The status of a process has eight bits.
            Request::DebugExit(value) => Outcome::DebugExit((value << 1 | 1) as u8),
        })
    }

    /// Hand pending interrupts to the processor, or ask it to say when it can take them.
    fn offer_interrupts(&mut self) {
        if self.platform.take_nmi(PROCESSOR) {
            self.cpu.inject_nmi();
        }
        let mut waiting = self.platform.has_interrupt(PROCESSOR);
        if waiting && self.cpu.can_inject_interrupt() {
            if let Some(vector) = self.platform.acknowledge(PROCESSOR) {
                self.cpu.inject_interrupt(vector);
            }
            waiting = self.platform.has_interrupt(PROCESSOR);
        }
        self.cpu.request_interrupt_window(waiting);
    }

    fn set_alarm(&mut self) {
        let deadlines = [self.platform.next_deadline(), self.flush_at];
        if let Some(deadline) = deadlines.into_iter().flatten().min() {
            self.alarm.set(deadline, self.clock.now());
        }
    }

    /// Carry out what the processor could not do itself.
    fn answer(&mut self, exit: Exit) -> Option<Outcome> {
        let platform = &mut self.platform;
        match exit {
            Exit::IoRead { port, size } => {
                let value = platform.port_read(port, size);
                self.cpu.complete_read(u64::from(value));
            }
            Exit::IoWrite { port, size, value } => {
                platform.port_write(port, size, value);
                self.expect_flush();
            }
            Exit::MmioRead { address, size } => {
                let value = platform.mmio_read(PROCESSOR, GuestAddress(address), size);
                self.cpu.complete_read(value);
            }
            Exit::MmioWrite { address, size, value } => {
                platform.mmio_write(PROCESSOR, GuestAddress(address), size, value);
            }
            Exit::MsrRead { index } => self.read_msr(index),
            Exit::MsrWrite { index, value } => self.write_msr(index, value),
            Exit::TprRead => {
                let class = platform.tpr_read(PROCESSOR);
                self.cpu.complete_read(u64::from(class));
            }
            Exit::TprWrite { value } => platform.tpr_write(PROCESSOR, value),
            Exit::Halt => self.sleep(),
            Exit::InterruptWindow | Exit::Kicked => {}
            Exit::Shutdown => return Some(Outcome::TripleFault(self.cpu.describe())),
        }
        None
    }

    /// Both timers that an MSR can set count in the guest's time-stamp counter.
    fn read_msr(&mut self, index: u32) {
        self.platform.set_tsc_offset(PROCESSOR, self.cpu.tsc_offset());
        match self.platform.msr_read(PROCESSOR, index) {
            Ok(value) => self.cpu.complete_read(value),
            Err(_) => self.cpu.fail_msr(),
        }
    }

    fn write_msr(&mut self, index: u32, value: u64) {
        self.platform.set_tsc_offset(PROCESSOR, self.cpu.tsc_offset());
        match self.platform.msr_write(PROCESSOR, index, value) {
            Ok(()) => self.cpu.complete_write_msr(),
            Err(_) => self.cpu.fail_msr(),
        }
    }

    /// Sleep until there is something to do.
    fn sleep(&mut self) {
        self.flush();
        let now = self.clock.now();
        self.platform.advance(now);
        if self.cpu.has_interrupts_enabled() && self.platform.has_interrupt(PROCESSOR) {
            return;
        }
        let span = self.platform.next_deadline().map(|deadline| {
            let Nanoseconds(span) = deadline.since(now);
            Duration::from_nanos(span)
        });
        self.waker.sleep(span);
    }
}
