//! From a stream to files.

use std::ffi::{OsStr, OsString};
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, Timespec, Timestamps, UTIME_OMIT, Uid, chmod, chownat,
    fchmod, fchown, fstat, futimens, linkat, makedev, mkdirat, mknodat, openat, statat, symlinkat,
    unlinkat, utimensat,
};
use rustix::io::Errno;
use tar::EntryType;

use crate::entry::{Entry, Reader};
use crate::place::{Names, Place};
use crate::{Destination, Error, at};

/// Bytes moved at once.
const PIECE_BYTES: usize = 64 << 10;

/// To whom what is unpacked belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// Whoever unpacks it.
    Ours,
    /// This user and group.
    Of(u32, u32),
    /// Whom the stream says.
    Kept,
}

/// What a stream may do.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    /// To whom it gives what it has.
    pub owner: Owner,
    /// Directories may be links that were there.
    pub follows_links: bool,
    /// It may make devices.
    pub makes_devices: bool,
    /// Programs may be such that run as their owner or group.
    pub sets_id: bool,
}

impl Rules {
    /// For a stream of somebody who is not trusted. Only who keeps the owners of files wants programs that
    /// run as their owners.
    #[must_use]
    pub fn of_a_stranger(owner: Owner) -> Rules {
        let sets_id = owner == Owner::Kept;
        Rules { owner, follows_links: false, makes_devices: false, sets_id }
    }

    /// For one of whoever owns all that there is here.
    #[must_use]
    pub fn of_the_master(owner: Owner) -> Rules {
        Rules { owner, follows_links: true, makes_devices: true, sets_id: true }
    }
}

/// Unpacks a stream; how many files were left out because they are devices.
///
/// # Errors
///
/// The first thing that goes wrong; what was unpacked until then stays.
pub fn unpack(stream: impl Read, destination: &Destination, rules: &Rules) -> Result<usize, Error> {
    let mut reader = Reader::new(stream);
    let Some(first) = reader.next_entry()? else {
        // An empty directory is no empty stream: whoever packs says at least which.
        return match destination {
            Destination::Directory(_) => Place::find(destination, true, true).map(|_| 0),
            Destination::Copy(..) => Err(Error::Short),
        };
    };
    let is_directory = first.kind == EntryType::Directory;
    if !rules.makes_devices && matches!(first.kind, EntryType::Char | EntryType::Block) {
        return Err(Error::Unknown { path: first.shown(), what: "devices are not copied" });
    }
    let place = Place::find(destination, is_directory, rules.follows_links)?;
    let mut unpacking = Unpacking { place, rules, directories: Vec::new(), left_out: 0 };
    let mut next = Some(first);
    while let Some(entry) = next {
        unpacking.unpack(&entry, &mut reader)?;
        next = reader.next_entry()?;
    }
    unpacking.settle_directories()?;
    Ok(unpacking.left_out)
}

struct Unpacking<'a> {
    place: Place,
    rules: &'a Rules,
    /// Those that get their permissions and times when everything is in them.
    directories: Vec<(Names, Status)>,
    left_out: usize,
}

/// What is set of a file that is there.
struct Status {
    owner: Option<(u32, u32)>,
    mode: Mode,
    times: Timestamps,
}

