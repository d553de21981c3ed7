//! Whether a domain takes what it is not given.
//!
//! Using more than was given is no sin. A domain's devices have threads of their own, which no permit stops, and what
//! is in flight when its last permit ends is still done; what that takes is charged, and the domain gets fewer permits
//! for it. A vCPU comes out late on a host that is busy. All of that comes to an end soon when there are no more
//! permits. A domain that ignores them does not: it is charged as well, until it is given nothing at all, and goes on
//! all the same. So what counts is computing that does not cease although not the shortest permit has been given, for
//! [`OVERDRAFT_PATIENCE`] periods in a row. A domain that has been found out is known, and found out sooner after that.

use std::time::Duration;

use crate::limits::{OVERDRAFT_MEMORY, OVERDRAFT_PATIENCE, OVERDRAFT_PERIOD, OVERDRAFT_SHARE};

/// What one domain has used since it was last given anything.
#[derive(Debug, Clone, Copy, Default)]
pub struct Overdraft {
    /// When the present period began.
    since: Duration,
    /// What was used in it.
    used: Duration,
    /// The periods before it, in a row, in which it computed without permission.
    periods: u32,
    /// How often it was found out, and when it was last.
    found: u32,
    last: Duration,
}

impl Overdraft {
    /// It was given and has used so much until now; whether it takes what it is not given.
    pub fn observe(&mut self, given: Duration, used: Duration, now: Duration) -> bool {
        if !given.is_zero() {
            self.forget(now);
            return false;
        }
        self.used += used;
        let passed = now.saturating_sub(self.since);
        if passed < OVERDRAFT_PERIOD {
            return false;
        }
        let computes = self.used >= passed / OVERDRAFT_SHARE;
        let periods = if computes { self.periods + 1 } else { 0 };
        (self.since, self.used, self.periods) = (now, Duration::ZERO, periods);
        if now.saturating_sub(self.last) > OVERDRAFT_MEMORY {
            self.found = 0;
        }
        let patience = if self.found == 0 { OVERDRAFT_PATIENCE } else { 1 };
        if periods < patience {
            return false;
        }
        (self.periods, self.found, self.last) = (0, self.found + 1, now);
        true
    }

    /// Nothing was withheld until now, or it is not known whether anything was.
    pub fn forget(&mut self, now: Duration) {
        (self.since, self.used, self.periods) = (now, Duration::ZERO, 0);
    }

    /// How often it was found out lately.
    #[must_use]
    pub fn found(&self) -> u32 {
        self.found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// When a domain is found out that is given and uses so much in every millisecond.
    fn found(given: impl Fn(u32) -> Duration, used: impl Fn(u32) -> Duration) -> Option<u32> {
        let mut overdraft = Overdraft::default();
        (1..10_000).find(|&n| overdraft.observe(given(n), used(n), n * MS))
    }

    #[test]
    fn who_uses_more_than_it_is_given_is_left_alone_while_it_is_given_anything() {
        // Devices that compute twenty times as long as the vCPU, a permit of 5 ms in half a second.
        let given = |n| if n % 500 < 5 { MS } else { Duration::ZERO };
        assert_eq!(found(given, |_| 2 * MS), None);
    }

    #[test]
    fn work_that_comes_to_an_end_is_none_of_ours() {
        // What is in flight takes a second; a long silence after that; and so on.
        let used = |n| if n % 3000 < 1000 { MS } else { Duration::ZERO };
        assert_eq!(found(|_| Duration::ZERO, used), None);
        // A little is always done, for those who ask how the domain is.
        assert_eq!(found(|_| Duration::ZERO, |_| MS / 16), None);
    }

    #[test]
    fn who_goes_on_without_any_permit_is_found_and_then_known() {
        let all = OVERDRAFT_PERIOD * OVERDRAFT_PATIENCE;
        let end = found(|_| Duration::ZERO, |_| MS).map(|n| n * MS);
        assert_eq!(end, Some(all));
        let mut overdraft = Overdraft::default();
        let times = (1..4000).filter(|&n| overdraft.observe(Duration::ZERO, MS, n * MS));
        let times: Vec<Duration> = times.map(|n| n * MS).collect();
        assert_eq!(times[..2], [all, all + OVERDRAFT_PERIOD]);
        assert!(overdraft.found() > 5);
        // That is forgotten one day.
        let later = 4000 * MS + OVERDRAFT_MEMORY;
        overdraft.forget(later);
        assert!(!overdraft.observe(Duration::ZERO, OVERDRAFT_PERIOD, later + OVERDRAFT_PERIOD));
        assert_eq!(overdraft.found(), 0);
    }
}
