//! The run loop of one vCPU's thread: what the processor and its side of the board say to each other until the machine
//! ends.
//!
//! 1. Interrupts are offered before every run, in the manner of KVM: injected when the processor
//!    can take one, otherwise it is asked to say when it can.
//! 2. Time is looked at when the alarm says that something is due, when the processor is idle, and
//!    every [`EXITS_PER_LOOK`] exits; never in between.
//!    A timer that the guest has just set is looked at once: one that has passed, or will within
//!    [`SOON`], interrupts before the guest's next instruction and needs no alarm.
//! 3. Exits from which nothing follows for the loop are answered on the spot ([`super::brief`]).
//! 4. A halted processor costs nothing: its thread sleeps until the next deadline or until another
//!    thread has something for it. With interrupts disabled, only a non-maskable interrupt, another
//!    processor's kick or the end of the machine can end the halt.

use std::time::Duration;

use cpu::Exit;
use machine::paravirtual::{Call, Done};
use machine::saved;
use machine::time::{Clock, Nanoseconds};
use machine::xen::{TableWrite, Then, XenCall, XenVcpu as _};
use machine::{BoardVcpu, Request, StartUp};
use vm_memory::GuestAddress;

use super::errands::Errands;
use super::gate::OwnGate;
use crate::activity::Activity;
use crate::alarm::Alarm;
use crate::configuration::Reporter;
use crate::control::{Control, Question, Wanted};
use crate::devices::collector::{Collector, FLUSH_AFTER};
use crate::devices::file_server::FileServers;
use crate::idle::{Idle, left};
use crate::outcome::{Error, Outcome};
use crate::processor::Processor;
use crate::stolen::Stolen;
use crate::waker::Waker;

/// Exits after which the clock is looked at, whatever they were.
const EXITS_PER_LOOK: u32 = 64;

/// What is due within this time is waited for: an alarm takes longer, by way of the host's timer and a signal.
const SOON: Duration = Duration::from_micros(4);

/// One processor at work, on its thread.
pub(super) struct RunLoop<'a, P, V> {
    pub(super) cpu: &'a mut P,
    pub(super) processor: usize,
    pub(super) reporter: &'a Reporter,
    pub(super) vcpu: V,
    pub(super) requests: &'a machine::Requests,
    pub(super) alarm: Alarm,
    pub(super) control: &'a Control,
    pub(super) waker: &'a Waker,
    pub(super) clock: &'a dyn Clock,
    pub(super) collectors: &'a [Collector],
    pub(super) file_servers: &'a FileServers,
    pub(super) errands: Errands<'a>,
    pub(super) idle: Idle,
    pub(super) stolen: Stolen,
    pub(super) gate: OwnGate<'a>,
    pub(super) activity: &'a mut Activity,
    /// When output that this processor has made is to be passed on at the latest.
    pub(super) flush_at: Option<Nanoseconds>,
    /// The deadline that [`RunLoop::meet_deadline`] has seen last.
    pub(super) seen_deadline: Option<Nanoseconds>,
}

