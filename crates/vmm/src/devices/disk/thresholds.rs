//! The times and counts by which vCPUs' threads and a disk's threads share the work ([`super::errands`]).

use std::time::Duration;

/// What is left at the doorbell is left to the disk's threads if the guest has not halted by then.
pub(crate) const LEAVE_AFTER: Duration = Duration::from_micros(100);

/// The same for a guest that has always halted of late.
pub(crate) const LEAVE_AFTER_MOST: Duration = Duration::from_millis(2);

/// How long a halting processor has to be free to do what may wait, at least and at most: between these, twice as
/// long as that took of late.
pub(super) const LEAST_FREE: Duration = Duration::from_micros(100);
pub(super) const SLOW: Duration = Duration::from_millis(1);

/// Doorbells between two halts that a processor attends to as if its guest waited; to more it attends briefly.
pub(crate) const MOST_RINGS: u32 = 8;

/// The most slow jobs, or errands that no halt followed, that are left to the disk's threads after one.
pub(crate) const MOST_UNHELPED: u32 = 255;
