//! Reads the tree: the attributes of each file, and its contents, which go to the output at once.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::buffer::spare_capacity;
use rustix::fs::{
    CWD, Dir, FileType, Mode, OFlags, Stat, fstat, getxattr, listxattr, major, minor, openat,
    readlinkat, seek,
};
use rustix::io::Errno;

use crate::format::{self, BLOCK_BYTES};
use crate::limits::{BUFFER_BYTES, MAX_ATTRIBUTE_BYTES, MAX_INLINE_BYTES, MAX_OPEN_DIRECTORIES};
use crate::output::Output;
use crate::{Attributes, Error, Extended};

/// A file, with all that is not in the output already.
#[derive(Debug)]
pub struct Inode {
    /// As it is to be.
    pub attributes: Attributes,
    /// The extended ones, encoded.
    pub encoded: Vec<u8>,
    /// How many names it has.
    pub links: u32,
    /// How long it is.
    pub bytes: u64,
    /// What it has.
    pub data: Data,
}

/// What a file has.
#[derive(Debug)]
pub enum Data {
    /// A regular file's contents, from this block on.
    Blocks(u32),
    /// A short file's, or what a symbolic link says.
    Short(Vec<u8>),
    /// Entries in the order of their names, without the two that are in every directory.
    Directory(Vec<(Vec<u8>, u32)>),
    /// The number of a device.
    Device(u32),
    /// Nothing.
    Nothing,
}

/// All files; the root is the first.
#[derive(Debug, Default)]
pub struct Tree {
    /// By their numbers.
    pub inodes: Vec<Inode>,
}

/// What tells whether a file is the same, and as it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    bytes: i64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    fn of(status: &Stat) -> Self {
        Self {
            device: status.st_dev,
            inode: status.st_ino,
            bytes: status.st_size,
            modified: (status.st_mtime, status.st_mtime_nsec.cast_signed()),
            changed: (status.st_ctime, status.st_ctime_nsec.cast_signed()),
        }
    }

    fn is_same_file(&self, other: &Stamp) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }
}

/// A directory that is being read.
struct Frame {
    /// Closed while many others are read below.
    descriptor: Option<OwnedFd>,
    name: Vec<u8>,
    stamp: Stamp,
    inode: u32,
    rest: std::vec::IntoIter<Vec<u8>>,
    entries: Vec<(Vec<u8>, u32)>,
}

/// See above.
pub struct Walk<'a, 'b> {
    output: &'a mut Output<'b>,
    path: &'a Path,
    look: &'a dyn Fn(&mut Attributes),
    tree: Tree,
    /// The directories on the way from the root.
    frames: Vec<Frame>,
    /// Files with several names, by device and inode number.
    linked: HashMap<(u64, u64), u32>,
    buffer: Vec<u8>,
}

/// What went wrong with a file, before it is known how it is called.
enum Trouble {
    Host(io::Error),
    Changed,
    Mounted,
    Attribute(Vec<u8>),
    Other(Error),
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Self::Host(error)
    }
}

impl From<Errno> for Trouble {
    fn from(errno: Errno) -> Self {
        Self::Host(errno.into())
    }
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Self::Other(error)
    }
}

impl<'a, 'b> Walk<'a, 'b> {
    /// `path` is what the root is called in errors.
    pub fn new(
        output: &'a mut Output<'b>,
        path: &'a Path,
        look: &'a dyn Fn(&mut Attributes),
    ) -> Self {
        let (tree, frames, linked) = (Tree::default(), Vec::new(), HashMap::new());
        Self { output, path, look, tree, frames, linked, buffer: vec![0; BUFFER_BYTES] }
    }

    /// Reads all that is below `root`.
    ///
    /// # Errors
    ///
    /// [`Error`].
    pub fn run(mut self, root: BorrowedFd<'_>) -> Result<Tree, Error> {
        let begun = self.enter(root, Vec::new());
        begun.map_err(|trouble| self.error(trouble, b""))?;
        while let Some(frame) = self.frames.last_mut() {
            let name = frame.rest.next();
            let done = match &name {
                Some(name) => self.add(name.clone()),
                None => self.leave(),
            };
            done.map_err(|trouble| self.error(trouble, name.as_deref().unwrap_or_default()))?;
        }
        Ok(self.tree)
    }

