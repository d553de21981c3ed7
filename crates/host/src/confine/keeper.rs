//! What the keeper of a pod may ask of the host's kernel, once the pod has its names and its network.
//!
//! A keeper hears the pod's first process and the process that reads an image, and looks at what the pod's processes
//! have. It does not mount, makes and enters no namespace, has no sockets but Unix sockets and those of netlink, and
//! loads nothing into the kernel: most ways into the kernel are closed to it, and to what it starts.
//!
//! 1. *It is no jail.* Who owns the keeper can do what its user can: it traces processes and opens files, for that is
//!    what it is for. What is kept from it is the kernel.
//! 2. *What it starts has the same list.* That is who packs and unpacks the pod's files, which enters the pod's users
//!    and mounts for that, and the switch of a network; both confine themselves further. So the list has what a program
//!    does when it begins, with whichever C library, and what these two do.
//! 3. *What is not in the list fails* (`EPERM`), and is reported; for what it starts it is the end. A keeper that ended
//!    would take its pod along.

use libc::c_long;

use super::table::Condition::{self, Any, Bits, OneOf};
use super::table::NAMESPACE_FLAGS;

/// The sockets that it makes: to a switch, and questions about interfaces.
const FAMILIES: &[u32] = &[libc::AF_UNIX as u32, libc::AF_NETLINK as u32];

/// `PTRACE_GET_SYSCALL_USER_DISPATCH_CONFIG` (linux/ptrace.h).
const GET_DISPATCH: u32 = 0x4211;

/// What is asked of a process that is traced.
const TRACING: &[u32] = &[
    libc::PTRACE_CONT,
    libc::PTRACE_DETACH,
    libc::PTRACE_GETEVENTMSG,
    libc::PTRACE_GETREGSET,
    libc::PTRACE_GETSIGINFO,
    libc::PTRACE_GETSIGMASK,
    libc::PTRACE_GET_RSEQ_CONFIGURATION,
    GET_DISPATCH,
    libc::PTRACE_GET_SYSCALL_INFO,
    libc::PTRACE_INTERRUPT,
    libc::PTRACE_LISTEN,
    libc::PTRACE_PEEKSIGINFO,
    libc::PTRACE_SEIZE,
    libc::PTRACE_SETOPTIONS,
    libc::PTRACE_SETREGSET,
    libc::PTRACE_SETSIGMASK,
    libc::PTRACE_SINGLESTEP,
    libc::PTRACE_SYSCALL,
];

/// What is asked of descriptors (ioctl_list(2)): none types into a terminal (TIOCSTI) or draws on one (TIOCLINUX).
const REQUESTS: &[u32] = &[
    libc::FIOCLEX as u32,
    libc::FIONBIO as u32,
    libc::FIONCLEX as u32,
    libc::FIONREAD as u32,
    // A terminal: its settings, whose it is, and its other end.
    libc::TCGETS as u32,
    libc::TCGETS2 as u32,
    libc::TCSETS as u32,
    libc::TCSETS2 as u32,
    libc::TCSETSF as u32,
    libc::TCSETSF2 as u32,
    libc::TCSETSW as u32,
    libc::TCSETSW2 as u32,
    libc::TCSBRK as u32,
    libc::TCFLSH as u32,
    libc::TCXONC as u32,
    libc::TIOCEXCL as u32,
    libc::TIOCNXCL as u32,
    libc::TIOCGETD as u32,
    libc::TIOCGPGRP as u32,
    libc::TIOCSPGRP as u32,
    libc::TIOCGSID as u32,
    libc::TIOCGWINSZ as u32,
    libc::TIOCSWINSZ as u32,
    libc::TIOCOUTQ as u32,
    libc::TIOCPKT as u32,
    libc::TIOCSPTLCK as u32,
    libc::TIOCGPTN as u32,
    libc::TIOCGPTPEER as u32,
    // TIOCGDEV, TIOCGPKT, TIOCGPTLCK, TIOCGEXCL.
    0x8004_5432,
    0x8004_5438,
    0x8004_5439,
    0x8004_5440,
    // A socket: what was not sent yet (SIOCOUTQNSD), and its file (SIOCUNIXFILE); interfaces and their numbers
    // (SIOCGIFNAME, SIOCGIFINDEX).
    0x894b,
    0x89e0,
    0x8910,
    0x8933,
    // What a process has written to (PAGEMAP_SCAN), and to be told of it (UFFDIO_API, _REGISTER, _UNREGISTER, _WAKE,
    // _WRITEPROTECT).
    0xc060_6610,
    0xc018_aa3f,
    0xc020_aa00,
    0x8010_aa01,
    0x8010_aa02,
    0xc018_aa06,
];

/// Whose namespaces are entered, to pack and unpack files: those of users and of mounts, both at once.
const ENTERED: &[u32] = &[(libc::CLONE_NEWUSER | libc::CLONE_NEWNS) as u32];

