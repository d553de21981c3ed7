//! The system calls that every confined process may make, whatever it is for: memory, its own
//! signals, the time, and its end. None of them reaches anything but the process.

use libc::c_long;

use super::table::Condition::{self, Any, Bits, OneOf, OwnProcess};

/// What makes memory executable.
const EXECUTABLE: u64 = libc::PROT_EXEC as u64;

/// What is done with a futex: wait and wake, as the C library, Rust's and ours do. None that passes priority on
/// (`FUTEX_LOCK_PI` and its like), which have had the most defects in the kernel, and no queue that is moved.
const FUTEX_OPERATIONS: &[u32] = &[
    libc::FUTEX_WAIT as u32,
    libc::FUTEX_WAKE as u32,
    libc::FUTEX_WAIT_BITSET as u32,
    libc::FUTEX_WAKE_BITSET as u32,
    (libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG) as u32,
    (libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG) as u32,
    (libc::FUTEX_WAIT_BITSET | libc::FUTEX_PRIVATE_FLAG) as u32,
    (libc::FUTEX_WAKE_BITSET | libc::FUTEX_PRIVATE_FLAG) as u32,
    (libc::FUTEX_WAIT_BITSET | libc::FUTEX_CLOCK_REALTIME) as u32,
    (libc::FUTEX_WAIT_BITSET | libc::FUTEX_CLOCK_REALTIME | libc::FUTEX_PRIVATE_FLAG) as u32,
];

/// Calls that are made by who starts no program and signals nobody. All code is there when such a process confines
/// itself: what translates code writes it through another mapping.
pub(super) const ALONE: &[(c_long, Condition)] = &[
    (libc::SYS_mmap, Bits(2, 0, EXECUTABLE)),
    (libc::SYS_mprotect, Bits(2, 0, EXECUTABLE)),
    (libc::SYS_tgkill, OwnProcess(0)),
];

/// Calls that are made.
pub(super) const ALLOWED: &[(c_long, Condition)] = &[
    // Memory, and who waits for it to change.
    (libc::SYS_brk, Any),
    (libc::SYS_munmap, Any),
    (libc::SYS_mremap, Any),
    (libc::SYS_madvise, Any),
    (libc::SYS_futex, OneOf(1, FUTEX_OPERATIONS)),
    (libc::SYS_getrandom, Any),
    // Its own signals: faults, kicks, and those of a panic.
    (libc::SYS_gettid, Any),
    (libc::SYS_getpid, Any),
    (libc::SYS_rt_sigreturn, Any),
    (libc::SYS_rt_sigprocmask, Any),
    (libc::SYS_sigaltstack, Any),
    (libc::SYS_restart_syscall, Any),
    // Time.
    (libc::SYS_clock_gettime, Any),
    // The end.
    (libc::SYS_exit, Any),
    (libc::SYS_exit_group, Any),
];
