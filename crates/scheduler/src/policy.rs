//! What a domain is worth.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;
use std::time::Duration;

/// A domain's share in proportion to that of others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Weight(NonZeroU32);

impl Weight {
    /// The weight of a domain of which nothing is said: virtual time is its real time.
    pub const DEFAULT: Self = Self(NonZeroU32::new(256).unwrap());
    /// The most.
    pub const MAX: u32 = 65_535;

    /// 1 to [`Self::MAX`].
    #[must_use]
    pub fn new(weight: u32) -> Option<Self> {
        NonZeroU32::new(weight).filter(|weight| weight.get() <= Self::MAX).map(Self)
    }

    /// As a number.
    #[must_use]
    pub fn get(self) -> u32 {
        self.0.get()
    }

    /// Real time as virtual time.
    pub(crate) fn virtual_time(self, real: Duration) -> i64 {
        let scaled = real.as_nanos() * u128::from(Self::DEFAULT.get()) / u128::from(self.get());
        i64::try_from(scaled).unwrap_or(i64::MAX)
    }
}

impl Default for Weight {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl FromStr for Weight {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let weight = text.parse().ok().and_then(Self::new);
        weight.ok_or_else(|| format!("not a weight from 1 to {}", Self::MAX))
    }
}

impl fmt::Display for Weight {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(out)
    }
}

/// The most that a domain may use, as a percentage of one processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cap(NonZeroU32);

impl Cap {
    /// The most that can be said: so many processors are no limit.
    pub const MAX: u32 = 100 * crate::limits::VCPUS_MAX as u32;

    /// 1 to [`Self::MAX`] percent.
    #[must_use]
    pub fn new(percent: u32) -> Option<Self> {
        NonZeroU32::new(percent).filter(|percent| percent.get() <= Self::MAX).map(Self)
    }

    /// As a percentage.
    #[must_use]
    pub fn percent(self) -> u32 {
        self.0.get()
    }

    /// How much of a period it is.
    pub(crate) fn of(self, period: Duration) -> Duration {
        period * self.percent() / 100
    }
}

/// See above.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Policy {
    /// Its share.
    pub weight: Weight,
    /// What it gets at most, even if nobody else wants it.
    pub cap: Option<Cap>,
    /// By how much virtual time it is favoured when it wakes up.
    pub warp: Duration,
}