/// What makes a named pipe of a node, and other kinds of files.
const PIPE: u64 = libc::S_IFIFO as u64;
const OTHER_KINDS: u64 = (libc::S_IFMT & !libc::S_IFIFO) as u64;

/// How a process confines itself.
const FILTERS: &[u32] = &[libc::SECCOMP_SET_MODE_FILTER, libc::SECCOMP_GET_ACTION_AVAIL];

/// Calls that are made.
pub(super) const ALLOWED: &[(c_long, Condition)] = &[
    // Descriptors that are open.
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
    (libc::SYS_close_range, Any),
    (libc::SYS_dup, Any),
    (libc::SYS_dup2, Any),
    (libc::SYS_dup3, Any),
    (libc::SYS_fcntl, Any),
    (libc::SYS_flock, Any),
    (libc::SYS_ioctl, OneOf(1, REQUESTS)),
    (libc::SYS_copy_file_range, Any),
    (libc::SYS_sendfile, Any),
    (libc::SYS_splice, Any),
    (libc::SYS_tee, Any),
    (libc::SYS_fsync, Any),
    (libc::SYS_fdatasync, Any),
    (libc::SYS_sync_file_range, Any),
    (libc::SYS_fadvise64, Any),
    (libc::SYS_fallocate, Any),
    (libc::SYS_ftruncate, Any),
    (libc::SYS_pipe, Any),
    (libc::SYS_pipe2, Any),
    (libc::SYS_eventfd2, Any),
    (libc::SYS_signalfd4, Any),
    (libc::SYS_memfd_create, Any),
    (libc::SYS_timerfd_create, Any),
    (libc::SYS_timerfd_gettime, Any),
    (libc::SYS_timerfd_settime, Any),
    (libc::SYS_poll, Any),
    (libc::SYS_ppoll, Any),
    (libc::SYS_select, Any),
    (libc::SYS_pselect6, Any),
    (libc::SYS_epoll_create1, Any),
    (libc::SYS_epoll_ctl, Any),
    (libc::SYS_epoll_wait, Any),
    (libc::SYS_epoll_pwait, Any),
    (libc::SYS_epoll_pwait2, Any),
    // Files: the pod's entry in the registry, `/proc`, and those of the pod that are packed and unpacked.
    (libc::SYS_open, Any),
    (libc::SYS_openat, Any),
    (libc::SYS_openat2, Any),
    (libc::SYS_access, Any),
    (libc::SYS_faccessat, Any),
    (libc::SYS_faccessat2, Any),
    (libc::SYS_stat, Any),
    (libc::SYS_lstat, Any),
    (libc::SYS_fstat, Any),
    (libc::SYS_newfstatat, Any),
    (libc::SYS_statx, Any),
    (libc::SYS_statfs, Any),
    (libc::SYS_fstatfs, Any),
    (libc::SYS_readlink, Any),
    (libc::SYS_readlinkat, Any),
    (libc::SYS_getdents64, Any),
    (libc::SYS_getcwd, Any),
    (libc::SYS_chdir, Any),
    (libc::SYS_fchdir, Any),
    (libc::SYS_umask, Any),
    (libc::SYS_mkdir, Any),
    (libc::SYS_mkdirat, Any),
    (libc::SYS_mknodat, Bits(2, PIPE, OTHER_KINDS)),
    (libc::SYS_symlinkat, Any),
    (libc::SYS_link, Any),
    (libc::SYS_linkat, Any),
    (libc::SYS_unlink, Any),
    (libc::SYS_unlinkat, Any),
    (libc::SYS_rmdir, Any),
    (libc::SYS_rename, Any),
    (libc::SYS_renameat, Any),
    (libc::SYS_renameat2, Any),
    (libc::SYS_chmod, Any),
    (libc::SYS_fchmod, Any),
    (libc::SYS_fchmodat, Any),
    (libc::SYS_fchmodat2, Any),
    (libc::SYS_fchown, Any),
    (libc::SYS_fchownat, Any),
    (libc::SYS_utimensat, Any),
    (libc::SYS_getxattr, Any),
    (libc::SYS_fgetxattr, Any),
    (libc::SYS_flistxattr, Any),
    (libc::SYS_fsetxattr, Any),
    // Sockets.
    (libc::SYS_socket, OneOf(0, FAMILIES)),
    (libc::SYS_socketpair, OneOf(0, FAMILIES)),
    (libc::SYS_bind, Any),
    (libc::SYS_listen, Any),
    (libc::SYS_connect, Any),
    (libc::SYS_accept, Any),
    (libc::SYS_accept4, Any),
    (libc::SYS_getsockname, Any),
    (libc::SYS_getpeername, Any),
    (libc::SYS_getsockopt, Any),
    (libc::SYS_setsockopt, Any),
    (libc::SYS_sendto, Any),
    (libc::SYS_sendmsg, Any),
    (libc::SYS_recvfrom, Any),
    (libc::SYS_recvmsg, Any),
    (libc::SYS_shutdown, Any),
    // The pod's processes.
    (libc::SYS_ptrace, OneOf(0, TRACING)),
    (libc::SYS_process_vm_readv, Any),
    (libc::SYS_process_vm_writev, Any),
    (libc::SYS_pidfd_open, Any),
    (libc::SYS_pidfd_getfd, Any),
    (libc::SYS_pidfd_send_signal, Any),
    (libc::SYS_kill, Any),
    (libc::SYS_tkill, Any),
    (libc::SYS_tgkill, Any),
    (libc::SYS_kcmp, Any),
    (libc::SYS_get_robust_list, Any),
    (libc::SYS_mq_getsetattr, Any),
    (libc::SYS_mq_timedreceive, Any),
    (libc::SYS_mq_timedsend, Any),
    (libc::SYS_prlimit64, Any),
    (libc::SYS_wait4, Any),
    (libc::SYS_waitid, Any),
    // Threads, and processes that are started, in no other namespaces.
    (libc::SYS_clone, Bits(0, 0, NAMESPACE_FLAGS)),
    (libc::SYS_fork, Any),
    (libc::SYS_vfork, Any),
    (libc::SYS_execve, Any),
    (libc::SYS_setpgid, Any),
    (libc::SYS_setsid, Any),
    (libc::SYS_getpgrp, Any),
    (libc::SYS_getpgid, Any),
    (libc::SYS_getsid, Any),
    (libc::SYS_getppid, Any),
    (libc::SYS_set_robust_list, Any),
    (libc::SYS_set_tid_address, Any),
    (libc::SYS_rseq, Any),
    (libc::SYS_futex_waitv, Any),
    (libc::SYS_membarrier, Any),
    (libc::SYS_arch_prctl, Any),
    (libc::SYS_prctl, OneOf(0, PROCESS_OPTIONS)),
    (libc::SYS_sched_yield, Any),
    (libc::SYS_sched_getaffinity, Any),
    (libc::SYS_getcpu, Any),
    // Who they are, and what they give up.
    (libc::SYS_getuid, Any),
    (libc::SYS_geteuid, Any),
    (libc::SYS_getgid, Any),
    (libc::SYS_getegid, Any),
    (libc::SYS_getgroups, Any),
    (libc::SYS_getresuid, Any),
    (libc::SYS_getresgid, Any),
    (libc::SYS_setresuid, Any),
    (libc::SYS_setresgid, Any),
    (libc::SYS_setgroups, Any),
    (libc::SYS_setns, OneOf(1, ENTERED)),
    (libc::SYS_capget, Any),
    (libc::SYS_capset, Any),
    (libc::SYS_seccomp, OneOf(0, FILTERS)),
    (libc::SYS_getrlimit, Any),
    (libc::SYS_setrlimit, Any),
    (libc::SYS_getrusage, Any),
    (libc::SYS_uname, Any),
    (libc::SYS_sysinfo, Any),
    // Memory. Programs that are started map their code.
    (libc::SYS_mmap, Any),
    (libc::SYS_mprotect, Any),
    (libc::SYS_mincore, Any),
    (libc::SYS_msync, Any),
    // Signals.
    (libc::SYS_rt_sigaction, Any),
    (libc::SYS_rt_sigpending, Any),
    (libc::SYS_rt_sigtimedwait, Any),
    (libc::SYS_rt_sigsuspend, Any),
    // Time.
    (libc::SYS_clock_getres, Any),
    (libc::SYS_clock_nanosleep, Any),
    (libc::SYS_nanosleep, Any),
    (libc::SYS_gettimeofday, Any),
];

/// `prctl` options: names, what becomes of a process when another ends, and what it gives up.
const PROCESS_OPTIONS: &[u32] = &[
    libc::PR_SET_NAME as u32,
    libc::PR_GET_NAME as u32,
    libc::PR_SET_VMA as u32,
    libc::PR_SET_TIMERSLACK as u32,
    libc::PR_SET_PDEATHSIG as u32,
    libc::PR_GET_PDEATHSIG as u32,
    libc::PR_SET_CHILD_SUBREAPER as u32,
    libc::PR_SET_DUMPABLE as u32,
    libc::PR_GET_DUMPABLE as u32,
    libc::PR_SET_NO_NEW_PRIVS as u32,
    libc::PR_GET_NO_NEW_PRIVS as u32,
    libc::PR_CAPBSET_READ as u32,
    libc::PR_CAPBSET_DROP as u32,
    libc::PR_CAP_AMBIENT as u32,
    libc::PR_SET_SECCOMP as u32,
    super::table::GET_AUXILIARY_VECTOR,
];