    /// What went wrong with the entry of that name of the current directory, or with that itself.
    fn error(&self, trouble: Trouble, name: &[u8]) -> Error {
        let mut path = PathBuf::from(self.path);
        let names = self.frames.iter().map(|frame| frame.name.as_slice()).chain([name]);
        for name in names.filter(|name| !name.is_empty()) {
            path.push(OsString::from_vec(name.to_vec()));
        }
        match trouble {
            Trouble::Host(error) => Error::Read { path, error },
            Trouble::Changed => Error::Changed(path),
            Trouble::Mounted => Error::Mounted(path),
            Trouble::Attribute(name) => {
                Error::Attribute { path, name: String::from_utf8_lossy(&name).into_owned() }
            }
            Trouble::Other(error) => error,
        }
    }

    /// Begins with a directory.
    fn enter(&mut self, directory: BorrowedFd<'_>, name: Vec<u8>) -> Result<u32, Trouble> {
        let descriptor = reopen(directory, OFlags::DIRECTORY)?;
        let status = fstat(&descriptor)?;
        let stamp = Stamp::of(&status);
        let mut names = Vec::new();
        for entry in Dir::read_from(&descriptor)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                names.push(name.to_vec());
            }
        }
        names.sort_unstable();
        // A list that changes may name something twice.
        if names.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(Trouble::Changed);
        }
        let inode = self.push(descriptor.as_fd(), &status, Data::Nothing, 0)?;
        let entries = Vec::with_capacity(names.len());
        let (rest, descriptor) = (names.into_iter(), Some(descriptor));
        self.frames.push(Frame { descriptor, name, stamp, inode, rest, entries });
        if let Some(hidden) = self.frames.len().checked_sub(MAX_OPEN_DIRECTORIES + 1) {
            self.frames[hidden].descriptor = None;
        }
        Ok(inode)
    }

    /// Ends with one, in which nothing may have changed.
    fn leave(&mut self) -> Result<(), Trouble> {
        let Some(last) = self.frames.last_mut() else { return Ok(()) };
        let descriptor = last.descriptor.take().ok_or(Errno::BADF)?;
        if Stamp::of(&fstat(&descriptor)?) != last.stamp {
            return Err(Trouble::Changed);
        }
        let entries = std::mem::take(&mut last.entries);
        self.tree.inodes[last.inode as usize].data = Data::Directory(entries);
        let depth = self.frames.len();
        if let Some(above) = depth.checked_sub(2).map(|above| &mut self.frames[above])
            && above.descriptor.is_none()
        {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let opened = openat(&descriptor, c"..", flags, Mode::empty())?;
            if !Stamp::of(&fstat(&opened)?).is_same_file(&above.stamp) {
                return Err(Trouble::Changed);
            }
            above.descriptor = Some(opened);
        }
        self.frames.pop();
        Ok(())
    }

    /// Adds an entry of the current directory.
    fn add(&mut self, name: Vec<u8>) -> Result<(), Trouble> {
        let Some(frame) = self.frames.last() else { return Ok(()) };
        let directory = frame.descriptor.as_ref().ok_or(Errno::BADF)?;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = match openat(directory, name.as_slice(), flags, Mode::empty()) {
            Err(Errno::NOENT) => return Err(Trouble::Changed),
            opened => opened?,
        };
        let status = fstat(&file)?;
        if status.st_dev != frame.stamp.device {
            return Err(Trouble::Mounted);
        }
        let depth = self.frames.len();
        let kind = FileType::from_raw_mode(status.st_mode);
        let inode = match (kind, self.linked.get(&(status.st_dev, status.st_ino))) {
            (FileType::Directory, _) => self.enter(file.as_fd(), name.clone())?,
            (_, Some(&inode)) => {
                self.tree.inodes[inode as usize].links += 1;
                inode
            }
            (_, None) => {
                let inode = self.add_file(file.as_fd(), &status)?;
                if status.st_nlink > 1 {
                    self.linked.insert((status.st_dev, status.st_ino), inode);
                }
                inode
            }
        };
        self.frames[depth - 1].entries.push((name, inode));
        Ok(())
    }

    /// Adds what is no directory.
    fn add_file(&mut self, file: BorrowedFd<'_>, status: &Stat) -> Result<u32, Trouble> {
        let (data, bytes) = match FileType::from_raw_mode(status.st_mode) {
            FileType::RegularFile => return self.add_regular(file, status),
            FileType::Symlink => {
                let target = readlinkat(file, c"", Vec::new())?.into_bytes();
                let bytes = target.len() as u64;
                (Data::Short(target), bytes)
            }
            FileType::CharacterDevice | FileType::BlockDevice => {
                let (major, minor) = (major(status.st_rdev), minor(status.st_rdev));
                (Data::Device(format::device(major, minor)), 0)
            }
            _ => (Data::Nothing, 0),
        };
        self.push(file, status, data, bytes)
    }

    fn add_regular(&mut self, file: BorrowedFd<'_>, status: &Stat) -> Result<u32, Trouble> {
        let mut opened: File = reopen(file, OFlags::empty())?.into();
        let bytes = u64::try_from(status.st_size).map_err(|_| Trouble::Changed)?;
        let data = match bytes {
            0 => Data::Nothing,
            _ if bytes <= MAX_INLINE_BYTES as u64 => {
                let mut contents = vec![0; bytes as usize];
                opened.read_exact(&mut contents).map_err(shortened)?;
                Data::Short(contents)
            }
            _ => {
                let first = self.output.block()?;
                self.copy(&mut opened, bytes)?;
                Data::Blocks(first)
            }
        };
        let inode = self.push(file, status, data, bytes)?;
        match Stamp::of(&fstat(&opened)?) == Stamp::of(status) {
            true => Ok(inode),
            false => Err(Trouble::Changed),
        }
    }

    /// Copies so many bytes to the output. What the host knows to be zeroes is not read.
    fn copy(&mut self, file: &mut File, bytes: u64) -> Result<(), Trouble> {
        const BLOCK: u64 = BLOCK_BYTES as u64;
        let mut at = 0;
        while at < bytes {
            let data = match seek(&*file, rustix::fs::SeekFrom::Data(at)) {
                Ok(data) => data.min(bytes),
                Err(Errno::NXIO) => bytes,
                // The file system does not tell.
                Err(_) => at,
            };
            // A hole that goes to the end has the last block, which may be a part of one.
            let hole = if data == bytes { bytes.next_multiple_of(BLOCK) } else { data };
            let blocks = hole / BLOCK - at / BLOCK;
            if blocks > 0 {
                self.output.skip(blocks)?;
                at = (at + blocks * BLOCK).min(bytes);
                continue;
            }
            file.seek(SeekFrom::Start(at))?;
            let now = (bytes - at).min(BUFFER_BYTES as u64) as usize;
            file.read_exact(&mut self.buffer[..now]).map_err(shortened)?;
            self.output.add(&self.buffer[..now])?;
            at += now as u64;
        }
        Ok(())
    }

    /// Adds an inode; its number.
    fn push(
        &mut self,
        file: BorrowedFd<'_>,
        status: &Stat,
        data: Data,
        bytes: u64,
    ) -> Result<u32, Trouble> {
        let mut attributes = Attributes {
            mode: status.st_mode,
            user: status.st_uid,
            group: status.st_gid,
            seconds: status.st_mtime,
            nanoseconds: status.st_mtime_nsec as u32,
            extended: extended(file)?,
        };
        (self.look)(&mut attributes);
        attributes.mode = attributes.mode & PERMISSIONS | status.st_mode & !PERMISSIONS;
        attributes.extended.sort_unstable();
        let encoded = format::attributes(&attributes.extended).map_err(Trouble::Attribute)?;
        let number = u32::try_from(self.tree.inodes.len()).map_err(|_| Error::TooLarge)?;
        self.tree.inodes.push(Inode { attributes, encoded, links: 1, bytes, data });
        Ok(number)
    }
}

