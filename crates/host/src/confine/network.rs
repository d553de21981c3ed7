//! What the process that is a guest's network may ask of the host's kernel: sockets to everywhere, and
//! neither files nor processes. It is a list of its own, and shorter than a machine's.

use libc::c_long;

use super::table::Condition::{self, Any, OneOf, OwnProcess};
use super::table::DESCRIPTOR_COMMANDS;

/// The only sockets that it makes: of IPv4.
const FAMILIES: &[u32] = &[libc::AF_INET as u32];

/// What it sets on a socket.
const REQUESTS: &[u32] = &[libc::FIONBIO as u32];

/// Calls that are made.
pub(super) const ALLOWED: &[(c_long, Condition)] = &[
    // The machine, and its log.
    (libc::SYS_read, Any),
    (libc::SYS_write, Any),
    (libc::SYS_close, Any),
    // Sockets.
    (libc::SYS_socket, OneOf(0, FAMILIES)),
    (libc::SYS_bind, Any),
    (libc::SYS_connect, Any),
    (libc::SYS_accept4, Any),
    (libc::SYS_sendto, Any),
    (libc::SYS_recvfrom, Any),
    (libc::SYS_sendmsg, Any),
    (libc::SYS_recvmsg, Any),
    (libc::SYS_shutdown, Any),
    (libc::SYS_getsockopt, Any),
    (libc::SYS_setsockopt, Any),
    (libc::SYS_fcntl, OneOf(1, DESCRIPTOR_COMMANDS)),
    (libc::SYS_ioctl, OneOf(1, REQUESTS)),
    (libc::SYS_epoll_wait, Any),
    (libc::SYS_epoll_pwait, Any),
    (libc::SYS_epoll_pwait2, Any),
    (libc::SYS_epoll_ctl, Any),
    // Memory.
    (libc::SYS_brk, Any),
    (libc::SYS_mmap, Any),
    (libc::SYS_munmap, Any),
    (libc::SYS_mprotect, Any),
    (libc::SYS_mremap, Any),
    (libc::SYS_madvise, Any),
    (libc::SYS_futex, Any),
    (libc::SYS_getrandom, Any),
    // Its own signals, if it panics.
    (libc::SYS_gettid, Any),
    (libc::SYS_getpid, Any),
    (libc::SYS_tgkill, OwnProcess(0)),
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
