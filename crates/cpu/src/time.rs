//! The one clock of a vCPU: the time-stamp counter.

/// The host's time-stamp counter.
pub fn time_stamp() -> u64 {
    // SAFETY: every x86-64 processor has RDTSC, and Linux lets user mode execute it unless a
    // process asks otherwise for itself.
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// Cycles of the time-stamp counter in a span of time.
pub(crate) fn cycles(span: std::time::Duration, tsc_khz: u32) -> u64 {
    (span.as_nanos() * u128::from(tsc_khz) / 1_000_000).try_into().unwrap_or(u64::MAX)
}
