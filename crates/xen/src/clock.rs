//! When a domain's time started.

use machine::paravirtual::MachineClock;
use machine::time::{Clock, Nanoseconds};

/// When a domain's time started, and how it goes on.
pub(crate) struct DomainTime {
    pub(crate) origin: Nanoseconds,
    pub(crate) clock: MachineClock,
}

impl DomainTime {
    /// It starts now.
    pub(crate) fn new(clock: &dyn Clock) -> Self {
        let origin = clock.now();
        Self { origin, clock: MachineClock::new(origin) }
    }
}
