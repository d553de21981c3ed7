//! What a domain with a cap may still use.

use std::time::Duration;

use crate::limits::{CAP_PERIOD, DEBT_MAX, SLICE_MIN};
use crate::policy::Cap;

/// See above. What was used too much of one period is missing in the next.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Budget {
    cap: Cap,
    /// In nanoseconds; less than none after it has used too much.
    left: i64,
    /// When it gets more.
    refill: Duration,
}

fn nanoseconds(span: Duration) -> i64 {
    i64::try_from(span.as_nanos()).unwrap_or(i64::MAX)
}

impl Budget {
    /// Of a period that begins when it is first looked at.
    pub(crate) fn new(cap: Cap) -> Self {
        Self { cap, left: 0, refill: Duration::ZERO }
    }

    /// With another cap from the next period on.
    pub(crate) fn set_cap(&mut self, cap: Cap) {
        self.cap = cap;
        self.left = self.left.min(nanoseconds(cap.of(CAP_PERIOD)));
    }

    /// Time has passed.
    pub(crate) fn advance(&mut self, now: Duration) {
        if self.refill.is_zero() {
            self.left = nanoseconds(self.cap.of(CAP_PERIOD));
            self.refill = now + CAP_PERIOD;
        }
        let mut periods = 0;
        while self.refill <= now && periods < 2 {
            self.refill += CAP_PERIOD;
            periods += 1;
        }
        if self.refill <= now {
            self.refill = now + CAP_PERIOD;
        }
        let each = nanoseconds(self.cap.of(CAP_PERIOD));
        // What is too little to be used at once is not lost.
        let most = each + nanoseconds(SLICE_MIN);
        self.left = self.left.saturating_add(each * periods).min(most);
    }

    /// So much was used.
    pub(crate) fn charge(&mut self, used: Duration) {
        self.left = self.left.saturating_sub(nanoseconds(used)).max(-nanoseconds(DEBT_MAX));
    }

    /// What is left for one of so many vCPUs, if it is worth while.
    pub(crate) fn slice(&self, vcpus: u32) -> Option<Duration> {
        let left = Duration::from_nanos(u64::try_from(self.left).unwrap_or(0));
        let each = left / vcpus.max(1);
        (left >= SLICE_MIN).then(|| each.max(SLICE_MIN))
    }

    /// When there is more.
    pub(crate) fn refill(&self) -> Duration {
        self.refill
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn what_was_used_too_much_is_missing_in_the_next_period() {
        let mut budget = Budget::new(Cap::new(25).unwrap());
        budget.advance(MS);
        assert_eq!(budget.slice(1), Some(25 * MS));
        assert_eq!(budget.slice(2), Some(25 * MS / 2));
        budget.charge(30 * MS);
        assert_eq!(budget.slice(1), None);
        budget.advance(100 * MS);
        assert_eq!(budget.slice(1), None);
        budget.advance(101 * MS);
        assert_eq!(budget.slice(1), Some(20 * MS));
    }

    #[test]
    fn nobody_owes_more_than_that() {
        let mut budget = Budget::new(Cap::new(100).unwrap());
        budget.advance(MS);
        budget.charge(100 * DEBT_MAX);
        // From then on, so much time pays it off.
        let paid = MS + DEBT_MAX;
        (0..).map(|n| MS * n).take_while(|now| *now < paid).for_each(|now| budget.advance(now));
        assert_eq!(budget.slice(1), None);
        budget.advance(paid + CAP_PERIOD);
        assert!(budget.slice(1).is_some());
    }

    #[test]
    fn what_was_not_used_is_lost() {
        let mut budget = Budget::new(Cap::new(50).unwrap());
        budget.advance(MS);
        budget.advance(1000 * MS);
        assert!(budget.slice(1) <= Some(50 * MS + SLICE_MIN));
        budget.charge(50 * MS);
        assert!(budget.refill() > 1000 * MS);
    }
}
