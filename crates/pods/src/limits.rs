//! The limits of this crate.

use std::time::Duration;

/// How long the first process may take to leave the host's namespaces.
pub const START_PATIENCE: Duration = Duration::from_secs(20);

/// How long the pod may take to end when its first command has.
pub const END_PATIENCE: Duration = Duration::from_secs(5);

/// How long the process of its network may take to end when it is told to.
pub const HANG_UP_PATIENCE: Duration = Duration::from_secs(2);

/// How long whoever wants the pod frozen, checkpointed or thawed may have to wait.
pub const TASK_PATIENCE: Duration = Duration::from_secs(3600);

/// How long its processes may take to be gone when they have been killed.
pub const KILL_PATIENCE: Duration = Duration::from_secs(10);

/// How often it is looked whether they are.
pub const LOOK: Duration = Duration::from_millis(1);

/// What is read of the complaints of the first process.
pub const COMPLAINT_MAX_BYTES: u64 = 4096;
