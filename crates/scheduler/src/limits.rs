//! The limits and constants of this crate.

use std::time::Duration;

/// For how long a vCPU runs before another one is considered.
pub const QUANTUM: Duration = Duration::from_millis(10);

/// A running vCPU is not interrupted for one that is younger by less than this (real time, at its own weight): BVT's
/// context switch allowance.
pub const SWITCH_ALLOWANCE: Duration = Duration::from_millis(5);

/// How long before the end of a quantum the next is decided.
pub const MARGIN: Duration = Duration::from_micros(400);

/// The furthest that a domain of which no vCPU waits falls behind the others, at its own weight.
pub const LAG_MAX: Duration = Duration::from_millis(200);

/// How long permits stay limited after processors have been scarce.
pub const LINGER: Duration = Duration::from_millis(100);

/// What a cap's percentage is a percentage of.
pub const CAP_PERIOD: Duration = Duration::from_millis(100);

/// The shortest time for which it is worth while to let a vCPU run.
pub const SLICE_MIN: Duration = Duration::from_micros(200);

/// For how much of its own time a domain is warped at most when it has woken up.
pub const WARP_MAX: Duration = Duration::from_millis(10);

/// For how long it is not warped again after that.
pub const WARP_PAUSE: Duration = Duration::from_millis(50);

/// vCPUs of a domain.
pub const VCPUS_MAX: usize = 64;

/// The most that a domain with a cap owes: what it has used beyond that is forgiven (the copy that a snapshot makes of
/// memory, for one).
pub const DEBT_MAX: Duration = Duration::from_secs(1);

/// How often it is looked whether a domain takes what it is not given.
pub const OVERDRAFT_PERIOD: Duration = Duration::from_millis(250);

/// A domain computes if it uses more than this part of a processor.
pub const OVERDRAFT_SHARE: u32 = 10;

/// For so many periods in a row a domain computes without any permit before it is found out for the first time.
pub const OVERDRAFT_PATIENCE: u32 = 5;

/// For how long a domain is known that has been found out.
pub const OVERDRAFT_MEMORY: Duration = Duration::from_secs(60);
