//! The machine's clocks, from the host's: all of them computed from one reading of the time-stamp
//! counter, because a system call for each reading would be felt.

use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime};

use machine::time::{Clock, Hertz, Nanoseconds};

/// How long the time-stamp counter is compared with the monotonic clock.
const CALIBRATION: Duration = Duration::from_millis(5);

/// Readings of both clocks of which the tightest counts.
const READINGS: usize = 8;

/// The host's time.
#[derive(Debug, Clone, Copy)]
pub struct HostClock {
    start_tsc: u64,
    start: Instant,
    start_wall: Duration,
    /// Nanoseconds per tick, as a fraction of 2^32.
    scale: u64,
    khz: u32,
    /// What it showed when it started.
    origin: Nanoseconds,
}

impl HostClock {
    /// A clock that goes on from `origin`.
    pub fn resuming(origin: Nanoseconds) -> Self {
        Self { origin, ..Self::new() }
    }

    /// Time since it was started.
    fn passed(&self) -> Nanoseconds {
        let ticks = cpu::time_stamp().wrapping_sub(self.start_tsc);
        Nanoseconds(((u128::from(ticks) * u128::from(self.scale)) >> 32) as u64)
    }

    /// A clock that starts at zero now.
    pub fn new() -> Self {
        let khz = tsc_khz();
        let scale = (1_000_000u128 << 32) / u128::from(khz.max(1));
        let (start, start_tsc) = simultaneous(Instant::now);
        Self {
            start_tsc,
            start,
            start_wall: SystemTime::now()
                .duration_since(SystemTime::UNIX_EPOCH)
                .unwrap_or_default(),
            scale: scale as u64,
            khz,
            origin: Nanoseconds(0),
        }
    }

    /// The time-stamp counter when it was started.
    pub(crate) fn start_counter(&self) -> u64 {
        self.start_tsc
    }

    /// Frequency of the time-stamp counter in kHz.
    pub fn tsc_khz(&self) -> u32 {
        self.khz
    }
}

impl Default for HostClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for HostClock {
    fn now(&self) -> Nanoseconds {
        self.origin.after(self.passed())
    }

    fn tsc(&self) -> u64 {
        cpu::time_stamp()
    }

    /// Measured since the clock was started, if that is longer ago than the calibration took: the
    /// longer, the better.
    fn tsc_frequency(&self) -> Hertz {
        let (now, tsc) = simultaneous(Instant::now);
        let passed = now.duration_since(self.start);
        if passed < CALIBRATION {
            return Hertz(u64::from(self.khz) * 1000);
        }
        let ticks = u128::from(tsc.wrapping_sub(self.start_tsc));
        let hertz = ticks * 1_000_000_000 / passed.as_nanos();
        Hertz(u64::try_from(hertz).unwrap_or(u64::MAX).max(1))
    }

    fn wall(&self) -> Duration {
        self.start_wall + Duration::from_nanos(self.passed().0)
    }
}

/// The frequency of the host's time-stamp counter, measured once per process.
fn tsc_khz() -> u32 {
    static KHZ: OnceLock<u32> = OnceLock::new();
    *KHZ.get_or_init(|| {
        let (start, first) = simultaneous(Instant::now);
        std::thread::sleep(CALIBRATION);
        let (end, last) = simultaneous(Instant::now);
        khz_of(last.wrapping_sub(first), end.duration_since(start))
    })
}

/// Kilohertz of a counter that has counted `ticks` in `elapsed`.
fn khz_of(ticks: u64, elapsed: Duration) -> u32 {
    let khz = u128::from(ticks) * 1_000_000 / elapsed.as_nanos().max(1);
    u32::try_from(khz).unwrap_or(u32::MAX).max(1)
}

/// A clock and the counter at the same time: the reading that took least of several, so that being
/// scheduled away in the middle of one does not count.
pub(crate) fn simultaneous<T>(clock: impl Fn() -> T) -> (T, u64) {
    let readings = (0..READINGS).map(|_| {
        let before = cpu::time_stamp();
        let now = clock();
        let took = cpu::time_stamp().wrapping_sub(before);
        (took, now, before.wrapping_add(took / 2))
    });
    let (_, now, ticks) = readings.min_by_key(|reading| reading.0).expect("there are readings");
    (now, ticks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_frequency_is_ticks_per_millisecond() {
        assert_eq!(khz_of(3_000_000, Duration::from_millis(1)), 3_000_000);
        assert_eq!(khz_of(0, Duration::ZERO), 1);
        assert_eq!(khz_of(u64::MAX, Duration::from_nanos(1)), u32::MAX);
    }

    #[test]
    fn the_clock_goes_as_the_hosts_does() {
        let clock = HostClock::new();
        let differ = || {
            let (start, begin) = (Instant::now(), clock.now());
            std::thread::sleep(Duration::from_millis(50));
            let (passed, host) = (clock.now().since(begin).0, start.elapsed().as_nanos() as u64);
            passed.abs_diff(host)
        };
        // Being scheduled away between the readings parts them as well, but not each time.
        let least = (0..5).map(|_| differ()).min().expect("there are some");
        assert!(least < 20_000_000, "{least} ns");
    }

    #[test]
    fn the_frequency_is_known_better_with_time() {
        let clock = HostClock::new();
        std::thread::sleep(Duration::from_millis(50));
        let (start, tsc) = simultaneous(Instant::now);
        let measured = clock.tsc_frequency().0;
        std::thread::sleep(Duration::from_millis(100));
        let (end, later) = simultaneous(Instant::now);
        let exact = u64::from(khz_of(later.wrapping_sub(tsc), end.duration_since(start))) * 1000;
        // A hundred parts in a million, where five milliseconds alone can be off by several times that
        // on a busy host.
        assert!(measured.abs_diff(exact) < exact / 10_000, "{measured} Hz against {exact} Hz");
    }

    #[test]
    fn the_wall_clock_is_the_hosts() {
        let host = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        let ours = HostClock::new().wall();
        assert!(ours.abs_diff(host) < Duration::from_secs(1), "{ours:?} against {host:?}");
    }
}
