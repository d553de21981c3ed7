//! Numbers of Linux's interface that the libc crate does not have, or that scripts and filters have to agree on.

/// `arch_prctl` to make CPUID fault (arch/x86/include/uapi/asm/prctl.h).
pub(crate) const ARCH_SET_CPUID: u64 = 0x1012;

/// `PR_SET_SYSCALL_USER_DISPATCH` (Linux 5.11).
pub(crate) const USER_DISPATCH: i32 = 59;

/// The zygote forks a helper's mapper.
pub(crate) const FORK_HELPER: u64 = libc::SIGCHLD as u64;

/// The mapper forks the runner: with its memory, but descriptors and signal handlers of its own.
pub(crate) const FORK_RUNNER: u64 = (libc::CLONE_VM | libc::CLONE_PIDFD | libc::SIGCHLD) as u64;

/// `AUDIT_ARCH_X86_64`.
pub(crate) const ARCH_X86_64: u32 = 0xc000_003e;
