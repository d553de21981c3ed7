//! What a processor's thread does when its guest has nothing to do.
//!
//! To sleep and to be woken costs the host several microseconds on each side. A guest whose
//! processors talk to each other halts for less than that, again and again; then it is better to
//! watch for a moment. How long is found by trying, as KVM does (Linux,
//! Documentation/virt/kvm/halt-polling.rst): longer if a halt was a little longer than the watch,
//! not at all if it was much longer, which it is on an idle machine. And a thread watches only while
//! every processor that is awake can have a core of its own: it must not take the core of the one
//! that it waits for. How many others there are on the host nobody says; but who was kept waiting for a core himself
//! knows that they are wanted, and does not watch then.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use machine::time::{Clock, Nanoseconds};

use crate::waker::Waker;

/// The longest watch: what sleeping and waking cost, several times over.
const MOST_WATCH_NANOSECONDS: u64 = 200_000;

/// The shortest.
const LEAST_WATCH_NANOSECONDS: u64 = 10_000;

/// Sleep ends this much before a deadline, and the rest is watched away: what the host needs to
/// wake a thread.
const WAKE_UP_NANOSECONDS: u64 = 20_000;

/// How many of a machine's processors are awake, and how many cores there are for them.
#[derive(Debug)]
pub(crate) struct Occupancy {
    awake: AtomicUsize,
    cores: usize,
}

impl Occupancy {
    /// No vCPU is awake yet.
    pub(crate) fn new() -> Arc<Self> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Arc::new(Self { awake: AtomicUsize::new(0), cores })
    }

    /// A processor's thread starts.
    pub(crate) fn enter(&self) {
        self.awake.fetch_add(1, Ordering::Relaxed);
    }

    /// A processor's thread ends.
    pub(crate) fn leave(&self) {
        self.awake.fetch_sub(1, Ordering::Relaxed);
    }

    fn has_room(&self) -> bool {
        self.awake.load(Ordering::Relaxed) <= self.cores
    }

    fn has_room_for_another(&self) -> bool {
        self.awake.load(Ordering::Relaxed) < self.cores
    }
}

/// The idle time of one processor.
#[derive(Debug)]
pub(crate) struct Idle {
    occupancy: Arc<Occupancy>,
    /// How long to watch before the next sleep.
    watch: u64,
    /// When this wait began.
    start: Nanoseconds,
    /// How much time was stolen from this processor until when.
    stolen: (Nanoseconds, Nanoseconds),
    /// Others want the cores.
    is_contended: bool,
}

/// The part of its time that a processor is kept waiting for a core, from which on it is contended for.
const CONTENDED_PART: u64 = 16;

impl Idle {
    /// On the thread that calls this.
    pub(crate) fn new(occupancy: Arc<Occupancy>) -> Self {
        // No later than asked for; the default is 50 microseconds (prctl(2), PR_SET_TIMERSLACK).
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        let none = Nanoseconds::default();
        Self { occupancy, watch: 0, start: none, stolen: (none, none), is_contended: false }
    }

    /// Whether every processor that is awake can have a core.
    pub(crate) fn has_room(&self) -> bool {
        self.occupancy.has_room()
    }

    /// Whether a thread that works for a vCPU which is awake can have a core, too.
    pub(crate) fn has_room_for_another(&self) -> bool {
        self.occupancy.has_room_for_another()
    }

    /// So much time was stolen from the processor until now.
    pub(crate) fn note_stolen(&mut self, total: Nanoseconds, now: Nanoseconds) {
        let (before, then) = std::mem::replace(&mut self.stolen, (total, now));
        self.is_contended = total.since(before).0 > now.since(then).0 / CONTENDED_PART;
    }

