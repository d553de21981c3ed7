//! Numbers of the modes of threads, the same for a dump, the check of an image, and a restart.

/// Bytes of `struct sched_attr` as Linux 3.14 had it.
pub(crate) const ATTRIBUTES_BYTES: usize = 48;
/// Flags of scheduling that a thread has by itself (`SCHED_FLAG_RESET_ON_FORK`, `RECLAIM`, `DL_OVERRUN`).
pub(crate) const FLAGS: u64 = 7;
/// Policies: normal, first in first out, round robin, batch, idle, deadline.
pub(crate) const POLICIES: [u32; 6] = [0, 1, 2, 3, 5, DEADLINE];
/// `SCHED_DEADLINE`.
pub(crate) const DEADLINE: u32 = 6;
/// `IOPRIO_WHO_PROCESS`.
pub(crate) const THREAD: u64 = 1;
/// Bytes of the map of processors.
pub(crate) const MAX_PROCESSORS_BYTES: usize = 1024;
/// Calls of arch_prctl(2).
pub(crate) const GET_IDENTIFICATION: u64 = 0x1011;
/// See [`GET_IDENTIFICATION`].
pub(crate) const SET_IDENTIFICATION: u64 = 0x1012;
/// Kinds of speculation (`PR_SPEC_STORE_BYPASS`, `INDIRECT_BRANCH`, `L1D_FLUSH`).
pub(crate) const SPECULATIONS: u32 = 3;
/// How one is forbidden (`PR_SPEC_DISABLE`, `FORCE_DISABLE`, `DISABLE_NOEXEC`).
pub(crate) const FORBIDDEN: u32 = 4 | 8 | 16;
