//! The system calls that a running machine may make, besides those of every process
//! ([`super::process`]): one list, for the machine's own threads and for those that they start.
//!
//! A call is on the list because the code that is named beside it makes the call *after* the
//! machine has started. A call that is made only before that need not be on it: files are open,
//! memory is mapped, and the processes that run guest code directly are forked by one that was
//! forked earlier. So the rule for making anything new is: threads of this process, yes; processes,
//! no. A helper process that must outlive this rule is started before [`super::confine`].

use libc::c_long;

/// What is asked of a call's arguments before it is made.
#[derive(Debug, Clone, Copy)]
pub enum Condition {
    /// Nothing: it can only do harm to this process, or to what this process has open.
    Any,
    /// The argument is this process's number.
    OwnProcess(u8),
    /// The argument, as 32 bits, is one of these.
    OneOf(u8, &'static [u32]),
    /// The argument, as 32 bits, is none of these.
    NoneOf(u8, &'static [u32]),
    /// The argument has these bits, and none of those.
    Bits(u8, u64, u64),
    /// The argument is zero.
    Zero(u8),
}

use Condition::{Any, Bits, NoneOf, OneOf, Zero};

/// `ioctl` requests: on a terminal, and none that type into it (TIOCSTI) or take it over; on a queue of a
/// TAP interface, what may be left together and whether it is used; on the
/// notifications of helpers, to receive one, to answer it, and to say how they are woken (seccomp_unotify(2)).
const REQUESTS: &[u32] = &[
    libc::TCGETS as u32,
    libc::TCSETS as u32,
    libc::TCSETSW as u32,
    libc::TCSETSF as u32,
    libc::TCGETS2 as u32,
    libc::TCSETS2 as u32,
    libc::TCSETSW2 as u32,
    libc::TCSETSF2 as u32,
    libc::TIOCGWINSZ as u32,
    libc::TIOCGPGRP as u32,
    libc::FIONREAD as u32,
    libc::FIONBIO as u32,
    libc::FIOCLEX as u32,
    libc::TUNSETOFFLOAD as u32,
    libc::TUNSETQUEUE as u32,
    0xc050_2100,
    0xc018_2101,
    0x4008_2104,
];

/// `fcntl` commands that copy a descriptor, or ask and change what it is.
pub const DESCRIPTOR_COMMANDS: &[u32] = &[
    libc::F_DUPFD as u32,
    libc::F_DUPFD_CLOEXEC as u32,
    libc::F_GETFD as u32,
    libc::F_SETFD as u32,
    libc::F_GETFL as u32,
    libc::F_SETFL as u32,
    libc::F_ADD_SEALS as u32,
    libc::F_GET_SEALS as u32,
];

/// Options of a socket that are asked for: who is at its other end.
pub const CREDENTIALS: &[u32] = &[libc::SO_PEERCRED as u32];

/// What makes a thread and not a process, in `clone`'s flags.
const THREAD_FLAGS: u64 =
    (libc::CLONE_VM | libc::CLONE_THREAD | libc::CLONE_SIGHAND | libc::CLONE_FILES) as u64;

/// What makes a namespace or a trace, in `clone`'s flags.
pub const NAMESPACE_FLAGS: u64 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET
    | libc::CLONE_PTRACE) as u64;

/// `PR_GET_AUXV` (linux/prctl.h), by which rustix finds the vDSO.
pub const GET_AUXILIARY_VECTOR: u32 = 0x4155_5856;

/// `prctl` options: a thread's name, names for anonymous memory, how late a thread may be woken, and
/// what this process was started with.
const PROCESS_OPTIONS: &[u32] = &[
    libc::PR_SET_NAME as u32,
    libc::PR_SET_VMA as u32,
    libc::PR_SET_TIMERSLACK as u32,
    GET_AUXILIARY_VECTOR,
];

/// `ARCH_SET_GS`, `ARCH_SET_FS`, `ARCH_GET_FS`, `ARCH_GET_GS` (asm/prctl.h).
const SEGMENT_BASES: &[u32] = &[0x1001, 0x1002, 0x1003, 0x1004];

/// The handler that tells of a refused call stays where it is.
const REPORTED_BY: &[u32] = &[libc::SIGSYS as u32];

/// Calls that are made.
pub const ALLOWED: &[(c_long, Condition)] = &[
    // The guest's streams, the console's copy, the log: descriptors that are open.
    (libc::SYS_read, Any),
    (libc::SYS_write, Any),
    (libc::SYS_readv, Any),
    (libc::SYS_writev, Any),
    (libc::SYS_pread64, Any),
    (libc::SYS_pwrite64, Any),
    (libc::SYS_preadv, Any),
    (libc::SYS_preadv2, Any),
    (libc::SYS_pwritev, Any),
    (libc::SYS_pwritev2, Any),
    (libc::SYS_lseek, Any),
    (libc::SYS_close, Any),
    (libc::SYS_fstat, Any),
    (libc::SYS_fsync, Any),
    (libc::SYS_fdatasync, Any),
    (libc::SYS_fadvise64, Any),
    (libc::SYS_poll, Any),
    (libc::SYS_ppoll, Any),
    (libc::SYS_epoll_wait, Any),
    (libc::SYS_epoll_pwait, Any),
    (libc::SYS_epoll_ctl, Any),
    (libc::SYS_fcntl, OneOf(1, DESCRIPTOR_COMMANDS)),
    (libc::SYS_ioctl, OneOf(1, REQUESTS)),
    // Sockets that are connected: without an address, nobody else is reached.
    (libc::SYS_sendto, Zero(4)),
    (libc::SYS_recvfrom, Any),
    (libc::SYS_sendmsg, Any),
    (libc::SYS_recvmsg, Any),
    (libc::SYS_shutdown, Any),
    // The domain's control socket, which listens already: whoever connects, and who that is.
    (libc::SYS_accept4, Any),
    (libc::SYS_getsockopt, OneOf(2, CREDENTIALS)),
    // A domain that goes on by itself gives back the streams that it was started with.
    (libc::SYS_dup2, Any),
    // Memory: what is there, giving the guest's back, files of it.
    (libc::SYS_mincore, Any),
    (libc::SYS_fallocate, Any),
    (libc::SYS_memfd_create, Any),
    (libc::SYS_ftruncate, Any),
    // Threads of this process.
    (libc::SYS_clone, Bits(0, THREAD_FLAGS, NAMESPACE_FLAGS)),
    (libc::SYS_set_robust_list, Any),
    (libc::SYS_set_tid_address, Any),
    (libc::SYS_rseq, Any),
    (libc::SYS_futex_waitv, Any),
    (libc::SYS_membarrier, Any),
    (libc::SYS_sched_yield, Any),
    (libc::SYS_sched_getaffinity, Any),
    (libc::SYS_getcpu, Any),
    (libc::SYS_getrusage, Any),
    (libc::SYS_prctl, OneOf(0, PROCESS_OPTIONS)),
    (libc::SYS_arch_prctl, OneOf(0, SEGMENT_BASES)),
    // Signals: what is done about our own, and those to processes whose descriptors we hold.
    (libc::SYS_pidfd_send_signal, Any),
    (libc::SYS_rt_sigaction, NoneOf(0, REPORTED_BY)),
    (libc::SYS_rt_sigtimedwait, Any),
    (libc::SYS_rt_sigpending, Any),
    // Time.
    (libc::SYS_clock_getres, Any),
    (libc::SYS_clock_nanosleep, Any),
    (libc::SYS_nanosleep, Any),
    (libc::SYS_gettimeofday, Any),
    (libc::SYS_timer_create, Any),
    (libc::SYS_timer_settime, Any),
    (libc::SYS_timer_gettime, Any),
    (libc::SYS_timer_delete, Any),
    (libc::SYS_timerfd_create, Any),
    (libc::SYS_timerfd_settime, Any),
    (libc::SYS_timerfd_gettime, Any),
    (libc::SYS_eventfd2, Any),
];

/// Calls that libraries try and can do without: refused as if this kernel did not have them
/// (ENOSYS), which for `clone3` makes glibc use `clone`.
pub const ABSENT: &[c_long] = &[
    libc::SYS_clone3,
    // The C library asks for the number of processors, Rust's for symbols of a backtrace.
    libc::SYS_open,
    libc::SYS_openat,
    libc::SYS_stat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_access,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_readlink,
    libc::SYS_readlinkat,
    libc::SYS_getcwd,
    libc::SYS_prlimit64,
];
