//! Who is told by a signal of input and output on a file (fcntl(2), `F_GETOWN_EX`).

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// `F_GETOWN_EX`, which libc does not have for every target.
const GET_OWNER: libc::c_int = 16;
/// `F_GETSIG`.
const GET_SIGNAL: libc::c_int = 11;

/// Who is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Told {
    /// `F_OWNER_*`.
    pub kind: u32,
    /// Its number for us; 0 for nobody.
    pub number: u32,
    /// By which signal; 0 for SIGIO.
    pub signal: u32,
}

/// Ask who is told.
///
/// # Errors
///
/// As fcntl(2).
pub fn read(file: &OwnedFd) -> io::Result<Told> {
    // `struct f_owner_ex`: the kind, and a number.
    let mut owner = [0_i32; 2];
    // SAFETY: the kernel writes two numbers of 32 bits, for which there is room.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), GET_OWNER, owner.as_mut_ptr()) };
    // SAFETY: the call has no pointers.
    let signal = unsafe { libc::fcntl(file.as_raw_fd(), GET_SIGNAL) };
    if result < 0 || signal < 0 {
        return Err(io::Error::last_os_error());
    }
    let [kind, number] = owner.map(|word| u32::try_from(word).unwrap_or(0));
    Ok(Told { kind, number, signal: signal.cast_unsigned() })
}
