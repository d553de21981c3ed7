//! What a process that reads a disk's boot loader may ask of the host's kernel: to read the image that it has open, to
//! talk to a machine that reads more of it, and to say what is in it. Beside what every process may
//! ([`super::process`]), that is all.

use libc::c_long;

use super::table::Condition::{self, Any, OneOf};

/// Standard input, which is the way to that machine.
const MACHINE: u32 = libc::STDIN_FILENO as u32;

/// That, standard output, and standard error for what is said of a refusal or a panic.
const OUTPUT: &[u32] = &[MACHINE, libc::STDOUT_FILENO as u32, libc::STDERR_FILENO as u32];

/// Calls that are made.
pub(super) const ALLOWED: &[(c_long, Condition)] = &[
    (libc::SYS_read, OneOf(0, &[MACHINE])),
    (libc::SYS_write, OneOf(0, OUTPUT)),
    // Whatever it has is open to be read only.
    (libc::SYS_pread64, Any),
    (libc::SYS_preadv, Any),
    (libc::SYS_fstat, Any),
    (libc::SYS_close, Any),
];
