//! What the threads of processors have done, for people who want to know where time goes.

use std::time::Duration;

/// Counters of one processor, since the machine was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Activity {
    /// Times that the processor came back from guest code.
    pub exits: u64,
    /// Times that a timer, a device or another vCPU kicked it.
    pub kicks: u64,
    /// Interrupts delivered.
    pub interrupts: u64,
    /// Times that it had nothing to do.
    pub halts: u64,
    /// Of these, those that were over before its thread fell asleep.
    pub watched_halts: u64,
    /// Calls that ended another processor's halt (a kernel's lock is free).
    pub calls_to_end_halts: u64,
    /// Calls that interrupted several others.
    pub calls_to_interrupt: u64,
    /// Calls that let another one go first.
    pub calls_to_yield: u64,
    /// Times that it forgot its address translations on waking, because another processor wanted
    /// it to and did not have to interrupt it.
    pub flushes_on_waking: u64,
    /// Jobs of disks that its thread has done itself.
    pub disk_jobs: u64,
    /// Of these, those that were done, or followed one that was done, because the guest had nothing to do.
    pub disk_jobs_in_halts: u64,
    /// Times that it waited until others had had their turns.
    pub waits_at_gate: u64,
    /// Time that it was ready to run and had no core, since the last boot, in guests that want to know.
    pub stolen: Duration,
}
