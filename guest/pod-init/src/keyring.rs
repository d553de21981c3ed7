//! The session keyring (keyrings(7)), which no namespace covers.

use std::io;

/// `KEYCTL_JOIN_SESSION_KEYRING` (linux/keyctl.h).
const JOIN_SESSION_KEYRING: libc::c_long = 1;

/// Has this process, and all that it starts, leave the host's session keyring for a new one. A kernel without keys has
/// none to leave, and a filter that forbids keys forbids them to all.
#[expect(unsafe_code, reason = "a system call that no safe crate has")]
pub fn renew() -> io::Result<()> {
    let no_name = std::ptr::null::<libc::c_char>();
    // SAFETY: the call takes a number and, as a name, no string at all: an anonymous keyring.
    let answer = unsafe { libc::syscall(libc::SYS_keyctl, JOIN_SESSION_KEYRING, no_name) };
    match answer {
        -1 => match io::Error::last_os_error() {
            error if [Some(libc::ENOSYS), Some(libc::EPERM)].contains(&error.raw_os_error()) => {
                Ok(())
            }
            error => Err(error),
        },
        _ => Ok(()),
    }
}
