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

/// Memory of its own that a pod must have for some of it to be copied while it runs: less is copied in a moment.
pub const COPY_MIN_BYTES: u64 = 32 << 20;

/// Memory that a pod may have written for the rest to be copied while it is frozen.
pub const REST_MAX_BYTES: u64 = 8 << 20;

/// For how many milliseconds a pod runs on before it is written down, each time that somebody waits to be accepted by
/// it, while its link is locked.
pub const SETTLING: [u64; 4] = [1, 1, 2, 4];

/// The same while its link is not locked, each time that this was not enough.
pub const UNSETTLED: [u64; 12] = [1, 2, 3, 5, 8, 8, 13, 13, 13, 21, 21, 21];

/// How long what a pod's command has written before it was frozen for good may be on its way to whoever reads it.
pub const DRAIN_PATIENCE: Duration = Duration::from_secs(2);

/// How often memory is copied while a pod runs.
pub const MAX_ROUNDS: usize = 8;

/// Address space of the process that reads an image: its description, which may have 1 GiB, as it is in the file, as
/// it is in memory, and as it is told; and the program.
pub const READER_MAX_ADDRESS_SPACE_BYTES: u64 = 6 << 30;

/// Descriptors of that process: its streams, the image, its parents.
pub const READER_MAX_DESCRIPTORS: u64 = 128;

/// Files beside an image that are looked at to find its parents.
pub const LOOKED_AT_MAX: usize = 4096;
