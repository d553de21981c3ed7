//! One guest address space: a helper, its orders, and its runs.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use crate::error::Error;
use crate::helpers::{Descriptors, Helpers, is_alive};
use crate::kick::Kick;
use crate::layout::{
    ANSWER_DONE, ANSWER_FAILED, ENTRY, ENTRY_EXTENDED, EXTENDED_MAX_BYTES, MAX_ORDERS, MEMORY_FD,
    PAGE_BYTES, RESERVED, RUNNER_FD, SIGNAL_STACK, STEPS, Step, USER_END, is_reserved,
    step_address,
};
use crate::notify::{Answer, Listener, Notification};
use crate::registers::{EXTENDED_BYTES, Entry, Registers};
use crate::rights::Protection;
use crate::stop::{Stop, Stopped};
use crate::stub::{self, NOTIFY_SEND, Place};

/// How long a new helper may take to stop for the first time.
const FIRST_STOP_LIMIT: Duration = Duration::from_secs(10);

/// The user half of one guest address space, as one vCPU has it cached: like the entries of
/// a TLB, it must be changed when that vCPU flushes. Each of several vCPUs has a space of its own.
///
/// Orders ([`Self::map`] and the like) are gathered and carried out before the next run, or by
/// [`Self::flush`]. Between runs the kernel holds the runner, so that no code can use a stale
/// mapping in the meantime.
#[derive(Debug)]
pub struct Space {
    helpers: Arc<Helpers>,
    slot: usize,
    runner: Listener,
    mapper: Listener,
    process: Arc<OwnedFd>,
    processes: [u32; 2],
    runner_id: u64,
    mapper_id: Option<u64>,
    orders: usize,
    dead: bool,
}

impl Space {
    pub(crate) fn new(
        helpers: Arc<Helpers>,
        slot: usize,
        descriptors: Descriptors,
    ) -> Result<Self, Error> {
        let Descriptors { runner, mapper, process } = descriptors;
        let mut space = Self {
            helpers,
            slot,
            runner,
            mapper,
            process: Arc::new(process),
            processes: [0; 2],
            runner_id: 0,
            mapper_id: None,
            orders: 0,
            dead: false,
        };
        let first = |listener: &Listener| -> Result<Notification, Error> {
            listener.prefer_hand_over();
            loop {
                match listener.wait(Some(FIRST_STOP_LIMIT)).and_then(|()| listener.receive()) {
                    Ok(notification) => return Ok(notification),
                    // Signals are for runs.
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(source) => return Err(Error::Host { action: "start a helper", source }),
                }
            }
        };
        let runner = first(&space.runner)?;
        let mapper = first(&space.mapper)?;
        space.processes = [runner.process, mapper.process];
        space.runner_id = runner.id;
        space.mapper_id = Some(mapper.id);
        Ok(space)
    }

    /// The process numbers of the runner and of the mapper.
    pub fn processes(&self) -> [u32; 2] {
        self.processes
    }

    /// The time that its processes have had one of the host's cores; none once they are gone.
    pub fn time(&self) -> Option<Duration> {
        self.processes.iter().map(|&process| host::process_time(process.cast_signed())).sum()
    }

    /// Map `length` bytes of the guest memory's file from `offset` at `linear`, over whatever is
    /// there. `populate` enters all the pages at once, which pays for pages that will be used.
    ///
    /// # Errors
    ///
    /// [`Error::Range`] for what cannot be mapped in any space; the process that wants it has to be
    /// translated. [`Error::Order`] and [`Error::Died`] as for [`Self::flush`].
    pub fn map(
        &mut self,
        linear: u64,
        length: u64,
        offset: u64,
        protection: Protection,
        populate: bool,
    ) -> Result<(), Error> {
        check(linear, length)?;
        let complain = |complaint| Err(Error::Range { linear, length, complaint });
        if linear < RESERVED.end && linear + length > RESERVED.start {
            return complain("are the helper's own");
        }
        let fits = offset.checked_add(length).is_some_and(|end| end <= self.helpers.memory_bytes);
        if !fits || !offset.is_multiple_of(PAGE_BYTES) {
            return complain("are not in guest memory");
        }
        let populate = if populate { libc::MAP_POPULATE } else { 0 };
        let flags = (libc::MAP_SHARED | libc::MAP_FIXED | populate) as u64;
        let arguments = [linear, length, protection.bits(), flags, MEMORY_FD, offset];
        self.order(libc::SYS_mmap, arguments)
    }

    /// Unmap whatever is mapped in a range.
    ///
    /// # Errors
    ///
    /// As for [`Self::flush`], and [`Error::Range`].
    pub fn unmap(&mut self, linear: u64, length: u64) -> Result<(), Error> {
        check(linear, length)?;
        let end = linear + length;
        for (from, to) in [(linear, end.min(RESERVED.start)), (linear.max(RESERVED.end), end)] {
            if from < to {
                self.order(libc::SYS_munmap, [from, to - from, 0, 0, 0, 0])?;
            }
        }
        Ok(())
    }

