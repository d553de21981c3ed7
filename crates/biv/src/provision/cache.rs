//! The user's cache directory: who may change it, where work is done, and how a directory comes in whole.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{CWD, FlockOperation, RenameFlags, flock, renameat_with};

use super::Error;

/// `$XDG_CACHE_HOME/bivouac`, or `~/.cache/bivouac` (XDG Base Directory Specification: a relative
/// path is to be ignored).
pub fn cache_directory() -> Result<PathBuf, Error> {
    let absolute = |name| {
        let path = PathBuf::from(std::env::var_os(name)?);
        path.is_absolute().then_some(path)
    };
    absolute("XDG_CACHE_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".cache")))
        .map(|cache| cache.join("bivouac"))
        .ok_or(Error::NoHome)
}

/// What is wrong with that file or directory of the cache.
pub fn at(path: &Path) -> impl FnOnce(io::Error) -> Error + use<> {
    let path = path.to_owned();
    move |error| Error::Cache { path, error }
}

/// Held by who changes the cache.
pub struct Lock {
    cache: PathBuf,
    _file: File,
}

impl Lock {
    /// Wait until nobody else changes it; it is made if it is not there.
    pub fn take(cache: &Path) -> Result<Lock, Error> {
        fs::create_dir_all(cache).map_err(at(cache))?;
        let path = cache.join("lock");
        let options = File::options().create(true).truncate(false).write(true).open(&path);
        let file = options.map_err(at(&path))?;
        flock(&file, FlockOperation::LockExclusive).map_err(|error| at(&path)(error.into()))?;
        Ok(Lock { cache: cache.to_owned(), _file: file })
    }

    /// A place to work, empty.
    pub fn work(self) -> Result<Work, Error> {
        let path = self.cache.join("work");
        remove(&path).map_err(at(&path))?;
        fs::create_dir_all(&path).map_err(at(&path))?;
        Ok(Work { path, lock: self })
    }
}

/// Where something is made that is to come into the cache; with this, what is left of it goes.
pub struct Work {
    path: PathBuf,
    lock: Lock,
}

impl Work {
    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Put a directory that is complete to its place below the cache, or in the place of another; where
    /// that is.
    pub fn install(&self, fresh: &Path, place: impl AsRef<Path>) -> Result<PathBuf, Error> {
        let place = self.lock.cache.join(place);
        if let Some(above) = place.parent() {
            fs::create_dir_all(above).map_err(at(above))?;
        }
        replace(fresh, &place).map_err(at(&place))?;
        Ok(place)
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        // Whoever comes next tries again.
        let _ = remove(&self.path);
    }
}

/// What is in a directory of the cache, if there is one.
pub fn entries(directory: &str) -> Result<Vec<PathBuf>, Error> {
    let directory = cache_directory()?.join(directory);
    match fs::read_dir(&directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(at(&directory)(error)),
        Ok(entries) => Ok(entries.filter_map(|entry| Some(entry.ok()?.path())).collect()),
    }
}

/// Since when a file is there.
pub fn age_of(path: &Path) -> Option<Duration> {
    fs::metadata(path).ok()?.modified().ok()?.elapsed().ok()
}

/// Put a directory in the place of another, or where there is none: no process finds neither.
fn replace(fresh: &Path, place: &Path) -> io::Result<()> {
    match renameat_with(CWD, fresh, CWD, place, RenameFlags::EXCHANGE) {
        Ok(()) => remove(fresh),
        // Nothing is there, or the file system cannot exchange.
        Err(_) => remove(place).and_then(|()| fs::rename(fresh, place)),
    }
}

/// Remove a directory, if it is there.
pub fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
