//! Time as a machine sees it: handed in, never fetched.
//!
//! Timers are *pulled*: each says when it is next due ([`Nanoseconds::NEVER`] if not at all) and is told that time has
//! passed. None owns a thread or sleeps.

use serde::{Deserialize, Serialize};

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// An instant on the machine's monotonic clock, or a span of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub struct Nanoseconds(pub u64);

impl Nanoseconds {
    /// Later than anything that happens.
    pub const NEVER: Self = Self(u64::MAX);
    /// One second.
    pub const SECOND: Self = Self(1_000_000_000);

    /// This much later, [`Self::NEVER`] at the latest.
    #[must_use]
    pub const fn after(self, span: Self) -> Self {
        Self(self.0.saturating_add(span.0))
    }

    /// The time from `earlier` until this instant, zero if `earlier` is not earlier.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }

    /// `None` for [`Self::NEVER`].
    pub const fn as_deadline(self) -> Option<Self> {
        if self.0 == u64::MAX { None } else { Some(self) }
    }
}

/// Ticks per second of some counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hertz(pub u64);

impl Hertz {
    /// Whole ticks in `span`.
    pub fn ticks_in(self, span: Nanoseconds) -> u64 {
        scale(span.0, self.0, Nanoseconds::SECOND.0)
    }

    /// Time that `ticks` take, rounded up: when that much has passed, so have the ticks.
    pub fn time_of(self, ticks: u64) -> Nanoseconds {
        let whole = scale(ticks, Nanoseconds::SECOND.0, self.0.max(1));
        let exact = self.ticks_in(Nanoseconds(whole)) >= ticks;
        Nanoseconds(if exact { whole } else { whole.saturating_add(1) })
    }
}

/// `value * numerator / denominator`, saturating; avoids 128-bit division where it can.
fn scale(value: u64, numerator: u64, denominator: u64) -> u64 {
    match value.checked_mul(numerator) {
        Some(product) => product / denominator,
        None => {
            let wide = u128::from(value) * u128::from(numerator) / u128::from(denominator);
            u64::try_from(wide).unwrap_or(u64::MAX)
        }
    }
}

/// The three clocks of a machine. All are read often: an implementation should not make a system
/// call for each.
pub trait Clock: Send + Sync {
    /// Monotonic time; where it starts does not matter.
    fn now(&self) -> Nanoseconds;
    /// The time-stamp counter as the guest reads it when it has not moved it.
    fn tsc(&self) -> u64;
    /// How fast the time-stamp counter counts, as well as it is known by now.
    fn tsc_frequency(&self) -> Hertz;
    /// Time since 1970-01-01T00:00:00Z.
    fn wall(&self) -> Duration;
}

/// A clock that stands still until it is moved: for tests.
#[derive(Debug)]
pub struct ManualClock {
    now: AtomicU64,
    tsc: Hertz,
    epoch: Duration,
}

impl ManualClock {
    /// At zero nanoseconds it is `epoch`, and the time-stamp counter is zero.
    pub fn new(tsc: Hertz, epoch: Duration) -> Self {
        Self { now: AtomicU64::new(0), tsc, epoch }
    }

    /// Let time pass.
    pub fn advance(&self, span: Nanoseconds) {
        self.now.fetch_add(span.0, Ordering::Relaxed);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Nanoseconds {
        Nanoseconds(self.now.load(Ordering::Relaxed))
    }

    fn tsc(&self) -> u64 {
        self.tsc.ticks_in(self.now())
    }

    fn tsc_frequency(&self) -> Hertz {
        self.tsc
    }

    fn wall(&self) -> Duration {
        self.epoch + Duration::from_nanos(self.now().0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_time_of_ticks_is_enough_for_them(
            hz in 1u64..10_000_000_000,
            ticks in 0u64..1 << 40,
        ) {
            let span = Hertz(hz).time_of(ticks);
            prop_assert!(Hertz(hz).ticks_in(span) >= ticks);
        }

        #[test]
        fn conversion_never_overflows(hz in 1u64.., value in any::<u64>()) {
            Hertz(hz).time_of(value);
            Hertz(hz).ticks_in(Nanoseconds(value));
        }
    }
}