    /// Unmap everything, and discard the orders that were not carried out. A full flush
    /// needs this, and it makes a space usable again after [`Stop::Refused`] and [`Error::Order`].
    ///
    /// # Errors
    ///
    /// As for [`Self::flush`].
    pub fn unmap_all(&mut self) -> Result<(), Error> {
        self.orders = 0;
        self.unmap(0, USER_END)
    }

    /// Change what may be done with pages all of which are mapped; holes are an error.
    ///
    /// # Errors
    ///
    /// As for [`Self::map`].
    pub fn protect(&mut self, linear: u64, length: u64, to: Protection) -> Result<(), Error> {
        check(linear, length)?;
        if linear < RESERVED.end && linear + length > RESERVED.start {
            let complaint = "are the helper's own";
            return Err(Error::Range { linear, length, complaint });
        }
        self.order(libc::SYS_mprotect, [linear, length, to.bits(), 0, 0, 0])
    }

    /// Carry out the orders now.
    ///
    /// # Errors
    ///
    /// [`Error::Order`] if one failed: what is mapped is not known then. [`Error::Died`].
    pub fn flush(&mut self) -> Result<(), Error> {
        if self.orders == 0 {
            return Ok(());
        }
        let waiting = self.wait_for_mapper()?;
        let last = step_address(self.orders);
        let mut step: Step = self.helpers.area.read(self.slot, last);
        (step.next, step.zero) = (STEPS.start, STEPS.start);
        self.helpers.area.write(self.slot, last, step);
        self.send_orders(waiting, 0)?;
        self.mapper_id = Some(self.wait_for_mapper()?);
        Ok(())
    }

    /// Carry out the orders, and run the program until it stops. `registers` and
    /// `extended` (an XSAVE image in the standard format) are its state before and after.
    pub fn run(
        &mut self,
        registers: &mut Registers,
        extended: &mut [u8; EXTENDED_BYTES],
        kick: &Kick,
    ) -> Stop {
        if self.dead {
            return Stop::Died;
        }
        if !registers.can_run() {
            return Stop::Unsupported;
        }
        if is_reserved(registers.rip) {
            return Stop::fetch_fault(registers.rip);
        }
        self.prepare(registers, extended);
        if !kick.enter(self.process.as_raw_fd()) {
            return Stop::Kicked;
        }
        let ordered = self.orders != 0;
        let stopped = self.resume().and_then(|()| self.wait_for_runner(kick));
        let signalled = kick.leave();
        if let Err(error) = stopped {
            return if matches!(error, Error::Order { .. }) { Stop::Refused } else { self.die() };
        }
        let components = &self.helpers.components;
        let stopped = Stopped { area: &self.helpers.area, slot: self.slot, components };
        let stop = stopped.read(registers, extended);
        if signalled && !stopped.is_by_kick() && self.swallow_kick(kick).is_err() {
            return self.die();
        }
        match stop {
            None => self.die(),
            // Whether an order failed just before a kick, and whether the runner tells the truth
            // about a failure, is for the mapper to say.
            Some(stop @ (Stop::Refused | Stop::Kicked)) if ordered => {
                match self.wait_for_mapper() {
                    Ok(id) => {
                        self.mapper_id = Some(id);
                        if stop == Stop::Refused { self.die() } else { stop }
                    }
                    Err(Error::Order { .. }) => Stop::Refused,
                    Err(_) => self.die(),
                }
            }
            Some(Stop::Refused) => self.die(),
            Some(stop) => stop,
        }
    }

    /// The run was kicked and has ended for another reason: have the signal delivered before it can
    /// meet that of another run. The runner enters the stub's stop instead of the program.
    fn swallow_kick(&mut self, kick: &Kick) -> Result<(), Error> {
        let mut entry = Registers::at(stub::address(Place::Stop));
        entry.general[4] = SIGNAL_STACK.end;
        self.helpers.area.write(self.slot, ENTRY, Entry::new(&entry, 0));
        self.runner.answer(self.runner_id, 0).map_err(|_| Error::Died)?;
        self.wait_for_runner(kick)
    }

    fn prepare(&self, registers: &Registers, extended: &[u8; EXTENDED_BYTES]) {
        let components = &self.helpers.components;
        let entry = Entry::new(registers, components.mask);
        self.helpers.area.write(self.slot, ENTRY, entry);
        let image = self.helpers.area.bytes(self.slot, ENTRY_EXTENDED, EXTENDED_MAX_BYTES);
        components.copy(extended, image);
    }

