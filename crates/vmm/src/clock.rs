//! The machine's clocks, from the host's: all of them computed from one reading of the time-stamp
//! counter, because a system call for each reading would be felt.

use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime};

use machine::time::{Clock, Nanoseconds};

/// How long the time-stamp counter is compared with the monotonic clock.
const CALIBRATION: Duration = Duration::from_millis(5);

/// The host's time.
#[derive(Debug, Clone, Copy)]
pub struct HostClock {
    start_tsc: u64,
    start_wall: Duration,
    /// Nanoseconds per tick, as a fraction of 2^32.
    scale: u64,
    khz: u32,
}

impl HostClock {
    /// A clock that starts at zero now.
    pub fn new() -> Self {
        let khz = tsc_khz();
        let scale = (1_000_000u128 << 32) / u128::from(khz.max(1));
        Self {
            start_tsc: cpu::time_stamp(),
            start_wall: SystemTime::now()
                .duration_since(SystemTime::UNIX_EPOCH)
                .unwrap_or_default(),
            scale: scale as u64,
            khz,
        }
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
        let ticks = cpu::time_stamp().wrapping_sub(self.start_tsc);
        Nanoseconds(((u128::from(ticks) * u128::from(self.scale)) >> 32) as u64)
    }

    fn tsc(&self) -> u64 {
        cpu::time_stamp()
    }

    fn wall(&self) -> Duration {
        self.start_wall + Duration::from_nanos(self.now().0)
    }
}

/// The frequency of the host's time-stamp counter, measured once per process.
fn tsc_khz() -> u32 {
    static KHZ: OnceLock<u32> = OnceLock::new();
    *KHZ.get_or_init(|| {
        let (start, ticks) = (Instant::now(), cpu::time_stamp());
        while start.elapsed() < CALIBRATION {
            std::hint::spin_loop();
        }
        let (elapsed, ticks) = (start.elapsed(), cpu::time_stamp().wrapping_sub(ticks));
        let khz = u128::from(ticks) * 1_000_000 / elapsed.as_nanos().max(1);
        u32::try_from(khz).unwrap_or(u32::MAX).max(1)
    })
}
