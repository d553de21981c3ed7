//! Polling for what another thread or process is about to do, where waking a sleeping thread would
//! cost more.

use std::time::{Duration, Instant};

use crate::limits::{LEAST_WATCH, MOST_WATCH, POLLS_PER_READING};

/// Look for something for so long at most; whether it was there.
#[inline]
pub fn watch(span: Duration, mut is_there: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while start.elapsed() < span {
        for _ in 0..POLLS_PER_READING {
            if is_there() {
                return true;
            }
            std::hint::spin_loop();
        }
    }
    false
}

/// How long a thread watches before it sleeps, found by trying: longer if a wait was a little longer than the watch,
/// not at all if it was much longer, which it is where nothing happens, or where others have the cores.
#[derive(Debug, Default)]
pub struct Patience {
    span: Duration,
    /// When this wait began.
    start: Option<Instant>,
}

impl Patience {
    /// A wait begins: watch for a moment, if that is worth it; whether it is over.
    pub fn watch(&mut self, is_there: impl FnMut() -> bool) -> bool {
        self.start = Some(Instant::now());
        let is_over = !self.span.is_zero() && watch(self.span, is_there);
        if is_over {
            self.start = None;
        }
        is_over
    }

    /// The wait is over after a sleep.
    pub fn woken(&mut self) {
        if let Some(start) = self.start.take() {
            self.learn(start.elapsed());
        }
    }

    fn learn(&mut self, took: Duration) {
        self.span = match took {
            _ if took > MOST_WATCH => Duration::ZERO,
            _ if took > self.span => (self.span * 2).clamp(LEAST_WATCH, MOST_WATCH),
            _ => self.span,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_grows_with_short_waits_and_ends_with_a_long_one() {
        let mut patience = Patience::default();
        assert!(!patience.watch(|| panic!("nothing is worth it yet")));
        for expected in [1, 2, 4] {
            patience.learn(MOST_WATCH / 2);
            assert_eq!(patience.span, LEAST_WATCH * expected);
        }
        assert!(patience.watch(|| true));
        assert_eq!(patience.start, None);
        patience.learn(MOST_WATCH * 2);
        assert_eq!(patience.span, Duration::ZERO);
    }

    #[test]
    fn it_ends_with_what_is_there_or_with_the_time() {
        let mut looks = 0;
        let third = || {
            looks += 1;
            looks == 3
        };
        assert!(watch(Duration::from_secs(60), third));
        assert_eq!(looks, 3);
        assert!(!watch(Duration::from_micros(50), || false));
        assert!(!watch(Duration::ZERO, || true), "there is no time to look");
    }
}
