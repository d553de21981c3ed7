//! When a domain's time started.

use machine::paravirtual::MachineClock;
use machine::saved::CounterShift;
use machine::time::{Clock, Nanoseconds};
use serde::{Deserialize, Serialize};

/// When a domain's time started, and how it goes on.
#[derive(Serialize, Deserialize)]
pub(crate) struct DomainTime {
    pub(crate) origin: Nanoseconds,
    pub(crate) clock: MachineClock,
    /// How far the guest's time-stamp counter is ahead of the host's (mod 2^64): the host where the domain goes on may
    /// be behind the one where it was.
    pub(crate) counter_offset: u64,
}

impl DomainTime {
    /// It starts now.
    pub(crate) fn new(clock: &dyn Clock) -> Self {
        let origin = clock.now();
        Self { origin, clock: MachineClock::new(origin), counter_offset: 0 }
    }

    /// The same on a host with another time-stamp counter.
    pub(crate) fn moved(self, shift: CounterShift) -> Self {
        let counter_offset = self.counter_offset.wrapping_add(shift.guest);
        Self { clock: self.clock.moved(shift), counter_offset, ..self }
    }
}
