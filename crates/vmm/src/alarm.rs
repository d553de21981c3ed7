//! Bringing a processor that computes back at a deadline. (One that sleeps wakes by itself.)
//!
//! The timer is the processor's own: its signal comes to the thread that computes, or that waits for a helper
//! process that does. A thread for all alarms of a machine would have to be woken first, and to have a core.
//!
//! That it has gone off is said by the processor, not inferred from the clock: the machine's clock and
//! the host's timers run apart by some parts in a million, and a machine that believed an alarm to be
//! still ahead that has come a little early would wait for it in vain.

use std::time::Duration;

use machine::time::Nanoseconds;

use crate::processor::Processor;

/// When a processor is to come back.
#[derive(Debug)]
pub(crate) struct Alarm {
    /// When it is set to go off; never, if not set.
    armed: Nanoseconds,
}

impl Default for Alarm {
    fn default() -> Self {
        Self { armed: Nanoseconds::NEVER }
    }
}

impl Alarm {
    /// See to it that `processor` comes back at `deadline` at the latest. Costs nothing when it already
    /// would.
    ///
    /// # Errors
    ///
    /// As [`Processor::set_alarm`].
    #[inline]
    pub(crate) fn set(
        &mut self,
        processor: &mut impl Processor,
        deadline: Nanoseconds,
        now: impl FnOnce() -> Nanoseconds,
    ) -> Result<(), cpu::Error> {
        if processor.take_alarm() {
            self.armed = Nanoseconds::NEVER;
        }
        if deadline < self.armed {
            self.armed = deadline;
            processor.set_alarm(Duration::from_nanos(deadline.since(now()).0))?;
        }
        Ok(())
    }

    /// The processor sleeps and wakes by itself.
    pub(crate) fn unset(&mut self, processor: &mut impl Processor) {
        if self.armed != Nanoseconds::NEVER {
            self.armed = Nanoseconds::NEVER;
            processor.clear_alarm();
        }
    }
}
