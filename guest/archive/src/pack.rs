//! From files to a stream.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat, fstat, fstatfs, major, minor, openat,
    readlinkat, statat,
};
use rustix::io::Errno;
use tar::EntryType;

use crate::entry::{Entry, Writer};
use crate::place::names_contents;
use crate::{Error, at};

/// Bytes moved at once.
const PIECE_BYTES: usize = 64 << 10;

/// A file that says that it is empty may be one that a kernel makes up as it is read; so much of one is
/// taken.
const MADE_UP_MAX_BYTES: u64 = 4 << 20;

/// File systems of the kernel's own, into which one does not go from another (linux/magic.h): proc, sysfs,
/// cgroup2, devpts.
const OF_THE_KERNEL: [i64; 4] = [0x9fa0, 0x6265_6572, 0x6367_7270, 0x1cd1];

/// What is packed: a file, or a directory with all that is in it.
#[derive(Debug)]
pub struct Source {
    path: PathBuf,
    parent: OwnedFd,
    name: OsString,
    status: Stat,
}

impl Source {
    /// What is at a path; if it is a symbolic link, and links are to be followed, what that leads to.
    ///
    /// # Errors
    ///
    /// There is nothing, or it cannot be reached.
    pub fn find(path: &Path, follows_link: bool) -> Result<Self, Error> {
        // A slash or dot after a link means what it leads to.
        let bytes = path.as_os_str().as_bytes();
        let means_target = bytes.ends_with(b"/") || names_contents(path);
        let is_link = || fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink());
        let resolves = path.file_name().is_none() || means_target || (follows_link && is_link());
        let real = match resolves {
            true => fs::canonicalize(path),
            false => Ok(path.to_owned()),
        };
        let real = real.map_err(|error| Error::File { path: path.to_owned(), error })?;
        let (parent, name) = match (real.parent(), real.file_name()) {
            (Some(parent), Some(name)) if parent.as_os_str().is_empty() => (Path::new("."), name),
            (Some(parent), Some(name)) => (parent, name),
            _ => (Path::new("/"), OsStr::new(".")),
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let parent = openat(CWD, parent, flags, Mode::empty()).map_err(at(path))?;
        let status = statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW).map_err(at(path))?;
        Ok(Self { path: path.to_owned(), parent, name: name.to_owned(), status })
    }

    /// Whether it is a directory.
    #[must_use]
    pub fn is_directory(&self) -> bool {
        FileType::from_raw_mode(self.status.st_mode) == FileType::Directory
    }

    /// The first name in the stream.
    fn first_name(&self) -> Vec<u8> {
        match self.path.file_name() {
            _ if names_contents(&self.path) => b".".to_vec(),
            name => name.unwrap_or(&self.name).as_bytes().to_vec(),
        }
    }
}

/// Packs it.
///
/// # Errors
///
/// The first thing that cannot be read, or the stream.
pub fn pack(source: &Source, stream: impl Write) -> Result<(), Error> {
    let mut packing = Packing { writer: Writer::new(stream), links: HashMap::new() };
    let path = source.path.clone();
    let device = source.status.st_dev;
    packing.add(&source.parent, &source.name, &path, source.first_name(), device)?;
    packing.writer.finish()
}

struct Packing<W> {
    writer: Writer<W>,
    /// Files that have several names, by device and number, with the one under which each was packed.
    links: HashMap<(u64, u64), Vec<u8>>,
}

impl<W: Write> Packing<W> {
    /// Adds what has a name in a directory, as `packed`.
    fn add(
        &mut self,
        parent: &OwnedFd,
        name: &OsStr,
        path: &Path,
        packed: Vec<u8>,
        device: u64,
    ) -> Result<(), Error> {
        let status = statat(parent, name, AtFlags::SYMLINK_NOFOLLOW).map_err(at(path))?;
        let kind = match FileType::from_raw_mode(status.st_mode) {
            FileType::RegularFile => return self.add_file(parent, name, path, packed),
            FileType::Directory => return self.add_directory(parent, name, path, packed, device),
            FileType::Symlink => EntryType::Symlink,
            FileType::Fifo => EntryType::Fifo,
            FileType::CharacterDevice => EntryType::Char,
            FileType::BlockDevice => EntryType::Block,
            // A socket is nothing without who listens.
            _ => return Ok(()),
        };
        let mut entry = entry(&status, kind, packed);
        if kind == EntryType::Symlink {
            entry.link = readlinkat(parent, name, Vec::new()).map_err(at(path))?.into_bytes();
        }
        self.writer.header(&entry)
    }

