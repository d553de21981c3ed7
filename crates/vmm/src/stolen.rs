//! How long a processor was ready to run and had no core: the guest's steal time.
//!
//! The host's scheduler accounts for it, but in files, which a confined process cannot open, and
//! threads come and go with each boot. So it is what remains of the time that has passed when the
//! thread's sleep and the processor's computing are taken off, the latter wherever it was done: on
//! the thread itself or in processes that run guest code for it.

use std::time::{Duration, Instant};

use machine::time::Nanoseconds;
use rustix::time::{ClockId, clock_gettime};

/// How often it is worked out.
const PERIOD: Nanoseconds = Nanoseconds(10_000_000);

/// The time of the processor whose thread this is.
#[derive(Debug)]
pub(crate) struct Stolen {
    start: Instant,
    /// What thread and processor had computed by then.
    computed_before: Duration,
    slept: Duration,
    total: Duration,
    due: Nanoseconds,
}

impl Stolen {
    /// On the thread that calls this, whose processor has computed `elsewhere` so far.
    pub(crate) fn of_this_thread(elsewhere: Duration) -> Self {
        Self {
            start: Instant::now(),
            computed_before: computed_here() + elsewhere,
            slept: Duration::ZERO,
            total: Duration::ZERO,
            due: Nanoseconds::default(),
        }
    }

    /// The thread had nothing to do for so long.
    pub(crate) fn slept(&mut self, span: Duration) {
        self.slept += span;
    }

    /// All that was stolen until now, if it is time to say so. `elsewhere` is what the processor has
    /// computed outside this thread.
    pub(crate) fn look(
        &mut self,
        now: Nanoseconds,
        elsewhere: impl FnOnce() -> Duration,
    ) -> Option<Nanoseconds> {
        if now < self.due {
            return None;
        }
        self.due = now.after(PERIOD);
        let computed = (computed_here() + elsewhere()).saturating_sub(self.computed_before);
        let rest = self.start.elapsed().saturating_sub(self.slept).saturating_sub(computed);
        // The clocks are not read at the same moment, but time that was stolen stays so.
        self.total = self.total.max(rest);
        Some(Nanoseconds(u64::try_from(self.total.as_nanos()).unwrap_or(u64::MAX)))
    }
}

/// What the calling thread has had of a core.
fn computed_here() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a thread is told after it has done something, given what was done elsewhere.
    fn check(act: impl FnOnce(&mut Stolen), elsewhere: Duration) -> Duration {
        let mut stolen = Stolen::of_this_thread(Duration::ZERO);
        act(&mut stolen);
        let total = stolen.look(Nanoseconds(0), || elsewhere).expect("it is time");
        Duration::from_nanos(total.0)
    }

    const SPAN: Duration = Duration::from_millis(60);

    #[test]
    fn a_wait_that_is_no_sleep_was_stolen() {
        let stolen = check(|_| std::thread::sleep(SPAN), Duration::ZERO);
        assert!(stolen >= SPAN - Duration::from_millis(1), "{stolen:?}");
    }

    #[test]
    fn neither_sleep_nor_what_others_computed_was_stolen() {
        let sleep = |stolen: &mut Stolen| {
            let start = Instant::now();
            std::thread::sleep(SPAN);
            stolen.slept(start.elapsed());
        };
        // A busy host may take the core away beside the sleep; a fault of ours counts each of them.
        let rest = (0..5).map(|_| check(sleep, Duration::ZERO)).min().expect("there are some");
        assert!(rest < SPAN / 2, "{rest:?}");
        let start = Instant::now();
        let rest = check(|_| std::thread::sleep(SPAN), SPAN);
        assert!(rest <= start.elapsed() - SPAN, "{rest:?}");
    }

    #[test]
    fn computing_was_not_stolen() {
        let compute = |_: &mut Stolen| {
            let start = computed_here();
            while computed_here() - start < SPAN {
                std::hint::spin_loop();
            }
        };
        let start = Instant::now();
        let stolen = check(compute, Duration::ZERO);
        assert!(stolen <= start.elapsed() - SPAN, "{stolen:?} of {:?}", start.elapsed());
    }

    #[test]
    fn it_is_worked_out_now_and_then_and_never_falls() {
        let mut stolen = Stolen::of_this_thread(Duration::ZERO);
        std::thread::sleep(SPAN);
        let first = stolen.look(Nanoseconds(50), || Duration::ZERO).expect("the first time");
        assert_eq!(stolen.look(Nanoseconds(60), || Duration::ZERO), None);
        let later = Nanoseconds(60).after(PERIOD);
        assert_eq!(stolen.look(later, || SPAN * 100), Some(first));
    }
}
