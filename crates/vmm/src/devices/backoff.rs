//! Exponential back-off: an attempt that keeps failing is made less and less often.

use std::sync::atomic::{AtomicU32, Ordering};

/// Whether to try something that may be in vain: after each time in vain that follows another, twice as many
/// occasions pass untried, up to a limit; once it was not, none does.
#[derive(Debug)]
pub(crate) struct Backoff {
    most: u32,
    /// How many occasions were to pass after the last try, and how many of them are to come.
    untried: AtomicU32,
    to_come: AtomicU32,
}

impl Backoff {
    /// At most so many occasions pass untried.
    pub(crate) fn new(most: u32) -> Self {
        Self { most, untried: AtomicU32::new(0), to_come: AtomicU32::new(0) }
    }

    /// An occasion: whether to try.
    pub(crate) fn tries(&self) -> bool {
        let order = Ordering::Relaxed;
        self.to_come.fetch_update(order, order, |count| count.checked_sub(1)).is_err()
    }

    /// How it went.
    pub(crate) fn learn(&self, was_in_vain: bool) {
        let order = Ordering::Relaxed;
        let untried = match was_in_vain {
            true => (2 * self.untried.load(order) + 1).min(self.most),
            false => 0,
        };
        self.untried.store(untried, order);
        self.to_come.store(untried, order);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many occasions pass between tries, after each of these outcomes.
    fn check(in_vain: &[bool], expected: &[usize]) {
        let backoff = Backoff::new(5);
        for (outcome, expected) in in_vain.iter().zip(expected) {
            assert!(backoff.tries());
            backoff.learn(*outcome);
            let untried = (0..*expected).filter(|_| !backoff.tries()).count();
            assert_eq!(untried, *expected, "{in_vain:?}");
        }
        assert!(backoff.tries());
    }

    #[test]
    fn what_is_in_vain_is_tried_more_seldom() {
        check(&[false, false], &[0, 0]);
        check(&[true, true, true, true], &[1, 3, 5, 5]);
        check(&[true, true, false, true], &[1, 3, 0, 1]);
    }
}
