//! Sleeping and being woken.
//!
//! A word says how it is with a processor's thread:
//!
//! ```text
//!            sleep                     wake
//!  AWAKE ------------> SLEEPING ------------> NOTIFIED (and a futex call)
//!    |  <--- looked ---                         |
//!    '---------------- wake --------------------'  (and a kick)
//! ```
//!
//! Outside of the guest, a processor is OUTSIDE, which becomes NOTIFIED without a kick.
//!
//! Whoever has something for the processor leaves it first and then calls [`Waker::wake`]; the
//! thread makes the word AWAKE before it looks. So a processor that is about to sleep does not, and
//! one that was woken and has not looked yet is not woken again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::event::Timespec;
use rustix::io::Errno;
use rustix::thread::futex;

use crate::processor::Kick;

const AWAKE: u32 = 0;
const SLEEPING: u32 = 1;
const NOTIFIED: u32 = 2;
const OUTSIDE: u32 = 3;

/// Makes a processor look at the machine again, whether it computes or sleeps; from any thread.
#[derive(Debug, Clone)]
pub struct Waker {
    kick: Arc<dyn Kick>,
    state: Arc<AtomicU32>,
    /// Since when time is counted here.
    epoch: Instant,
    /// When another thread last found this one asleep, in nanoseconds.
    found_asleep: Arc<AtomicU64>,
}

impl Waker {
    /// A waker for the processor behind `kick`.
    pub fn new(kick: Arc<dyn Kick>) -> Self {
        let (state, found_asleep) = (Arc::new(AtomicU32::new(AWAKE)), Arc::default());
        Self { kick, state, epoch: Instant::now(), found_asleep }
    }

    /// Wake the processor.
    pub fn wake(&self) {
        if self.state.load(Ordering::SeqCst) == SLEEPING {
            self.found_asleep.store(self.now(), Ordering::SeqCst);
        }
        match self.state.swap(NOTIFIED, Ordering::SeqCst) {
            AWAKE => self.kick.kick(),
            SLEEPING => {
                // That nobody sleeps any more is as good.
                let _ = futex::wake(&self.state, futex::Flags::PRIVATE, 1);
            }
            _ => {}
        }
    }

    fn now(&self) -> u64 {
        self.epoch.elapsed().as_nanos() as u64
    }

    // The processor's own thread.

    /// What it was woken for is about to be looked at; whether it was woken.
    #[inline]
    pub(crate) fn looks(&self) -> bool {
        self.state.swap(AWAKE, Ordering::SeqCst) == NOTIFIED
    }

    /// The guest does not run; we will look before it does, or before we sleep. Until then nobody
    /// needs to kick us.
    #[inline]
    pub(crate) fn is_about_to_look(&self) {
        let order = Ordering::SeqCst;
        // Who has been woken already stays that.
        let _ = self.state.compare_exchange(AWAKE, OUTSIDE, order, order);
    }

    /// Whether it has been woken and has not looked yet.
    #[inline]
    pub(crate) fn is_notified(&self) -> bool {
        self.state.load(Ordering::Relaxed) == NOTIFIED
    }

    /// Sleep until another thread wakes this one, at most for `span`; for ever without one. How long there was
    /// nothing to do: the time from then on until the host has found a core for us does not count.
    pub(crate) fn sleep(&self, span: Option<Duration>) -> Duration {
        let start = self.now();
        let order = Ordering::SeqCst;
        if self.state.compare_exchange(AWAKE, SLEEPING, order, order).is_ok() {
            let timeout = span.map(|span| Timespec {
                tv_sec: i64::try_from(span.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: i64::from(span.subsec_nanos()),
            });
            let flags = futex::Flags::PRIVATE;
            while let Err(Errno::INTR) = futex::wait(&self.state, flags, SLEEPING, timeout.as_ref())
            {
                // A signal that is not for us would make a wait without a limit begin again; with
                // one, the caller works out what is left of it.
                if timeout.is_some() {
                    break;
                }
            }
        }
        self.slept(start, span)
    }

    /// The same with a word of another process's: also until that one changes, or until a time on the host's monotonic
    /// clock. It may end earlier.
    pub(crate) fn sleep_for(&self, word: gates::Word<'_>, until: u64) {
        let order = Ordering::SeqCst;
        if self.state.compare_exchange(AWAKE, SLEEPING, order, order).is_ok() {
            let own = gates::Word { word: &self.state, value: SLEEPING, is_shared: false };
            gates::wait_for_any(&[own, word], Some(until));
        }
        self.looks();
    }

    /// A sleep that began at `start` is over; how long there was nothing to do.
    fn slept(&self, start: u64, span: Option<Duration>) -> Duration {
        let order = Ordering::SeqCst;
        let mut end = self.now();
        if self.is_notified() && (start..end).contains(&self.found_asleep.load(order)) {
            end = self.found_asleep.load(order);
        }
        self.looks();
        let slept = Duration::from_nanos(end.saturating_sub(start));
        span.map_or(slept, |span| slept.min(span))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[derive(Debug, Default)]
    struct Kicks(AtomicU32);

    impl Kick for Kicks {
        fn kick(&self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn waker() -> (Waker, Arc<Kicks>) {
        let kicks = Arc::new(Kicks::default());
        (Waker::new(Arc::clone(&kicks) as Arc<dyn Kick>), kicks)
    }

    #[test]
    fn who_computes_is_kicked_once() {
        let (waker, kicks) = waker();
        waker.wake();
        waker.wake();
        assert_eq!(kicks.0.load(Ordering::SeqCst), 1);
        assert!(waker.is_notified());
        waker.looks();
        waker.wake();
        assert_eq!(kicks.0.load(Ordering::SeqCst), 2);
    }

    #[test]
    fn who_was_woken_does_not_fall_asleep() {
        let (waker, _) = waker();
        waker.wake();
        waker.sleep(None);
        assert!(!waker.is_notified());
    }

    #[test]
    fn sleep_ends_with_its_time() {
        let (waker, kicks) = waker();
        let start = Instant::now();
        let span = Duration::from_millis(20);
        let slept = waker.sleep(Some(span));
        assert!(start.elapsed() >= span && slept == span, "{slept:?}");
        assert_eq!(kicks.0.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn sleep_counts_until_somebody_wakes_us() {
        let (waker, _) = waker();
        let its_waker = waker.clone();
        let start = Instant::now();
        let other = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            its_waker.wake();
        });
        let slept = waker.sleep(None);
        assert!(slept > Duration::ZERO && slept <= start.elapsed(), "{slept:?}");
        other.join().unwrap();
    }

    #[test]
    fn no_wake_is_lost() {
        let (waker, kicks) = waker();
        let turn = Arc::new(AtomicU32::new(0));
        let (its_waker, its_turn) = (waker.clone(), Arc::clone(&turn));
        // The other side wakes for each number and goes on when it has been seen.
        let other = std::thread::spawn(move || {
            for number in 1..=20_000 {
                its_turn.store(number, Ordering::SeqCst);
                its_waker.wake();
                while its_turn.load(Ordering::SeqCst) == number {
                    std::thread::yield_now();
                }
            }
        });
        for number in 1..=20_000 {
            while turn.load(Ordering::SeqCst) != number {
                waker.sleep(None);
            }
            turn.store(0, Ordering::SeqCst);
        }
        other.join().unwrap();
        assert!(kicks.0.load(Ordering::SeqCst) <= 20_000);
    }
}
