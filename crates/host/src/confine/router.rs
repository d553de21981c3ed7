//! What the process of a network between domains may ask of the host's kernel: frames and requests on sockets that are
//! connected, those who connect to its own, and neither files nor processes.

use libc::c_long;

use super::table::CREDENTIALS;
use super::table::Condition::{self, Any, OneOf, Zero};

/// Calls that are made.
pub(super) const ALLOWED: &[(c_long, Condition)] = &[
    // Its log.
    (libc::SYS_write, Any),
    (libc::SYS_close, Any),
    // Its control socket, with the cables that come over it.
    (libc::SYS_accept4, Any),
    (libc::SYS_getsockopt, OneOf(2, CREDENTIALS)),
    (libc::SYS_recvmsg, Any),
    // Is a cable's memory what it is said to be?
    (libc::SYS_fcntl, OneOf(1, &[libc::F_GET_SEALS as u32])),
    (libc::SYS_lseek, Any),
    // Cables.
    (libc::SYS_sendto, Zero(4)),
    (libc::SYS_recvfrom, Any),
    (libc::SYS_getcpu, Any),
    (libc::SYS_poll, Any),
    (libc::SYS_ppoll, Any),
];
