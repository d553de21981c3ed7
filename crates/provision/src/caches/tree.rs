//! A tree of files that somebody hostile has made: counted and removed without being led out of it.
//!
//! Each directory is opened by one name beneath the descriptor of another, and no link is followed. Whatever the tree's
//! depth, the stack of this process does not grow with it, and few descriptors are open: who counts goes
//! [`MAX_COUNTED_DEPTH`] down, and who removes moves a directory that is not empty up to the top before it goes on with
//! it. So there are never more than two levels to look at, and each step leaves fewer files.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, RenameFlags, chmod, fstat, openat, renameat_with, statat,
    unlinkat,
};
use rustix::io::Errno;
use rustix::path::Arg;

use crate::limits::{MAX_COUNTED_DEPTH, MAX_NAMES_AT_ONCE};

/// The unit of `st_blocks`, in bytes (inode(7)).
const BLOCK_BYTES: u64 = 512;

/// What a directory is called that was moved up.
const MOVED: &str = ".moved-";

/// A directory, and nothing that a link leads to.
pub fn open(above: impl AsFd, name: impl Arg) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(above, name, flags, Mode::empty())
}

/// What files below a directory take, in bytes: those that may be seen, on its own file system, down to a depth. A file
/// of several names counts in parts, which are the whole if all its names are there.
pub fn size(directory: OwnedFd) -> u64 {
    let Ok(device) = fstat(&directory).map(|found| found.st_dev) else { return 0 };
    let mut bytes = 0u64;
    let mut above: Vec<_> = Dir::new(directory).into_iter().collect();
    while let Some(directory) = above.last_mut() {
        let Some(Ok(entry)) = directory.read() else {
            above.pop();
            continue;
        };
        let name = entry.file_name();
        let found = directory.fd().and_then(|it| statat(it, name, AtFlags::SYMLINK_NOFOLLOW));
        let Ok(found) = found else { continue };
        if is_dot(name) || found.st_dev != device {
            continue;
        }
        let is_directory = FileType::from_raw_mode(found.st_mode) == FileType::Directory;
        let names = if is_directory { 1 } else { found.st_nlink.max(1) };
        let blocks = u64::try_from(found.st_blocks).unwrap_or(0);
        bytes = bytes.saturating_add(blocks.saturating_mul(BLOCK_BYTES) / names);
        if is_directory && above.len() < MAX_COUNTED_DEPTH {
            let directory = above.last().map(|it| it.fd().and_then(|it| open(it, name)));
            above.extend(directory.and_then(Result::ok).and_then(|below| Dir::new(below).ok()));
        }
    }
    bytes
}

/// Removes a directory with all that is in it.
///
/// # Errors
///
/// Something could not be removed, or somebody else removes it, too.
pub fn remove(above: BorrowedFd<'_>, name: &str) -> Result<(), Errno> {
    let top = open_to_change(above, name)?;
    let mut moved = 0;
    loop {
        let names = some_names(&top)?;
        if names.is_empty() {
            return unlinkat(above, name, AtFlags::REMOVEDIR);
        }
        for name in &names {
            if !is_gone(top.as_fd(), name)? {
                empty(top.as_fd(), name, &mut moved)?;
            }
        }
    }
}

/// Removes a directory below the top, of which the directories that are not empty are moved up; `moved` have been.
fn empty(top: BorrowedFd<'_>, name: &CStr, moved: &mut u64) -> Result<(), Errno> {
    let directory = open_to_change(top, name)?;
    loop {
        let names = some_names(&directory)?;
        if names.is_empty() {
            return unlinkat(top, name, AtFlags::REMOVEDIR);
        }
        for name in &names {
            if !is_gone(directory.as_fd(), name)? {
                // Who moves a directory changes it, too.
                drop(open_to_change(directory.as_fd(), name)?);
                move_up(directory.as_fd(), name, top, moved)?;
            }
        }
    }
}

/// Moves a directory to the top, under a name that nothing has there.
fn move_up(
    from: BorrowedFd<'_>,
    name: &CStr,
    top: BorrowedFd<'_>,
    moved: &mut u64,
) -> Result<(), Errno> {
    loop {
        let new = format!("{MOVED}{moved}");
        *moved += 1;
        match renameat_with(from, name, top, new, RenameFlags::NOREPLACE) {
            // A guest may have thought of that name.
            Err(Errno::EXIST) => {}
            done => return done,
        }
    }
}

/// Removes what is no directory, or an empty one; whether it was that.
fn is_gone(directory: BorrowedFd<'_>, name: &CStr) -> Result<bool, Errno> {
    match unlinkat(directory, name, AtFlags::empty()) {
        Ok(()) => return Ok(true),
        // Linux says the former of a directory, POSIX the latter.
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(errno) => return Err(errno),
    }
    match unlinkat(directory, name, AtFlags::REMOVEDIR) {
        Ok(()) => Ok(true),
        Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// Opens a directory whose rights may keep its owner out, and gives him all of them.
fn open_to_change(above: BorrowedFd<'_>, name: impl Arg) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = openat(above, name, flags, Mode::empty())?;
    let mode = Mode::from_raw_mode(fstat(&directory)?.st_mode);
    if !mode.contains(Mode::RWXU) {
        // fchmod(2) does not take such a descriptor; this leads to what it is of, whatever its name means now.
        chmod(format!("/proc/self/fd/{}", directory.as_raw_fd()), mode | Mode::RWXU)?;
    }
    open(&directory, ".")
}

/// Some of the names in a directory; none if it is empty.
fn some_names(directory: &OwnedFd) -> Result<Vec<CString>, Errno> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        if !is_dot(entry.file_name()) {
            names.push(entry.file_name().to_owned());
        }
        if names.len() == MAX_NAMES_AT_ONCE {
            break;
        }
    }
    Ok(names)
}

/// Whether it is a directory's name for itself, or for the one above.
fn is_dot(name: &CStr) -> bool {
    matches!(name.to_bytes(), b"." | b"..")
}
