//! What the process that is the other end of a guest's virtio sockets may ask of the host's kernel: Unix
//! sockets, and neither files nor processes. It connects to whoever listens at the paths that it has: which
//! these are, a filter cannot see.

use libc::c_long;

use super::table::Condition::{self, Any, OneOf};
use super::table::{CREDENTIALS, DESCRIPTOR_COMMANDS};

/// The only sockets that it makes.
const FAMILIES: &[u32] = &[libc::AF_UNIX as u32];

/// Calls that are made.
pub(super) const ALLOWED: &[(c_long, Condition)] = &[
    // The machine, and its log.
    (libc::SYS_write, Any),
    (libc::SYS_close, Any),
    // Sockets.
    (libc::SYS_socket, OneOf(0, FAMILIES)),
    (libc::SYS_connect, Any),
    (libc::SYS_accept4, Any),
    (libc::SYS_getsockopt, OneOf(2, CREDENTIALS)),
    (libc::SYS_sendto, Any),
    (libc::SYS_recvfrom, Any),
    (libc::SYS_shutdown, Any),
    (libc::SYS_fcntl, OneOf(1, DESCRIPTOR_COMMANDS)),
    (libc::SYS_poll, Any),
    (libc::SYS_ppoll, Any),
];