impl Unpacking<'_> {
    fn unpack(&mut self, entry: &Entry, reader: &mut Reader<impl Read>) -> Result<(), Error> {
        let names = self.place.names(&entry.path)?;
        let Some((name, parents)) = names.split_last() else {
            // The destination itself, which is there.
            return match entry.kind {
                EntryType::Directory => Ok(()),
                _ => Err(Error::Outside(entry.shown())),
            };
        };
        let parent = self.place.open(parents)?;
        let shown = self.place.shown(&names);
        let status = self.status(entry);
        if entry.kind == EntryType::Directory {
            if self.make_directory(&parent, name, &shown)? {
                self.directories.push((names, status));
            }
            return Ok(());
        }
        let made = match entry.kind {
            EntryType::Regular | EntryType::Continuous => {
                clear(&parent, name, &shown)?;
                return file(&parent, name, &shown, &status, reader);
            }
            EntryType::Link => return self.link(&parent, &names, entry),
            EntryType::Symlink => {
                clear(&parent, name, &shown)?;
                symlinkat(OsStr::from_bytes(&entry.link), &parent, name)
            }
            EntryType::Fifo => {
                clear(&parent, name, &shown)?;
                mknodat(&parent, name, FileType::Fifo, Mode::from_raw_mode(0o600), 0)
            }
            EntryType::Char | EntryType::Block if !self.rules.makes_devices => {
                self.left_out += 1;
                return Ok(());
            }
            EntryType::Char | EntryType::Block => {
                clear(&parent, name, &shown)?;
                let is_char = entry.kind == EntryType::Char;
                let kind = if is_char { FileType::CharacterDevice } else { FileType::BlockDevice };
                let number = makedev(entry.device.0, entry.device.1);
                mknodat(&parent, name, kind, Mode::from_raw_mode(0o600), number)
            }
            _ => return Err(Error::Unknown { path: shown, what: "it is of an unknown kind" }),
        };
        made.and_then(|()| set_by_name(&parent, name, &status, entry.kind)).map_err(at(&shown))
    }

    fn status(&self, entry: &Entry) -> Status {
        let owner = match self.rules.owner {
            Owner::Ours => None,
            Owner::Of(user, group) => Some((user, group)),
            Owner::Kept => Some((entry.user, entry.group)),
        };
        let mask = if self.rules.sets_id { 0o7777 } else { 0o1777 };
        let modified = Timespec { tv_sec: entry.modified, tv_nsec: 0 };
        let last_access = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
        let times = Timestamps { last_access, last_modification: modified };
        Status { owner, mode: Mode::from_raw_mode(entry.mode & mask), times }
    }

    /// Whether it was made; one that is there stays as it is.
    fn make_directory(&self, parent: &OwnedFd, name: &OsStr, shown: &Path) -> Result<bool, Error> {
        match mkdirat(parent, name, Mode::from_raw_mode(0o700)) {
            Ok(()) => Ok(true),
            Err(Errno::EXIST) => match self.place.open_one(parent, name) {
                Ok(_) => Ok(false),
                Err(Errno::NOTDIR | Errno::LOOP) => Err(Error::NoDirectory(shown.to_owned())),
                Err(errno) => Err(at(shown)(errno)),
            },
            Err(errno) => Err(at(shown)(errno)),
        }
    }

    /// Another name for what the stream had before, or for what is there: it is changed by neither.
    fn link(&self, parent: &OwnedFd, names: &[OsString], entry: &Entry) -> Result<(), Error> {
        let shown = self.place.shown(names);
        let target = self.place.names(&entry.link)?;
        let (Some(name), Some((target_name, parents))) = (names.last(), target.split_last()) else {
            return Err(Error::Outside(entry.shown()));
        };
        if target == names {
            return Ok(());
        }
        let directory = self.place.open(parents)?;
        clear(parent, name, &shown)?;
        linkat(&directory, target_name, parent, name, AtFlags::empty()).map_err(at(&shown))
    }

    fn settle_directories(&self) -> Result<(), Error> {
        for (names, status) in self.directories.iter().rev() {
            let shown = self.place.shown(names);
            let Some((name, parents)) = names.split_last() else { continue };
            let parent = self.place.open(parents)?;
            let directory = self.place.open_one(&parent, name).map_err(at(&shown))?;
            set(&directory, status).map_err(at(&shown))?;
        }
        Ok(())
    }
}

/// Removes a file, symbolic link or pipe that is to be replaced.
fn clear(parent: &OwnedFd, name: &OsStr, shown: &Path) -> Result<(), Error> {
    let found = match statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => return Ok(()),
        other => other.map_err(at(shown))?,
    };
    let what = match FileType::from_raw_mode(found.st_mode) {
        FileType::RegularFile | FileType::Symlink | FileType::Fifo => {
            return unlinkat(parent, name, AtFlags::empty()).map_err(at(shown));
        }
        FileType::Directory => "a directory",
        _ => "a device or a socket",
    };
    Err(Error::InTheWay { path: shown.to_owned(), what })
}

/// Makes a file with the contents that come next. What cannot be completed is removed.
fn file(
    parent: &OwnedFd,
    name: &OsStr,
    shown: &Path,
    status: &Status,
    reader: &mut Reader<impl Read>,
) -> Result<(), Error> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = openat(parent, name, flags, Mode::from_raw_mode(0o600)).map_err(at(shown))?;
    let mut file = std::fs::File::from(file);
    let mut fill = || {
        let mut buffer = vec![0; PIECE_BYTES];
        loop {
            match reader.read(&mut buffer)? {
                0 => return set(&file, status).map_err(at(shown)),
                count => file
                    .write_all(&buffer[..count])
                    .map_err(|error| Error::File { path: shown.to_owned(), error })?,
            }
        }
    };
    let filled = fill();
    if filled.is_err() {
        // The first error is the one to be told.
        let _ = unlinkat(parent, name, AtFlags::empty());
    }
    filled
}

/// The owner comes first: a change of it takes away what the mode may say of whom a program runs as.
fn set(file: impl AsFd, status: &Status) -> Result<(), Errno> {
    if let Some((user, group)) = status.owner {
        let now = fstat(&file)?;
        if (now.st_uid, now.st_gid) != (user, group) {
            fchown(&file, Some(Uid::from_raw(user)), Some(Gid::from_raw(group)))?;
        }
    }
    fchmod(&file, status.mode)?;
    futimens(&file, &status.times)
}

/// The same of what was just made and is not to be opened.
fn set_by_name(
    parent: &OwnedFd,
    name: &OsStr,
    status: &Status,
    kind: EntryType,
) -> Result<(), Errno> {
    let flags = AtFlags::SYMLINK_NOFOLLOW;
    if let Some((user, group)) = status.owner {
        let now = statat(parent, name, flags)?;
        if (now.st_uid, now.st_gid) != (user, group) {
            chownat(parent, name, Some(Uid::from_raw(user)), Some(Gid::from_raw(group)), flags)?;
        }
    }
    if kind != EntryType::Symlink {
        // By its name it could be something else by now, and to open it may have an effect.
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let special = openat(parent, name, flags, Mode::empty())?;
        chmod(format!("/proc/self/fd/{}", special.as_raw_fd()), status.mode)?;
    }
    utimensat(parent, name, &status.times, flags)
}