    /// Watch for a moment, if that is worth it; whether the wait is over: a thread has woken the
    /// processor, or `deadline` has come.
    pub(crate) fn watch(
        &mut self,
        waker: &Waker,
        clock: &dyn Clock,
        deadline: Option<Nanoseconds>,
    ) -> bool {
        let now = clock.now();
        self.start = now;
        let end = deadline.unwrap_or(Nanoseconds::NEVER);
        if end <= now || waker.is_notified() {
            return true;
        }
        // A deadline too near to sleep until is watched for.
        let near = end.since(now).0 <= WAKE_UP_NANOSECONDS;
        let watched = if near { end } else { now.after(Nanoseconds(self.watch)).min(end) };
        let is_worth_it = self.occupancy.has_room() && (near || !self.is_contended);
        is_worth_it && (watch(waker, clock, watched) || watched == end)
    }

    /// Sleep until another thread wakes the vCPU, until `deadline` at the latest; how long there was
    /// nothing to do.
    pub(crate) fn sleep(
        &mut self,
        waker: &Waker,
        clock: &dyn Clock,
        deadline: Option<Nanoseconds>,
    ) -> Duration {
        let early = Duration::from_nanos(WAKE_UP_NANOSECONDS);
        let span = deadline.map(|end| left(clock, end).saturating_sub(early));
        self.occupancy.leave();
        let slept = waker.sleep(span);
        self.occupancy.enter();
        let now = clock.now();
        self.learn(now.since(self.start).0);
        if let Some(end) = deadline
            && end.since(now).0 <= WAKE_UP_NANOSECONDS
            && self.occupancy.has_room()
        {
            watch(waker, clock, end);
        }
        slept
    }

    /// Wait for something else than the guest's work; how long that took.
    pub(crate) fn stand_still(&self, wait: impl FnOnce()) -> Duration {
        let start = Instant::now();
        self.occupancy.leave();
        wait();
        self.occupancy.enter();
        start.elapsed()
    }

    /// What would have been the right time to watch for a halt that took `took`?
    fn learn(&mut self, took: u64) {
        self.watch = match took {
            _ if took > MOST_WATCH_NANOSECONDS => 0,
            _ if took > self.watch => {
                (self.watch * 2).clamp(LEAST_WATCH_NANOSECONDS, MOST_WATCH_NANOSECONDS)
            }
            _ => self.watch,
        };
    }
}

/// Poll until another thread wakes the vCPU, which is said, or until `end`.
fn watch(waker: &Waker, clock: &dyn Clock, end: Nanoseconds) -> bool {
    host::watch(left(clock, end), || waker.is_notified())
}

/// How long it is until `end`.
pub(crate) fn left(clock: &dyn Clock, end: Nanoseconds) -> Duration {
    Duration::from_nanos(end.since(clock.now()).0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The watch after halts that took so many microseconds.
    fn check(halts: &[u64], expected: u64) {
        let mut idle = Idle::new(Occupancy::new());
        halts.iter().for_each(|halt| idle.learn(halt * 1000));
        assert_eq!(idle.watch, expected * 1000, "{halts:?}");
    }

    #[test]
    fn the_watch_grows_while_halts_are_short_and_ends_with_a_long_one() {
        check(&[], 0);
        check(&[30], 10);
        check(&[30, 30], 20);
        check(&[30, 30, 30, 30], 40);
        check(&[90, 90, 90, 90, 90, 90], 160);
        check(&[190, 190, 190, 190, 190, 190, 190], 200);
        check(&[90, 90, 4000], 0);
        check(&[4000, 4000], 0);
    }

    #[test]
    fn who_was_kept_waiting_does_not_watch() {
        let mut idle = Idle::new(Occupancy::new());
        let mut check = |total: u64, now: u64, expected| {
            idle.note_stolen(Nanoseconds(total * 1000), Nanoseconds(now * 1000));
            assert_eq!(idle.is_contended, expected, "{total} us stolen until {now} us");
        };
        check(100, 10_000, false);
        check(1_000, 20_000, true);
        check(1_000, 30_000, false);
        check(2_000, 90_000, false);
    }

    #[test]
    fn nobody_watches_on_the_core_of_another() {
        let occupancy = Occupancy::new();
        assert!(occupancy.has_room());
        (0..=occupancy.cores).for_each(|_| occupancy.enter());
        assert!(!occupancy.has_room());
        occupancy.leave();
        assert!(occupancy.has_room());
    }
}
