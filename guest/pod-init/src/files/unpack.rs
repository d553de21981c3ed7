//! From an archive to files of a pod. The archive may be anybody's: it gets at what the pod's superuser gets at in the
//! pod's own layers and memory, and at nothing that is shared with the host.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use archive::names;
use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, ResolveFlags, Timespec, Timestamps, UTIME_OMIT, Uid,
    XattrFlags, chmodat, chownat, fchmod, fchown, fsetxattr, fstatfs, futimens, linkat, mkdirat,
    mknodat, open, openat, openat2, statat, symlinkat, unlinkat, utimensat,
};
use rustix::io::Errno;
use tar::{Archive, Entry, EntryType};

use super::{OPAQUE, WHITEOUT};
use crate::error::{Doing, Error};
use crate::resolver;

/// The longest path in an archive.
const PATH_MAX_BYTES: usize = 4096;
/// File systems that are a pod's own: tmpfs and overlayfs (linux/magic.h).
const OWN: [i64; 2] = [0x0102_1994, 0x794c_7630];

/// Unpacks an archive in the pod's root.
pub fn unpack(archive: impl Read) -> Result<(), Error> {
    let root = open("/", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
    let root = root.doing("cannot open the pod's root")?;
    let mut unpacking = Unpacking { root, directories: Vec::new() };
    let mut archive = Archive::new(archive);
    for entry in archive.entries().doing("cannot read the files of the image")? {
        let mut entry = entry.doing("cannot read the files of the image")?;
        let path = path_of(&entry.path_bytes()).doing("a file of the image has a wrong path")?;
        unpacking.add(&mut entry, &path).doing(format!("cannot make {}", path.display()))?;
    }
    unpacking.settle()
}

struct Unpacking {
    root: OwnedFd,
    /// Those that get their permissions and times when everything is in them.
    directories: Vec<(PathBuf, Status)>,
}

/// What is set of a file that is there.
struct Status {
    user: Uid,
    group: Gid,
    mode: Mode,
    times: Timestamps,
    attributes: Vec<(String, Vec<u8>)>,
}

/// A path of the archive: names from the root, of which none leads up.
fn path_of(bytes: &[u8]) -> io::Result<PathBuf> {
    let path = Path::new(OsStr::from_bytes(bytes));
    let is_fine = bytes.len() < PATH_MAX_BYTES
        && path.file_name().is_some()
        && path.components().all(|part| matches!(part, Component::Normal(_)));
    if is_fine { Ok(path.components().collect()) } else { Err(io::ErrorKind::InvalidData.into()) }
}

impl Unpacking {
    fn add<R: Read>(&mut self, entry: &mut Entry<'_, R>, path: &Path) -> io::Result<()> {
        let (directory, name) = self.place(path)?;
        if name.as_bytes() == OPAQUE {
            return Ok(remove_all(&directory)?);
        }
        if let Some(removed) = name.as_bytes().strip_prefix(WHITEOUT) {
            return Ok(remove(&directory, OsStr::from_bytes(removed))?);
        }
        let status = Status::of(entry)?;
        match entry.header().entry_type() {
            EntryType::Directory => {
                match make_directory(&directory, name) {
                    // It would be in a directory of the host's (see [`Self::settle`]). What is in it cannot be made.
                    Err(Errno::ACCESS) => {}
                    other => other?,
                }
                self.directories.push((path.to_owned(), status));
                Ok(())
            }
            EntryType::Regular => {
                match remove(&directory, name) {
                    // Who knows names is decided here, where the host's file is mounted in that place.
                    Err(Errno::BUSY) if path == Path::new(resolver::PLACE) => return Ok(()),
                    other => other?,
                }
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
                let file = openat(&directory, name, flags, Mode::from_raw_mode(0o600))?;
                let mut file = File::from(file);
                io::copy(entry, &mut file)?;
                Ok(status.set(&file)?)
            }
            EntryType::Symlink => {
                remove(&directory, name)?;
                let target = entry.link_name_bytes().ok_or(io::ErrorKind::InvalidData)?;
                symlinkat(OsStr::from_bytes(&target), &directory, name)?;
                Ok(status.set_by_name(&directory, name)?)
            }
            EntryType::Link => {
                let target = entry.link_name_bytes().ok_or(io::ErrorKind::InvalidData)?;
                let target = path_of(&target)?;
                let (from, old) = self.place(&target)?;
                if target != path {
                    remove(&directory, name)?;
                    linkat(&from, old, &directory, name, AtFlags::empty())?;
                }
                Ok(())
            }
            EntryType::Fifo => {
                remove(&directory, name)?;
                mknodat(&directory, name, FileType::Fifo, Mode::from_raw_mode(0o600), 0)?;
                chmodat(&directory, name, status.mode, AtFlags::empty())?;
                Ok(status.set_by_name(&directory, name)?)
            }
            _ => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// The directory that a path leads to, without any link, and the last name. It is in a file system of the pod's
    /// own.
    fn place<'a>(&self, path: &'a Path) -> io::Result<(OwnedFd, &'a OsStr)> {
        let name = path.file_name().ok_or(io::ErrorKind::InvalidData)?;
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let directory = self.open(parent.unwrap_or(Path::new(".")))?;
        match OWN.contains(&fstatfs(&directory)?.f_type) {
            true => Ok((directory, name)),
            false => Err(io::Error::other("it is not in a file system of the pod's own")),
        }
    }

    fn open(&self, path: &Path) -> Result<OwnedFd, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        openat2(&self.root, path, flags, Mode::empty(), resolve)
    }

    /// Sets what was left for the end, the innermost first.
    ///
    /// A directory that may not be changed is the host's: where the pod was, it had its own in that place, because
    /// something was mounted there or it could not be read. Nothing of the pod's is lost by that: in such a directory
    /// nothing could have been made before.
    fn settle(&self) -> Result<(), Error> {
        for (path, status) in self.directories.iter().rev() {
            let what = || format!("cannot make {}", path.display());
            match self.open(path) {
                Ok(directory) => match status.set(&directory) {
                    Err(Errno::PERM) => {}
                    other => other.doing(what())?,
                },
                // A later one has taken its place.
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
                Err(Errno::ACCESS) => {}
                Err(error) => return Err(error).doing(what()),
            }
        }
        Ok(())
    }
}

impl Status {
    fn of<R: Read>(entry: &mut Entry<'_, R>) -> io::Result<Status> {
        let id = |id: u64| u32::try_from(id).map_err(|_| io::ErrorKind::InvalidData);
        let header = entry.header();
        let (user, group) = (id(header.uid()?)?, id(header.gid()?)?);
        let mode = Mode::from_raw_mode(header.mode()? & 0o7777);
        let seconds = i64::try_from(header.mtime()?).map_err(|_| io::ErrorKind::InvalidData)?;
        let mut modified = Timespec { tv_sec: seconds, tv_nsec: 0 };
        let mut attributes = Vec::new();
        for extension in entry.pax_extensions()?.into_iter().flatten() {
            let extension = extension?;
            let (Ok(key), value) = (extension.key(), extension.value_bytes()) else { continue };
            if key == "mtime" {
                modified = time(value).ok_or(io::ErrorKind::InvalidData)?;
            } else if let Some(name) = key.strip_prefix("SCHILY.xattr.") {
                attributes.push((name.to_owned(), value.to_vec()));
            }
        }
        let last_access = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
        let times = Timestamps { last_access, last_modification: modified };
        Ok(Status {
            user: Uid::from_raw(user),
            group: Gid::from_raw(group),
            mode,
            times,
            attributes,
        })
    }

    /// The owner comes first: a change of it takes away what the mode may say of whom a program runs as.
    fn set(&self, file: impl AsFd) -> Result<(), Errno> {
        fchown(&file, Some(self.user), Some(self.group))?;
        fchmod(&file, self.mode)?;
        for (name, value) in &self.attributes {
            match fsetxattr(&file, name.as_str(), value, XattrFlags::empty()) {
                // Another file system, or another security module.
                Err(Errno::OPNOTSUPP) => {}
                other => other?,
            }
        }
        futimens(&file, &self.times)
    }

    fn set_by_name(&self, directory: &OwnedFd, name: &OsStr) -> Result<(), Errno> {
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        chownat(directory, name, Some(self.user), Some(self.group), flags)?;
        utimensat(directory, name, &self.times, flags)
    }
}

/// Seconds, and a fraction of nine digits at the most.
fn time(text: &[u8]) -> Option<Timespec> {
    let text = std::str::from_utf8(text).ok()?;
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let digits = format!("{fraction:0<9}");
    let tv_nsec = digits.get(..9)?.parse::<u32>().ok()?.into();
    Some(Timespec { tv_sec: seconds.parse().ok()?, tv_nsec })
}

fn make_directory(parent: &OwnedFd, name: &OsStr) -> Result<(), Errno> {
    match mkdirat(parent, name, Mode::from_raw_mode(0o700)) {
        Err(Errno::EXIST) => {
            let found = statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
            if FileType::from_raw_mode(found.st_mode) == FileType::Directory {
                return Ok(());
            }
            unlinkat(parent, name, AtFlags::empty())?;
            mkdirat(parent, name, Mode::from_raw_mode(0o700))
        }
        other => other,
    }
}

/// Removes what has a name in a directory, if anything has.
fn remove(parent: &OwnedFd, name: &OsStr) -> Result<(), Errno> {
    match unlinkat(parent, name, AtFlags::empty()) {
        Err(Errno::NOENT) => Ok(()),
        Err(Errno::ISDIR) => {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            remove_all(&openat(parent, name, flags, Mode::empty())?)?;
            unlinkat(parent, name, AtFlags::REMOVEDIR)
        }
        other => other,
    }
}

fn remove_all(directory: &OwnedFd) -> Result<(), Errno> {
    names(directory)?.iter().try_for_each(|name| remove(directory, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_stay_below_the_root() {
        let check = |path: &str, expected: Option<&str>| {
            assert_eq!(path_of(path.as_bytes()).ok(), expected.map(PathBuf::from), "{path:?}");
        };
        check("a/b", Some("a/b"));
        check("a/b/", Some("a/b"));
        check("/a", None);
        check("a/../b", None);
        check("./a", None);
        check("..", None);
        check("", None);
        check(&"a/".repeat(2048), None);
    }

    #[test]
    fn times_have_fractions() {
        let of = |text: &str| time(text.as_bytes()).map(|time| (time.tv_sec, time.tv_nsec));
        assert_eq!(of("1700000000.000000001"), Some((1_700_000_000, 1)));
        assert_eq!(of("-5.5"), Some((-5, 500_000_000)));
        assert_eq!(of("7"), Some((7, 0)));
        assert_eq!(of("x"), None);
        assert_eq!(of("1.x"), None);
    }
}
