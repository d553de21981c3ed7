//! The host's time of day as a guest can find it again from its own time-stamp counter.

use std::time::{Duration, SystemTime};

use machine::time::Clock;

use crate::clock::{HostClock, simultaneous};
use crate::snapshot::{self, Snapshot};

/// The host's time of day beside the time-stamp counter that a guest sees. A guest that reads its counter knows
/// from one such pair how late it is, however long ago the pair was made.
#[derive(Debug, Clone, Copy)]
pub struct TimeOfDay {
    clock: HostClock,
    /// How far the guest's counter is ahead of the host's (mod 2^64).
    offset: u64,
}

/// A time and a reading of the guest's time-stamp counter at that time, and the counter's pace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimePair {
    /// Since 1970 (UTC).
    pub realtime: Duration,
    /// Ticks.
    pub counter: u64,
    /// Ticks in a second of the host's, as far as they have been measured yet.
    pub frequency: u64,
}

impl TimeOfDay {
    /// For a machine that boots, and finds the host's counter.
    pub fn of_the_host() -> Self {
        Self { clock: HostClock::new(), offset: 0 }
    }

    /// For one that goes on from a snapshot, and finds its counter where it was.
    ///
    /// # Errors
    ///
    /// The snapshot makes no sense on this host.
    pub fn of_snapshot(snapshot: &Snapshot) -> Result<Self, snapshot::Error> {
        Ok(Self { clock: HostClock::new(), offset: snapshot.counter_offset()? })
    }

    /// How late it is.
    pub fn pair(&self) -> TimePair {
        let (now, counter) = simultaneous(SystemTime::now);
        let realtime = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let counter = counter.wrapping_add(self.offset);
        TimePair { realtime, counter, frequency: self.clock.tsc_frequency().0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_tells_the_time_later() {
        let source = TimeOfDay { offset: 1 << 40, ..TimeOfDay::of_the_host() };
        let since = |pair: TimePair, (now, counter): (SystemTime, u64)| {
            let ticks = u128::from(counter.wrapping_add(1 << 40).wrapping_sub(pair.counter));
            let passed = ticks * 1_000_000_000 / u128::from(pair.frequency);
            let told = pair.realtime + Duration::from_nanos(passed as u64);
            told.abs_diff(now.duration_since(SystemTime::UNIX_EPOCH).unwrap())
        };
        let pair = source.pair();
        std::thread::sleep(Duration::from_millis(50));
        let error = since(pair, simultaneous(SystemTime::now));
        // What 50 ms are, told by a counter that was measured for five.
        assert!(error < Duration::from_micros(500), "{error:?}");
    }
}
