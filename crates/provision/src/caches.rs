//! Directories in which machines keep from one run to the next what they can fetch or make again: `biv run --cache`.
//!
//! ```text
//!  $XDG_CACHE_HOME/bivouac/caches/   0700
//!      cargo/                        what guests write
//!      .cargo                        locked by who uses it; its time is that of the last use
//!      .lock                         held for a moment by who takes, lists or removes
//!      .gone-1234-0/                 a cache that is being removed
//! ```
//!
//! What rules it:
//!
//! 1. *A guest writes in the directory of a cache, and never beside it.* So names beside it are ours, and what begins
//!    with a full stop is no name of a cache ([`spec::Cache::is_name`]).
//! 2. *What is in a cache is hostile.* This process reads no file of it, follows no link, and opens a directory only by
//!    one name beneath the descriptor of another ([`tree`]).
//! 3. *A cache goes as a whole, and only if nobody uses it.* A machine holds a shared lock ([`Held`]) until its end,
//!    however that comes. Who removes a cache takes the lock for itself, renames the directory, and empties it then: a
//!    machine that starts meanwhile has a new one. What was not emptied to its end is emptied by the next who removes.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{
    AtFlags, Dir, FlockOperation, Mode, OFlags, RenameFlags, flock, mkdirat, openat, renameat_with,
    unlinkat,
};
use rustix::io::Errno;
use spec::Cache;

use super::cache::{self, cache_directory, trusted};
use super::limits::MAX_REMOVALS;

mod tree;

/// Where they are in the user's cache directory.
const DIRECTORY: &str = "caches";

/// What is held by who changes or looks at the list.
const LOCK: &str = ".lock";

/// What a cache is called that is being removed.
const GONE: &str = ".gone-";

/// Why a cache cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Its name leads elsewhere.
    #[error(
        "invalid cache name {0:?}: use at most 64 letters, digits, \"_\", \".\" and \"-\", and \
         begin with a letter or a digit"
    )]
    Name(String),
    /// There is none of that name.
    #[error("no cache {0}; `biv cache ls` lists the caches")]
    None(String),
    /// A machine has it.
    #[error("the cache {0} is in use by a running machine")]
    InUse(String),
    /// The user has no home directory.
    #[error("no place for caches: neither XDG_CACHE_HOME nor HOME is set")]
    NoHome,
    /// A file or directory.
    #[error("cannot use {path}: {error}", path = path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        error: io::Error,
    },
}

impl From<cache::Error> for Error {
    fn from(error: cache::Error) -> Self {
        match error {
            cache::Error::Io { path, error } => Self::Io { path, error },
            cache::Error::NoHome => Self::NoHome,
        }
    }
}

/// A cache that somebody uses: while this is there, nobody removes it.
#[derive(Debug)]
pub struct Held {
    directory: OwnedFd,
    _lock: File,
}

impl Held {
    /// Its directory, open for reading.
    #[must_use]
    pub fn directory(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }
}

/// A cache, to be listed.
#[derive(Debug)]
pub struct Listed {
    /// Its name.
    pub name: String,
    /// What its files take on the disk, as far as they can be seen ([`tree::size`]).
    pub bytes: u64,
    /// How long ago a machine has begun to use it, if that is known.
    pub age: Option<Duration>,
    /// Whether one uses it now.
    pub in_use: bool,
}

/// Where a cache is, or would be.
///
/// # Errors
///
/// [`Error::NoHome`]; [`Error::Name`].
pub fn path_of(name: &str) -> Result<PathBuf, Error> {
    check(name)?;
    Ok(cache_directory()?.join(DIRECTORY).join(name))
}

/// The name of the cache whose directory this is by its path, absolute or from here.
#[must_use]
pub fn name_of(path: &Path) -> Option<String> {
    let path = std::path::absolute(path).ok()?;
    let name = path.file_name()?.to_str().filter(|name| Cache::is_name(name))?;
    (path_of(name).ok()? == path).then(|| name.to_owned())
}

/// Takes a cache to use it, and makes it if it is not there.
///
/// # Errors
///
/// [`Error`], but not [`Error::InUse`].
pub fn hold(name: &str) -> Result<Held, Error> {
    check(name)?;
    Place::make()?.hold(name)
}

/// All caches, in the order of their names, with their sizes.
///
/// # Errors
///
/// The directory that has them cannot be used. That a cache cannot be read is none.
pub fn list() -> Result<Vec<Listed>, Error> {
    Place::find()?.map_or(Ok(Vec::new()), Place::list)
}

/// The names of all caches, in order.
///
/// # Errors
///
/// The directory that has them cannot be used.
pub fn names() -> Result<Vec<String>, Error> {
    Place::find()?.map_or(Ok(Vec::new()), |place| place.names())
}

/// Removes a cache with all that is in it.
///
/// # Errors
///
/// [`Error`], above all [`Error::InUse`] and [`Error::None`].
pub fn remove(name: &str) -> Result<(), Error> {
    check(name)?;
    let none = || Error::None(name.to_owned());
    Place::find()?.ok_or_else(none)?.remove(name)
}

fn check(name: &str) -> Result<(), Error> {
    match Cache::is_name(name) {
        true => Ok(()),
        false => Err(Error::Name(name.chars().take(128).collect())),
    }
}

/// The directory of all caches, which nobody else changes meanwhile.
struct Place {
    path: PathBuf,
    directory: OwnedFd,
    lock: File,
}

impl Place {
    /// The user's, which is made if it is not there.
    fn make() -> Result<Self, Error> {
        let path = trusted(DIRECTORY)?;
        let made = path.parent().map_or(Ok(()), fs::create_dir_all);
        made.map_err(at(&path))?;
        match DirBuilder::new().mode(0o700).create(&path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(at(&path)(error)),
            _ => Self::open(path),
        }
    }

