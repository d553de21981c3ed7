//! What one processor's thread has promised to do for the disks ([`crate::disk::errands`]), and when it does.

use std::time::Duration;

use machine::time::{Clock, Nanoseconds};

use crate::disk::errands::{Disks, LEAVE_AFTER, MOST_RINGS, MOST_UNHELPED};
use crate::patience::Patience;

/// See above.
pub(super) struct Errands<'a> {
    disks: &'a Disks,
    /// Doorbells since the last halt.
    rings: u32,
    /// When what is left for a halt is left to others.
    due: Option<Nanoseconds>,
    /// Of waiting for a halt.
    halts: Patience,
}

impl<'a> Errands<'a> {
    /// None yet.
    pub(super) fn new(disks: &'a Disks) -> Self {
        Self { disks, rings: 0, due: None, halts: Patience::new(MOST_UNHELPED) }
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
            self.leave();
        }
        jobs
    }

    #[cold]
    fn attend_now(&mut self, clock: &dyn Clock) -> u64 {
        self.rings = self.rings.saturating_add(1);
        if self.rings > MOST_RINGS {
            self.leave();
            return 0;
        }
        let errand = self.disks.attend();
        match errand.is_left {
            true if self.due.is_some() || self.halts.tries() => {
                let due = clock.now().after(Nanoseconds(LEAVE_AFTER.as_nanos() as u64));
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
        if free < self.disks.needed() || is_called() {
            self.leave();
            return false;
        }
        true
    }

    /// Help with it; how many jobs were done.
    pub(super) fn help(&mut self, clock: &dyn Clock) -> u64 {
        let errand = self.disks.help();
        let due = clock.now().after(Nanoseconds(LEAVE_AFTER.as_nanos() as u64));
        self.due = errand.is_left.then_some(due);
        errand.jobs
    }

    /// Leave everything to the disks' threads.
    pub(super) fn leave(&mut self) {
        self.due = None;
        self.disks.leave();
    }
}
