//! Locks of an image, the same as QEMU's (block/file-posix.c), so that each program respects the
//! other's.
//!
//! They are locks of single bytes of the file, whatever is stored there: one byte for each
//! operation that a user of the image performs, and one for each that it forbids to others. Both
//! kinds are shared locks. A new user looks whether another holds the opposite of what it wants.

use std::fs::File;
use std::io;
use std::path::Path;

use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use spec::Extent;
use vmm::disk::SECTOR_BYTES;

/// Where the bytes of what is done begin, and of what others may not do.
const DOES: i64 = 100;
const FORBIDS: i64 = 200;

/// What can be done (`BLK_PERM_*`).
const READ: i64 = 0;
const WRITE: i64 = 1;
const RESIZE: i64 = 3;

/// Where the locks of sectors begin: no file has so many bytes.
const SECTORS: i64 = 1 << 62;

/// Lock an image for a machine that writes to it, or does not. The lock lasts as long as the file is
/// open.
///
/// # Errors
///
/// [`io::ErrorKind::WouldBlock`] when another user is in the way; the host's when it has no such locks.
pub fn lock(file: &File, writes: bool) -> io::Result<()> {
    let does: &[i64] = if writes { &[READ, WRITE] } else { &[READ] };
    announce(file, does, &[WRITE, RESIZE])?;
    refuse_others(file, does, &[WRITE, RESIZE])
}

/// Whether the file at a path has the lock that was asked for, or is on a file system that has none.
pub fn is_had(asked: &io::Result<()>, path: &Path) -> bool {
    match asked {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
        Err(error) => tracing::info!("{}: not locked: {error}", path.display()),
        Ok(()) => {}
    }
    true
}

/// Lock parts of an image for a machine that writes to them, or does not; likewise.
///
/// To who uses the whole file, each user of parts is a writer: they keep each other out. Among themselves, the users
/// of parts have a lock for each sector, far behind all bytes of the file: shared for those that only read.
///
/// # Errors
///
/// As [`lock`].
pub fn lock_parts(file: &File, parts: &[Extent], writes: bool) -> io::Result<()> {
    announce(file, &[READ, WRITE], &[RESIZE])?;
    for part in parts {
        let is_written = writes && !part.read_only;
        let kind = if is_written { libc::F_WRLCK } else { libc::F_RDLCK };
        let (start, sectors) = (part.start / SECTOR_BYTES, part.bytes / SECTOR_BYTES);
        let mut description = describe(SECTORS + start.cast_signed(), kind);
        description.l_len = sectors.cast_signed();
        fcntl(file, FcntlArg::F_OFD_SETLK(&description)).map_err(|errno| match errno {
            nix::Error::EAGAIN | nix::Error::EACCES => io::ErrorKind::WouldBlock.into(),
            errno => io::Error::from(errno),
        })?;
    }
    refuse_others(file, &[READ, WRITE], &[RESIZE])
}

/// Say what is done, and what others may not do.
fn announce(file: &File, does: &[i64], forbids: &[i64]) -> io::Result<()> {
    let does = does.iter().map(|it| DOES + it);
    for place in does.chain(forbids.iter().map(|it| FORBIDS + it)) {
        let description = describe(place, libc::F_RDLCK);
        fcntl(file, FcntlArg::F_OFD_SETLK(&description)).map_err(io::Error::from)?;
    }
    Ok(())
}

/// Look whether another forbids what is done, or does what it may not. Both sides announce before they look, so that
/// one of them sees the other.
fn refuse_others(file: &File, does: &[i64], forbids: &[i64]) -> io::Result<()> {
    let does = does.iter().map(|it| FORBIDS + it);
    for place in does.chain(forbids.iter().map(|it| DOES + it)) {
        let mut description = describe(place, libc::F_WRLCK);
        fcntl(file, FcntlArg::F_OFD_GETLK(&mut description)).map_err(io::Error::from)?;
        if description.l_type != libc::F_UNLCK as i16 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
    }
    Ok(())
}

/// The lock of one byte.
fn describe(place: i64, kind: i32) -> libc::flock {
    libc::flock {
        l_type: kind as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: place,
        l_len: 1,
        l_pid: 0,
    }
}