    /// The user's, if it is there.
    fn find() -> Result<Option<Self>, Error> {
        let path = trusted(DIRECTORY)?;
        match path.exists() {
            true => Self::open(path).map(Some),
            false => Ok(None),
        }
    }

    fn open(path: PathBuf) -> Result<Self, Error> {
        let failed = at(&path);
        let open = || {
            let directory = tree::open(rustix::fs::CWD, &path)?;
            let lock = lock_file(directory.as_fd(), LOCK)?;
            flock(&lock, FlockOperation::LockExclusive)?;
            Ok((directory, lock))
        };
        let (directory, lock) = open().map_err(|errno: Errno| failed(errno.into()))?;
        Ok(Self { path, directory, lock })
    }

    /// What is wrong with something here.
    fn at(&self, name: &str) -> impl Fn(Errno) -> Error + use<> {
        let path = self.path.join(name);
        move |errno| at(&path)(errno.into())
    }

    fn hold(&self, name: &str) -> Result<Held, Error> {
        let failed = self.at(name);
        match mkdirat(&self.directory, name, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(failed(errno)),
        }
        let directory = tree::open(&self.directory, name).map_err(&failed)?;
        let lock = lock_file(self.directory.as_fd(), &of_lock(name)).map_err(&failed)?;
        // Nobody has it for itself, since that is done by who holds the place.
        flock(&lock, FlockOperation::NonBlockingLockShared).map_err(&failed)?;
        // That a time is wrong is no reason to do without.
        let _ = lock.set_modified(SystemTime::now());
        Ok(Held { directory, _lock: lock })
    }

    fn names(&self) -> Result<Vec<String>, Error> {
        let entries = self.entries()?;
        let mut names: Vec<_> = entries.into_iter().filter(|name| Cache::is_name(name)).collect();
        names.retain(|name| tree::open(&self.directory, name.as_str()).is_ok());
        names.sort_unstable();
        Ok(names)
    }

    /// All names here that are text: others are not ours.
    fn entries(&self) -> Result<Vec<String>, Error> {
        let failed = self.at("");
        let entries = Dir::read_from(&self.directory).map_err(&failed)?;
        let name = |entry: rustix::fs::DirEntry| entry.file_name().to_str().ok().map(str::to_owned);
        let names = entries.map(|entry| entry.map(name));
        let names = names.collect::<Result<Vec<_>, _>>().map_err(&failed)?;
        Ok(names.into_iter().flatten().collect())
    }

    fn list(self) -> Result<Vec<Listed>, Error> {
        let mut found = Vec::new();
        for name in self.names()? {
            let lock =
                lock_file(self.directory.as_fd(), &of_lock(&name)).map_err(self.at(&name))?;
            let age = lock.metadata().ok().and_then(|found| found.modified().ok()?.elapsed().ok());
            let in_use = !is_free(&lock);
            let directory = tree::open(&self.directory, name.as_str());
            found.push((Listed { name, bytes: 0, age, in_use }, directory.ok()));
        }
        // Machines may start while they are counted.
        drop(self.lock);
        let counted = found
            .into_iter()
            .map(|(listed, directory)| Listed { bytes: directory.map_or(0, tree::size), ..listed });
        Ok(counted.collect())
    }

    fn remove(self, name: &str) -> Result<(), Error> {
        let failed = self.at(name);
        // Made by somebody else, it may lack a lock.
        if !self.names()?.iter().any(|known| known == name) {
            return Err(Error::None(name.to_owned()));
        }
        let lock = lock_file(self.directory.as_fd(), &of_lock(name)).map_err(&failed)?;
        if !is_free(&lock) {
            return Err(Error::InUse(name.to_owned()));
        }
        self.put_aside(name).map_err(&failed)?;
        unlinkat(&self.directory, of_lock(name), AtFlags::empty()).map_err(&failed)?;
        let gone = self.entries()?.into_iter().filter(|name| name.starts_with(GONE));
        let gone: Vec<_> = gone.collect();
        drop((lock, self.lock));
        for name in gone {
            match tree::remove(self.directory.as_fd(), &name) {
                // Somebody else removes it.
                Ok(()) | Err(Errno::NOENT) => {}
                Err(errno) => return Err(failed(errno)),
            }
        }
        Ok(())
    }

    /// Gives a directory a name that is no cache's.
    fn put_aside(&self, name: &str) -> Result<(), Errno> {
        for number in 0..MAX_REMOVALS {
            let gone = format!("{GONE}{}-{number}", std::process::id());
            let directory = &self.directory;
            match renameat_with(directory, name, directory, gone, RenameFlags::NOREPLACE) {
                Err(Errno::EXIST) => {}
                done => return done,
            }
        }
        Err(Errno::EXIST)
    }
}

/// The name of the file by which a cache is locked.
fn of_lock(name: &str) -> String {
    format!(".{name}")
}

fn lock_file(directory: BorrowedFd<'_>, name: &str) -> Result<File, Errno> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    openat(directory, name, flags, Mode::RUSR | Mode::WUSR).map(File::from)
}

/// Whether nobody holds it; then it is held by this, for itself.
fn is_free(lock: &File) -> bool {
    flock(lock, FlockOperation::NonBlockingLockExclusive).is_ok()
}

/// What is wrong with that file or directory.
fn at(path: &Path) -> impl Fn(io::Error) -> Error + use<> {
    let path = path.to_owned();
    move |error| Error::Io { path: path.clone(), error }
}

#[cfg(test)]
mod tests;
