//! What the process that is a guest's network may ask of the host's kernel: sockets to everywhere, and
//! neither files nor processes. Beside what every process may ([`super::process`]), it is a list of its own, and
//! shorter than a machine's.

use libc::c_long;

use super::table::Condition::{self, Any, OneOf};
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
    (libc::SYS_getsockname, Any),
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
];