/// The bits of a mode that chmod(2) sets.
const PERMISSIONS: u32 = 0o7777;

/// A file has become shorter.
fn shortened(error: io::Error) -> Trouble {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => Trouble::Changed,
        _ => Trouble::Host(error),
    }
}

/// By which name the host's kernel leads to exactly this file, whatever it is called now.
fn path_of(file: BorrowedFd<'_>) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// The same file, to be read.
fn reopen(file: BorrowedFd<'_>, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let flags = flags | OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    openat(CWD, path_of(file), flags, Mode::empty())
}

/// Its extended attributes.
fn extended(file: BorrowedFd<'_>) -> Result<Extended, Trouble> {
    let path = path_of(file);
    let mut names = Vec::with_capacity(MAX_ATTRIBUTE_BYTES);
    match listxattr(&path, spare_capacity(&mut names)) {
        Err(Errno::OPNOTSUPP) => return Ok(Vec::new()),
        listed => listed?,
    };
    let mut found = Vec::new();
    for name in names.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let mut value = Vec::with_capacity(MAX_ATTRIBUTE_BYTES);
        match getxattr(&path, name, spare_capacity(&mut value)) {
            Err(Errno::NODATA) => return Err(Trouble::Changed),
            read => read?,
        };
        value.shrink_to_fit();
        found.push((name.to_vec(), value));
    }
    Ok(found)
}
