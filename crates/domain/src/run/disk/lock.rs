//! Locks of an image, the same as QEMU's (block/file-posix.c), so that each program respects the
//! other's.
//!
//! They are locks of single bytes of the file, whatever is stored there: one byte for each
//! operation that a user of the image performs, and one for each that it forbids to others. Both
//! kinds are shared locks. A new user looks whether another holds the opposite of what it wants.

use std::fs::File;
use std::io;

use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;

/// Where the bytes of what is done begin, and of what others may not do.
const DOES: i64 = 100;
const FORBIDS: i64 = 200;

/// What can be done (`BLK_PERM_*`).
const READ: i64 = 0;
const WRITE: i64 = 1;
const RESIZE: i64 = 3;

/// Lock an image for a machine that writes to it, or does not. The lock lasts as long as the file is
/// open.
///
/// # Errors
///
/// [`io::ErrorKind::WouldBlock`] when another user is in the way; the host's when it has no such locks.
pub fn lock(file: &File, writes: bool) -> io::Result<()> {
    let does: &[i64] = if writes { &[READ, WRITE] } else { &[READ] };
    let forbids = [WRITE, RESIZE];
    for place in does.iter().map(|it| DOES + it).chain(forbids.map(|it| FORBIDS + it)) {
        let description = describe(place, libc::F_RDLCK);
        fcntl(file, FcntlArg::F_OFD_SETLK(&description)).map_err(io::Error::from)?;
    }
    // Both sides lock before they look, so that one of them sees the other.
    for place in does.iter().map(|it| FORBIDS + it).chain(forbids.map(|it| DOES + it)) {
        let mut description = describe(place, libc::F_WRLCK);
        fcntl(file, FcntlArg::F_OFD_GETLK(&mut description)).map_err(io::Error::from)?;
        if description.l_type != libc::F_UNLCK as i16 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
    }
    Ok(())
}

fn describe(place: i64, kind: i32) -> libc::flock {
    libc::flock {
        l_type: kind as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: place,
        l_len: 1,
        l_pid: 0,
    }
}
