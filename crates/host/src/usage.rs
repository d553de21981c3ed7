//! What processes have used, by the host's account: their time of processors, and the I/O of this one.

use std::time::Duration;

/// The unit of `ru_inblock` and `ru_oublock` (getrusage(2), linux/sched.h).
const BLOCK_BYTES: u64 = 512;

/// Bytes that this process has read from disks, and written to them. It can ask this when it is confined and
/// `/proc/self/io` cannot be opened.
#[must_use]
pub fn moved_bytes() -> (u64, u64) {
    // SAFETY: all zero is a valid `rusage`, and the call writes to that one only.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
        usage
    };
    let bytes = |blocks: i64| blocks.max(0).cast_unsigned() * BLOCK_BYTES;
    (bytes(usage.ru_inblock), bytes(usage.ru_oublock))
}

/// What all threads of a process have had of processors, if there is such a process (clock_getcpuclockid(3)).
#[must_use]
pub fn process_time(process: i32) -> Option<Duration> {
    /// `CPUCLOCK_SCHED`: what the host's scheduler counts (linux/posix-timers.h).
    const SCHEDULED: i32 = 2;
    let clock = (!process).checked_mul(8)? | SCHEDULED;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: it writes to `time`, which is there.
    let answer = unsafe { libc::clock_gettime(clock, &raw mut time) };
    let seconds = u64::try_from(time.tv_sec).ok()?;
    let rest = u32::try_from(time.tv_nsec).ok()?;
    (answer == 0).then(|| Duration::new(seconds, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_process_grows_as_it_computes() {
        let own = || process_time(std::process::id().cast_signed()).expect("it lives");
        let start = own();
        while own() < start + Duration::from_millis(5) {
            std::hint::spin_loop();
        }
        assert_eq!(process_time(i32::MAX), None);
    }
}
