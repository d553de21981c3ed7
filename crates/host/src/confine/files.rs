//! What a file server may ask of the host's kernel besides what any machine may: all that is done with
//! files. That these are a share's files is the server's own care; what it cannot do is to start a program,
//! to reach the network, or to signal or read another process.

use libc::c_long;

use super::table::Condition::{self, Any};

/// Calls that are made.
pub(super) const ALLOWED: &[(c_long, Condition)] = &[
    (libc::SYS_openat, Any),
    (libc::SYS_openat2, Any),
    (libc::SYS_statx, Any),
    (libc::SYS_newfstatat, Any),
    (libc::SYS_fstatfs, Any),
    (libc::SYS_readlinkat, Any),
    (libc::SYS_getdents64, Any),
    (libc::SYS_mkdirat, Any),
    (libc::SYS_mknodat, Any),
    (libc::SYS_symlinkat, Any),
    (libc::SYS_linkat, Any),
    (libc::SYS_unlinkat, Any),
    (libc::SYS_renameat2, Any),
    (libc::SYS_fchmod, Any),
    (libc::SYS_fchmodat, Any),
    (libc::SYS_fchownat, Any),
    (libc::SYS_utimensat, Any),
    (libc::SYS_copy_file_range, Any),
    (libc::SYS_syncfs, Any),
    (libc::SYS_getxattr, Any),
    (libc::SYS_fgetxattr, Any),
    (libc::SYS_setxattr, Any),
    (libc::SYS_listxattr, Any),
    (libc::SYS_removexattr, Any),
];