    fn add_file(
        &mut self,
        parent: &OwnedFd,
        name: &OsStr,
        path: &Path,
        packed: Vec<u8>,
    ) -> Result<(), Error> {
        // Were it a pipe by now, to open it would take as long as it likes.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = openat(parent, name, flags, Mode::empty()).map_err(at(path))?;
        let status = fstat(&file).map_err(at(path))?;
        if FileType::from_raw_mode(status.st_mode) != FileType::RegularFile {
            return Err(Error::Unknown { path: path.to_owned(), what: "it changes as it is read" });
        }
        let mut entry = entry(&status, EntryType::Regular, packed);
        entry.size = u64::try_from(status.st_size).unwrap_or(0);
        if status.st_nlink > 1 {
            let number = (status.st_dev, status.st_ino);
            if let Some(first) = self.links.get(&number) {
                (entry.kind, entry.size) = (EntryType::Link, 0);
                entry.link.clone_from(first);
                return self.writer.header(&entry);
            }
            self.links.insert(number, entry.path.clone());
        }
        self.add_contents(File::from(file), entry, path)
    }

    /// A file's header and contents. It may say that it is empty and not be.
    fn add_contents(&mut self, mut file: File, mut entry: Entry, path: &Path) -> Result<(), Error> {
        let failed = |error| Error::File { path: path.to_owned(), error };
        let mut made_up = Vec::new();
        if entry.size == 0 {
            (&mut file).take(MADE_UP_MAX_BYTES).read_to_end(&mut made_up).map_err(failed)?;
            entry.size = made_up.len() as u64;
        }
        self.writer.header(&entry)?;
        self.writer.data(&made_up)?;
        let mut left = entry.size - made_up.len() as u64;
        let mut buffer = vec![0; PIECE_BYTES];
        while left > 0 {
            let most = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            match file.read(&mut buffer[..most]) {
                Ok(0) => {
                    let what = "it has become shorter as it was read";
                    return Err(Error::Unknown { path: path.to_owned(), what });
                }
                Ok(count) => {
                    self.writer.data(&buffer[..count])?;
                    left -= count as u64;
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(failed(error)),
            }
        }
        self.writer.fill(entry.size)
    }

    fn add_directory(
        &mut self,
        parent: &OwnedFd,
        name: &OsStr,
        path: &Path,
        packed: Vec<u8>,
        device: u64,
    ) -> Result<(), Error> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = openat(parent, name, flags, Mode::empty()).map_err(at(path))?;
        let status = fstat(&directory).map_err(at(path))?;
        let mut entry = entry(&status, EntryType::Directory, packed);
        entry.path.push(b'/');
        self.writer.header(&entry)?;
        if status.st_dev != device && is_kernels(&directory).map_err(at(path))? {
            return Ok(());
        }
        for name in names(&directory).map_err(at(path))? {
            let packed = [&entry.path, name.as_bytes()].concat();
            let path = path.join(&name);
            match self.add(&directory, &name, &path, packed, status.st_dev) {
                // Somebody has removed it since its name was read.
                Err(Error::File { error, path: which })
                    if which == path && error.kind() == std::io::ErrorKind::NotFound => {}
                other => other?,
            }
        }
        Ok(())
    }
}

fn is_kernels(directory: &OwnedFd) -> Result<bool, Errno> {
    let kind = fstatfs(directory)?.f_type;
    Ok(OF_THE_KERNEL.contains(&kind))
}

/// What is in a directory, in order.
///
/// # Errors
///
/// It cannot be read.
pub fn names(directory: &OwnedFd) -> Result<Vec<OsString>, Errno> {
    let mut names = Vec::new();
    for name in Dir::read_from(directory.as_fd())? {
        let name = name?.file_name().to_bytes().to_vec();
        if name != b"." && name != b".." {
            names.push(OsString::from_vec(name));
        }
    }
    names.sort();
    Ok(names)
}

fn entry(status: &Stat, kind: EntryType, path: Vec<u8>) -> Entry {
    Entry {
        path,
        link: Vec::new(),
        kind,
        mode: status.st_mode & 0o7777,
        user: status.st_uid,
        group: status.st_gid,
        modified: status.st_mtime,
        device: (major(status.st_rdev), minor(status.st_rdev)),
        size: 0,
    }
}