impl<P: Processor, V: BoardVcpu> RunLoop<'_, P, V> {
    /// Run until this processor ends the machine, or until the machine has ended.
    ///
    /// # Errors
    ///
    /// [`Error::Processor`] when the host fails.
    pub(super) fn run(&mut self) -> Result<Option<Outcome>, Error> {
        let mut until_look = 0;
        // Whoever goes on from a snapshot may have found requests in it.
        self.errands.leave();
        loop {
            if self.waker.looks() {
                until_look = 0;
            }
            if until_look == 0 {
                self.look();
                until_look = EXITS_PER_LOOK;
            }
            until_look -= 1;
            if self.control.has_orders() {
                if self.control.must_stand(self.processor) {
                    self.stand_still();
                }
                if self.control.is_over() {
                    return Ok(None);
                }
                self.report();
                if self.processor == 0 && self.control.take_button() {
                    self.vcpu.press_power_button();
                }
            }
            if let Some(outcome) = self.take_request() {
                return Ok(Some(outcome));
            }
            if !self.is_started() {
                self.flush();
                self.errands.leave();
                self.alarm.unset(self.cpu);
                self.sleep(None);
                continue;
            }
            if self.gate.is_shut(|| self.clock.now()) {
                self.wait_at_gate();
                until_look = 0;
                continue;
            }
            self.meet_deadline();
            self.offer_interrupts();
            self.set_alarm()?;
            self.vcpu.enter();
            let exit = self.run_processor(&mut until_look)?;
            self.waker.is_about_to_look();
            self.vcpu.leave();
            self.activity.exits += 1;
            if matches!(exit, Exit::Kicked | Exit::Halt | Exit::InterruptWindow) {
                until_look = 0;
            }
            if let Some(outcome) = self.answer(exit) {
                return Ok(Some(outcome));
            }
            self.activity.disk_jobs += self.errands.attend(self.clock);
            let slept = self.file_servers.attend(|| self.idle.has_room_for_another());
            self.stolen.slept(slept);
        }
    }

    /// Report what the vCPU does, if it was asked.
    #[cold]
    fn report(&mut self) {
        if self.control.take_report(self.processor) {
            self.reporter.say(self.processor, &self.cpu.describe());
        }
    }

    /// Do nothing until the machine goes on.
    #[cold]
    fn stand_still(&mut self) {
        self.flush();
        self.errands.leave();
        self.alarm.unset(self.cpu);
        let Self { cpu, vcpu, control, processor, .. } = self;
        let mut serve = |wanted| {
            let question = match wanted {
                Wanted::Answer(question) => question,
                Wanted::Work(task) => {
                    if let Some(cpu) = cpu.engine() {
                        task.carry_out(cpu);
                    }
                    return None;
                }
            };
            Some(match question {
                Question::Shared => vcpu.save_shared(),
                Question::Own => Ok(saved::encode(&(cpu.save(), vcpu.save_own()))),
                Question::Thaw => {
                    vcpu.thaw();
                    Ok(Vec::new())
                }
            })
        };
        self.gate.wants(false);
        let slept = self.idle.stand_still(|| control.stand_still(*processor, &mut serve));
        self.gate.wants(true);
        self.stolen.slept(slept);
        // What drivers had made ready when devices went on is rung for.
        self.errands.leave();
        self.vcpu.has_been_stopped();
        self.waker.looks();
    }

    /// Do what time has made due.
    fn look(&mut self) {
        self.control.publish(self.processor, self.activity);
        let now = self.clock.now();
        self.vcpu.advance(now);
        if self.flush_at.is_some_and(|due| due <= now) {
            self.flush();
        }
        if self.vcpu.counts_stolen_time()
            && let Some(total) = self.stolen.look(now, || self.cpu.computed_elsewhere())
        {
            self.vcpu.set_stolen_time(total);
            self.idle.note_stolen(total, now);
            self.activity.stolen = Duration::from_nanos(total.0);
            if let Some(mut cpu) = self.cpu.xen() {
                self.vcpu.tell_states(&mut cpu);
            }
        }
    }

    /// See to it that what the guest has just sent is passed on, even if this was its last exit.
    fn expect_flush(&mut self) {
        if self.flush_at.is_none() && self.collectors.iter().any(Collector::is_waiting) {
            self.flush_at = Some(self.clock.now().after(FLUSH_AFTER));
        }
    }

    /// Pass on what the guest has sent over its serial lines.
    fn flush(&mut self) {
        if self.flush_at.take().is_some() {
            self.collectors.iter().for_each(Collector::flush);
        }
    }

    fn take_request(&mut self) -> Option<Outcome> {
        self.requests.take().map(|request| match request {
            Request::PowerOff => Outcome::PoweredOff,
            Request::Reset => Outcome::Reset,
            // The status of a process has eight bits.
            Request::DebugExit(value) => Outcome::DebugExit((value << 1 | 1) as u8),
        })
    }

    /// Take INIT and start-up messages; whether the processor is to run.
    #[inline]
    fn is_started(&mut self) -> bool {
        while let Some(message) = self.vcpu.take_start_up() {
            match message {
                StartUp::Init => self.cpu.initialize(),
                StartUp::At(page) => self.cpu.start_at(page),
            }
        }
        if let Some(context) = self.vcpu.take_context()
            && let Some(mut cpu) = self.cpu.xen()
        {
            cpu.initialise(&context);
            cpu.set_vcpu_info(self.vcpu.vcpu_info());
        }
        !self.vcpu.waits_for_start_up()
    }

    /// Hand pending interrupts to the processor, or ask it to say when it can take them.
    fn offer_interrupts(&mut self) {
        if self.vcpu.take_nmi() {
            self.cpu.inject_nmi();
        }
        let mut waiting = self.vcpu.has_interrupt();
        if waiting && self.cpu.can_inject_interrupt() {
            if let Some(vector) = self.vcpu.acknowledge() {
                self.cpu.inject_interrupt(vector);
                self.activity.interrupts += 1;
            }
            waiting = self.vcpu.has_interrupt();
        }
        self.cpu.request_interrupt_window(waiting);
    }

    /// Do what a timer that has just been set makes due at once, or very soon (SDM 3A 11.5.4.1: a deadline
    /// that has passed interrupts immediately).
    #[inline]
    fn meet_deadline(&mut self) {
        let deadline = self.vcpu.next_deadline();
        if deadline == self.seen_deadline {
            return;
        }
        self.seen_deadline = deadline;
        if let Some(deadline) = deadline
            && left(self.clock, deadline) <= SOON
        {
            host::watch(2 * SOON, || self.clock.now() >= deadline);
            self.look();
        }
    }

    fn set_alarm(&mut self) -> Result<(), Error> {
        let own = [self.flush_at, self.errands.due(), self.gate.deadline()];
        let deadlines = own.into_iter().chain([self.vcpu.next_deadline()]);
        if let Some(deadline) = deadlines.flatten().min() {
            self.alarm.set(self.cpu, deadline, || self.clock.now())?;
        }
        Ok(())
    }

    /// Carry out what the processor could not do itself.
    fn answer(&mut self, exit: Exit) -> Option<Outcome> {
        match exit {
            Exit::IoRead { port, size } => {
                let value = self.vcpu.port_read(port, size);
                self.cpu.complete_read(u64::from(value));
            }
            Exit::IoWrite { port, size, value } => {
                self.vcpu.port_write(port, size, value);
                self.expect_flush();
            }
            Exit::MmioRead { address, size } => {
                let value = self.vcpu.mmio_read(GuestAddress(address), size);
                self.cpu.complete_read(value);
            }
            Exit::MmioWrite { address, size, value } => {
                self.vcpu.mmio_write(GuestAddress(address), size, value);
            }
            Exit::MsrRead { index } => self.read_msr(index),
            Exit::MsrWrite { index, value } => self.write_msr(index, value),
            Exit::TprRead => {
                let class = self.vcpu.tpr_read();
                self.cpu.complete_read(u64::from(class));
            }
            Exit::TprWrite { value } => self.vcpu.tpr_write(value),
            Exit::Hypercall { number, arguments } => self.call(&Call { number, arguments }),
            Exit::ParavirtualCall { number, arguments } => {
                self.xen_call(&XenCall { number, arguments });
            }
            Exit::ParavirtualWrite { address, old, new } => {
                self.xen_write(&TableWrite { address: GuestAddress(address), old, new });
            }
            Exit::Halt => self.halt(),
            Exit::Kicked => self.activity.kicks += 1,
            Exit::InterruptWindow => {}
            Exit::Debug => {
                let stop = self.cpu.engine().and_then(cpu::Vcpu::take_stop);
                stop.into_iter().for_each(|stop| self.control.stopped(self.processor, stop));
            }
            Exit::Shutdown => return Some(Outcome::TripleFault(self.cpu.describe())),
        }
        None
    }

    /// Both timers that an MSR can set count in the guest's time-stamp counter.
    fn read_msr(&mut self, index: u32) {
        self.vcpu.set_tsc_offset(self.cpu.tsc_offset());
        match self.vcpu.msr_read(index) {
            Ok(value) => self.cpu.complete_read(value),
            Err(_) => self.cpu.fail_msr(),
        }
    }

    fn write_msr(&mut self, index: u32, value: u64) {
        self.vcpu.set_tsc_offset(self.cpu.tsc_offset());
        match self.vcpu.msr_write(index, value) {
            Ok(()) => self.cpu.complete_write_msr(),
            Err(_) => self.cpu.fail_msr(),
        }
    }

    fn call(&mut self, call: &Call) {
        let answer = self.vcpu.hypercall(call);
        self.cpu.complete_read(answer.value);
        match answer.done {
            Done::Nothing => {}
            Done::EndedHalt => self.activity.calls_to_end_halts += 1,
            Done::Interrupted => self.activity.calls_to_interrupt += 1,
            Done::Yielded => self.activity.calls_to_yield += 1,
        }
        if answer.done == Done::Yielded && !self.idle.has_room() {
            std::thread::yield_now();
        }
    }

    /// A hypercall of a paravirtual kernel.
    pub(super) fn xen_call(&mut self, call: &XenCall) {
        let Some(mut cpu) = self.cpu.xen() else { return };
        let then = self.vcpu.xen_call(&mut cpu, call);
        self.expect_flush();
        match then {
            Then::Run => {}
            Then::Block => self.halt(),
            Then::Yield if self.idle.has_room() => {}
            Then::Yield => std::thread::yield_now(),
        }
    }

    /// A paravirtual kernel writes to a table of its own, or to what it must not write.
    pub(super) fn xen_write(&mut self, write: &TableWrite) {
        if let Some(mut cpu) = self.cpu.xen() {
            self.vcpu.xen_write(&mut cpu, write);
        }
    }

    fn sleep(&mut self, deadline: Option<Nanoseconds>) {
        self.gate.wants(false);
        let slept = self.idle.sleep(self.waker, self.clock, deadline);
        self.gate.wants(true);
        self.stolen.slept(slept);
        // The host's timers run apart from the machine's clock by some parts in a million: what we have slept for may
        // be due in a moment only, for which no alarm is worth while.
        self.seen_deadline = None;
    }

    /// Somebody else has the core: wait, as in a halt, but for the guest's account.
    #[cold]
    fn wait_at_gate(&mut self) {
        self.flush();
        self.errands.leave();
        self.alarm.unset(self.cpu);
        self.activity.waits_at_gate += 1;
        self.control.publish(self.processor, self.activity);
        let Self { idle, gate, waker, .. } = self;
        idle.stand_still(|| gate.wait(waker));
    }

    /// Watch for what directories of the host's have to say; whether there was something.
    fn watch_files(&self, deadline: Option<Nanoseconds>) -> bool {
        let end = deadline.unwrap_or(Nanoseconds::NEVER);
        self.idle.has_room_for_another()
            && self.file_servers.watch(left(self.clock, end), || self.waker.is_notified())
    }

    /// Do what is left of the disks' work, if there is any and time for it; whether something was done.
    fn help_disks(&mut self, deadline: Option<Nanoseconds>) -> bool {
        let free = left(self.clock, deadline.unwrap_or(Nanoseconds::NEVER));
        if !self.errands.begin_halt(free, || self.control.has_orders()) {
            return false;
        }
        // The alarm stays as it is: whatever comes next needs one as well, and an early one costs less than two calls.
        // The guest's other processors need not wait for this one to forget addresses.
        self.vcpu.fall_asleep();
        let (mut done, errands, clock) = (0, &mut self.errands, self.clock);
        let slept = self.idle.stand_still(|| done = errands.help(clock));
        self.stolen.slept(slept);
        self.wake_up();
        self.activity.disk_jobs += done;
        self.activity.disk_jobs_in_halts += done;
        done > 0
    }

    fn wake_up(&mut self) {
        if self.vcpu.wake_up() {
            self.activity.flushes_on_waking += 1;
            self.cpu.forget_addresses();
        }
    }

    /// Wait until there is something to do.
    fn halt(&mut self) {
        self.activity.halts += 1;
        // Whatever we were woken for since the guest was left, it is looked at before we sleep: who has
        // left a message wakes nobody again before it is taken. As long as we only watch, nobody needs to
        // kick us.
        if self.waker.is_notified() {
            return;
        }
        self.flush();
        self.vcpu.advance(self.clock.now());
        if self.vcpu.take_unhalt() {
            return self.cpu.end_halt();
        }
        if self.cpu.has_interrupts_enabled() && self.vcpu.has_interrupt() {
            return;
        }
        let deadline = self.vcpu.next_deadline();
        if self.help_disks(deadline) {
            return;
        }
        // A core that others want is not for watching.
        if !self.gate.is_limited()
            && (self.watch_files(deadline) || self.idle.watch(self.waker, self.clock, deadline))
        {
            self.activity.watched_halts += 1;
            return;
        }
        if self.waker.looks() {
            return;
        }
        self.alarm.unset(self.cpu);
        self.control.publish(self.processor, self.activity);
        self.vcpu.fall_asleep();
        self.sleep(deadline);
        self.wake_up();
    }
}
