//! How a thread runs that does not run as usual.

use serde::{Deserialize, Serialize};

use super::Bytes;

/// How a thread is scheduled, and modes of the kernel and of the processor. All zeros is as usual.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Modes {
    /// Its scheduling policy (`SCHED_*`).
    pub policy: u32,
    /// Its priority, of `SCHED_FIFO` and `SCHED_RR`.
    pub priority: u32,
    /// Nanoseconds of `SCHED_DEADLINE`: run time, deadline, period.
    pub deadline: [u64; 3],
    /// Flags (`SCHED_FLAG_*`).
    pub flags: u64,
    /// The processors that it may run on, bit 0 of the first byte for processor 0; empty if nobody has said which.
    pub processors: Bytes,
    /// The priority of its input and output (ioprio_get(2)).
    pub input_priority: u32,
    /// Its execution domain (personality(2)).
    pub personality: u32,
    /// Whether it may not read the time-stamp counter (`PR_TSC_SIGSEGV`).
    pub no_counter: bool,
    /// Whether it may not identify its processor (`ARCH_SET_CPUID`).
    pub no_identification: bool,
    /// Which kinds of speculation it has forbidden, and how (`PR_SPEC_*`).
    pub speculation: Vec<(u32, u32)>,
}
