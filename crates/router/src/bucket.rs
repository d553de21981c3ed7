//! Time, rates, and the token bucket that keeps one to the other.
//!
//! A bucket's level is kept in bytes times nanoseconds per second, so that nothing is ever rounded: over any time,
//! what was taken is at most the rate times that time, the burst and one frame.

use crate::limits;

/// Nanoseconds since some beginning, which is the same for all calls of a router.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub struct Time(pub u64);

/// How much may be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rate {
    /// Bytes in a second.
    pub bytes_per_second: u64,
    /// Bytes at once, after a while without any.
    pub burst_bytes: u64,
}

impl Rate {
    /// A rate with the burst that is usual for it.
    pub fn new(bytes_per_second: u64) -> Self {
        let burst = (bytes_per_second / 10).max(limits::LEAST_BURST_BYTES);
        Self { bytes_per_second, burst_bytes: burst.min(limits::BURST_BYTES) }
    }

    /// Whether it keeps to the limits.
    pub fn is_possible(&self) -> bool {
        (1..=limits::RATE_BYTES).contains(&self.bytes_per_second)
            && (1..=limits::BURST_BYTES).contains(&self.burst_bytes)
    }
}

/// What a byte is in a bucket.
const BYTE: i128 = 1_000_000_000;

/// A token bucket. A frame may be taken while it is not empty, and then may leave a debt.
#[derive(Clone, Debug)]
pub struct Bucket {
    rate: Rate,
    level: i128,
    filled: Time,
}

impl Bucket {
    /// A full one.
    pub fn new(rate: Rate, now: Time) -> Self {
        Self { rate, level: i128::from(rate.burst_bytes) * BYTE, filled: now }
    }

    fn fill(&mut self, now: Time) {
        let elapsed = now.0.saturating_sub(self.filled.0);
        let gained = i128::from(elapsed) * i128::from(self.rate.bytes_per_second);
        let full = i128::from(self.rate.burst_bytes) * BYTE;
        self.level = self.level.saturating_add(gained).min(full);
        self.filled = self.filled.max(now);
    }

    /// Bytes in it, rounded up: none if there is a debt.
    pub fn bytes(&mut self, now: Time) -> u64 {
        self.fill(now);
        let level = u128::try_from(self.level).unwrap_or(0);
        u64::try_from(level.div_ceil(BYTE as u128)).unwrap_or(u64::MAX)
    }

    /// Take so many bytes, whether they are there or not.
    pub fn charge(&mut self, bytes: u64, now: Time) {
        self.fill(now);
        self.level = self.level.saturating_sub(i128::from(bytes) * BYTE);
    }

    /// Take so many bytes if it is not empty; whether it was not.
    pub fn take(&mut self, bytes: u64, now: Time) -> bool {
        let is_allowed = self.bytes(now) > 0;
        if is_allowed {
            self.charge(bytes, now);
        }
        is_allowed
    }

    /// When it is not empty any more.
    pub fn ready(&mut self, now: Time) -> Time {
        self.fill(now);
        let lacking = u128::try_from(1 - self.level).unwrap_or(0);
        let wait = lacking.div_ceil(u128::from(self.rate.bytes_per_second.max(1)));
        Time(now.0.saturating_add(u64::try_from(wait).unwrap_or(u64::MAX)))
    }
}