    /// Let the runner go, by way of the mapper if there are orders.
    fn resume(&mut self) -> Result<(), Error> {
        if self.orders == 0 {
            return self.runner.answer(self.runner_id, 0).map_err(|_| Error::Died);
        }
        let waiting = self.wait_for_mapper()?;
        let arguments = [RUNNER_FD, NOTIFY_SEND, ANSWER_DONE, 0, 0, 0];
        self.write_step(self.orders + 1, libc::SYS_ioctl, arguments, STEPS.start);
        self.send_orders(waiting, self.runner_id)
    }

    /// Hand the orders to the waiting mapper, which answers the runner's notification, if any.
    fn send_orders(&mut self, waiting: u64, runner_id: u64) -> Result<(), Error> {
        let area = &self.helpers.area;
        area.write(self.slot, ANSWER_DONE, Answer { id: runner_id, ..Answer::default() });
        let failed = Answer { id: runner_id, value: 1, ..Answer::default() };
        area.write(self.slot, ANSWER_FAILED, failed);
        self.orders = 0;
        self.mapper.answer(waiting, 0).map_err(|_| Error::Died)
    }

    /// Wait until the mapper wants orders; returns the notification to be answered.
    fn wait_for_mapper(&mut self) -> Result<u64, Error> {
        if let Some(id) = self.mapper_id.take() {
            return Ok(id);
        }
        let notification = receive(&self.mapper, &self.process, None).ok_or(Error::Died)?;
        let [result, ..] = notification.arguments;
        if result == 0 {
            return Ok(notification.id);
        }
        // It waits all the same, for the orders that will mend it.
        self.mapper_id = Some(notification.id);
        self.orders = 0;
        let code = i32::try_from(result.wrapping_neg()).unwrap_or(0);
        Err(Error::Order { source: io::Error::from_raw_os_error(code) })
    }

    fn wait_for_runner(&mut self, kick: &Kick) -> Result<(), Error> {
        let notification = receive(&self.runner, &self.process, Some(kick)).ok_or(Error::Died)?;
        self.runner_id = notification.id;
        Ok(())
    }

    pub(crate) fn order(&mut self, number: i64, arguments: [u64; 6]) -> Result<(), Error> {
        if self.dead {
            return Err(Error::Died);
        }
        if self.orders == MAX_ORDERS {
            self.flush()?;
        }
        if self.orders == 0 {
            // It may still be looking at the last of the orders before.
            self.mapper_id = Some(self.wait_for_mapper()?);
        }
        self.orders += 1;
        self.write_step(self.orders, number, arguments, step_address(self.orders + 1));
        Ok(())
    }

    fn write_step(&self, index: usize, number: i64, arguments: [u64; 6], next: u64) {
        let (low, high) = (0, i64::MAX);
        let failed = stub::address(Place::OrderFailed);
        let number = number.cast_unsigned();
        let step = Step { number, arguments, low, high, next, zero: next, failed };
        self.helpers.area.write(self.slot, step_address(index), step);
    }

    /// The helper has died, or is about to.
    fn die(&mut self) -> Stop {
        self.dead = true;
        kill(&self.process);
        Stop::Died
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        // The mapper exits because nobody listens to it any more, when the descriptors are closed.
        kill(&self.process);
        self.helpers.give_back(self.slot, Arc::clone(&self.process));
    }
}

/// Wait for a thread to stop. A signal to this thread while it waits for the runner is passed on as a kick.
fn receive(listener: &Listener, process: &OwnedFd, kick: Option<&Kick>) -> Option<Notification> {
    loop {
        let error = match listener.receive() {
            Ok(notification) => return Some(notification),
            Err(error) => error.raw_os_error(),
        };
        match error {
            Some(libc::EINTR) => {
                if let Some(kick) = kick {
                    kick.kick();
                }
            }
            // The notification was withdrawn, because a signal came before this thread received it, or the
            // thread is gone.
            Some(libc::ENOENT) if is_alive(process) && !listener.is_deserted() => {}
            _ => return None,
        }
    }
}

fn kill(process: &OwnedFd) {
    let (nothing, flags) = (std::ptr::null::<libc::siginfo_t>(), 0_u32);
    let process = process.as_raw_fd();
    // SAFETY: ends a process of ours, or fails because it has ended.
    unsafe { libc::syscall(libc::SYS_pidfd_send_signal, process, libc::SIGKILL, nothing, flags) };
}

/// Whether a range can be mapped in any process.
fn check(linear: u64, length: u64) -> Result<(), Error> {
    let complain = |complaint| Err(Error::Range { linear, length, complaint });
    let Some(end) = linear.checked_add(length) else {
        return complain("are not in the user half");
    };
    if length == 0 || !linear.is_multiple_of(PAGE_BYTES) || !length.is_multiple_of(PAGE_BYTES) {
        return complain("are not whole pages");
    }
    if end > USER_END {
        return complain("are not in the user half");
    }
    Ok(())
}
