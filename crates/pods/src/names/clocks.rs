//! The clocks of a pod (time_namespaces(7)): they show what they showed when it was checkpointed, wherever it goes on.

use std::fs;
use std::io;

use rustix::time::{ClockId, clock_gettime};

/// As the kernel calls them.
const CLOCKS: [(&str, ClockId); 2] =
    [("monotonic", ClockId::Monotonic), ("boottime", ClockId::Boottime)];

const NANOSECONDS: i128 = 1_000_000_000;

/// What `CLOCK_MONOTONIC` and `CLOCK_BOOTTIME` show in the pod of a process, in nanoseconds.
///
/// # Errors
///
/// It has ended.
pub fn read(process: u32) -> io::Result<[u64; 2]> {
    let table = fs::read_to_string(format!("/proc/{process}/timens_offsets"))?;
    let offset = |name: &str| {
        let line = table.lines().find_map(|line| line.strip_prefix(name))?;
        let mut words = line.split_whitespace().map(str::parse::<i128>);
        Some(words.next()?.ok()? * NANOSECONDS + words.next()?.ok()?)
    };
    let shown = |(name, clock)| u64::try_from(now(clock) + offset(name).unwrap_or(0)).unwrap_or(0);
    Ok(CLOCKS.map(shown))
}

/// Have the clocks show this in the time namespace that a process has made, and in which nobody is yet.
///
/// # Errors
///
/// The kernel does not let us, or not this.
pub(super) fn set(process: u32, clocks: [u64; 2]) -> io::Result<()> {
    let lines = CLOCKS.iter().zip(clocks).map(|((name, clock), shown)| {
        let offset = i128::from(shown) - now(*clock);
        format!("{name} {} {}\n", offset.div_euclid(NANOSECONDS), offset.rem_euclid(NANOSECONDS))
    });
    fs::write(format!("/proc/{process}/timens_offsets"), lines.collect::<String>())
}

fn now(clock: ClockId) -> i128 {
    let now = clock_gettime(clock);
    i128::from(now.tv_sec) * NANOSECONDS + i128::from(now.tv_nsec)
}
