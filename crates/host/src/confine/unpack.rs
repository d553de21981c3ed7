//! What a process that decompresses may ask of the host's kernel: to read its input and to write its output.
//! Beside what every process may ([`super::process`]), that is all.

use libc::c_long;

use super::table::Condition::{self, OneOf};

/// Standard input.
const INPUT: &[u32] = &[libc::STDIN_FILENO as u32];

/// Standard output, and standard error for what is said of a refusal or a panic.
const OUTPUT: &[u32] = &[libc::STDOUT_FILENO as u32, libc::STDERR_FILENO as u32];

/// Calls that are made.
pub(super) const ALLOWED: &[(c_long, Condition)] =
    &[(libc::SYS_read, OneOf(0, INPUT)), (libc::SYS_write, OneOf(0, OUTPUT))];
