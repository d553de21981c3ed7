//! The virtual time of a domain.

use std::time::Duration;

use crate::limits::{LAG_MAX, WARP_MAX, WARP_PAUSE};
use crate::policy::Policy;

/// See above. Virtual times are in nanoseconds at the default weight.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Account {
    /// A.
    pub(crate) actual: i64,
    /// What it has used while warped, if it is.
    warped: Option<Duration>,
    /// Until then it is not warped again.
    unwarped_until: Duration,
}

impl Account {
    /// Of a domain that there has not been before.
    pub(crate) fn new(virtual_time: i64) -> Self {
        Self { actual: virtual_time, ..Self::default() }
    }

    /// A, less what is borrowed: E.
    pub(crate) fn effective(&self, policy: &Policy) -> i64 {
        let warp = i64::try_from(policy.warp.as_nanos()).unwrap_or(i64::MAX);
        self.actual - if self.warped.is_some() { warp } else { 0 }
    }

    /// Its domain has slept, and wakes up at this scheduler's virtual time.
    pub(crate) fn wake(&mut self, virtual_time: i64, policy: &Policy, now: Duration) {
        self.actual = self.actual.max(virtual_time);
        if !policy.warp.is_zero() && self.warped.is_none() && now >= self.unwarped_until {
            self.warped = Some(Duration::ZERO);
        }
    }

    /// Its domain sleeps: what it borrows ends with that.
    pub(crate) fn sleep(&mut self) {
        self.warped = None;
    }

    /// Its domain has used so much time.
    pub(crate) fn charge(&mut self, used: Duration, policy: &Policy, now: Duration) {
        self.actual = self.actual.saturating_add(policy.weight.virtual_time(used));
        if let Some(warped) = &mut self.warped {
            *warped += used;
            if *warped >= WARP_MAX {
                self.warped = None;
                self.unwarped_until = now + WARP_PAUSE;
            }
        }
    }

    /// It is behind a virtual time by [`LAG_MAX`] at most, or by two of the longest steps that others make.
    pub(crate) fn limit_lag(&mut self, behind: i64, step: i64, policy: &Policy) {
        let lag = policy.weight.virtual_time(LAG_MAX).max(step.saturating_mul(2));
        self.actual = self.actual.max(behind.saturating_sub(lag));
    }
}
