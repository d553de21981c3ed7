//! What one processor's thread has promised to do for the disks ([`crate::devices::disk::errands`]), and when it does.

use std::time::Duration;

use machine::time::{Clock, Nanoseconds};

use crate::devices::backoff::Backoff;
use crate::devices::disk::errands::Disks;
use crate::devices::disk::thresholds::{LEAVE_AFTER, LEAVE_AFTER_MOST, MOST_RINGS, MOST_UNHELPED};

/// See above.
pub(super) struct Errands<'a> {
    disks: &'a Disks,
    /// Doorbells since the last halt.
    rings: u32,
    /// When what is left for a halt is left to others.
    due: Option<Nanoseconds>,
    /// How long after a doorbell, or an errand, that is.
    grace: Grace,
    /// Of waiting for a halt.
    halts: Backoff,
    /// Of attending to a guest that does not halt: in vain when nothing that it asked for was at hand.
    briefs: Backoff,
}

/// How long a guest has until it halts: longer with each halt that came in time.
#[derive(Debug, Clone, Copy)]
struct Grace(Duration);

impl Grace {
    fn new() -> Self {
        Self(LEAVE_AFTER)
    }

    fn grow(&mut self) {
        self.0 = (self.0 + LEAVE_AFTER).min(LEAVE_AFTER_MOST);
    }

    /// When it is over, if it begins now.
    fn end(self, clock: &dyn Clock) -> Nanoseconds {
        clock.now().after(Nanoseconds(self.0.as_nanos() as u64))
    }
}

impl<'a> Errands<'a> {
    /// None yet.
    pub(super) fn new(disks: &'a Disks) -> Self {
        Self {
            disks,
            rings: 0,
            due: None,
            grace: Grace::new(),
            halts: Backoff::new(MOST_UNHELPED),
            briefs: Backoff::new(MOST_UNHELPED),
        }
    }

    /// When the processor is to be back.
    pub(super) fn due(&self) -> Option<Nanoseconds> {
        self.due
    }

    /// After an exit: attend to a doorbell, if one was rung; how many jobs were done. What has been left for too
    /// long is left to others.
    #[inline]
    pub(super) fn attend(&mut self, clock: &dyn Clock) -> u64 {
        let jobs = if self.disks.take_rung() { self.attend_now(clock) } else { 0 };
        if self.due.is_some_and(|due| due <= clock.now()) {
            self.halts.learn(true);
            self.grace = Grace::new();
            self.leave();
        }
        jobs
    }

    #[cold]
    fn attend_now(&mut self, clock: &dyn Clock) -> u64 {
        self.rings = self.rings.saturating_add(1);
        let waits = self.rings <= MOST_RINGS;
        if !waits && !self.briefs.tries() {
            self.leave();
            return 0;
        }
        let errand = self.disks.attend(!waits);
        if !waits {
            self.briefs.learn(errand.jobs == 0);
        }
        match errand.is_left {
            true if waits && (self.due.is_some() || self.halts.tries()) => {
                let due = self.grace.end(clock);
                self.due.get_or_insert(due);
            }
            true => self.leave(),
            false => {}
        }
        errand.jobs
    }

    /// The guest halts, and nothing of its own is due for as long as it is `free`: whether something is left to
    /// help with. If there is no time for it, it is left to others.
    pub(super) fn begin_halt(&mut self, free: Duration, is_called: impl FnOnce() -> bool) -> bool {
        self.rings = 0;
        if self.due.is_none() {
            return false;
        }
        self.halts.learn(false);
        self.grace.grow();
        if free < self.disks.needed() || is_called() {
            self.leave();
            return false;
        }
        true
    }

    /// Help with it; how many jobs were done.
    pub(super) fn help(&mut self, clock: &dyn Clock) -> u64 {
        let errand = self.disks.help();
        self.due = errand.is_left.then(|| self.grace.end(clock));
        errand.jobs
    }

    /// Leave everything to the disks' threads.
    pub(super) fn leave(&mut self) {
        self.due = None;
        self.disks.leave();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_that_halts_in_time_has_more_of_it_up_to_a_limit() {
        let mut grace = Grace::new();
        let after = |grace: &mut Grace, halts: u32| {
            (0..halts).for_each(|_| grace.grow());
            grace.0
        };
        assert_eq!(after(&mut grace, 0), LEAVE_AFTER);
        assert_eq!(after(&mut grace, 3), 4 * LEAVE_AFTER);
        assert_eq!(after(&mut grace, 1000), LEAVE_AFTER_MOST);
    }
}
