//! The user's cache directory: it checks who may write there, has a place for unfinished work, and
//! makes a finished directory appear whole.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{CWD, FlockOperation, RenameFlags, flock, renameat_with};

/// Why the cache cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file or directory of it.
    #[error(
        "cannot use the cache directory {path}: {error}; set XDG_CACHE_HOME to a \
         writable one, or give your own guest with --kernel FILE and --initrd FILE or --root DIR",
        path = path.display()
    )]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What is wrong with it.
        error: io::Error,
    },
    /// The user has no home directory.
    #[error(
        "no cache directory: neither XDG_CACHE_HOME nor HOME is set; set one, or give \
         your own guest with --kernel FILE and --initrd FILE or --root DIR"
    )]
    NoHome,
}

/// The directory that a variable names, or else one below the user's home (XDG Base Directory Specification: a relative
/// path is to be ignored).
#[must_use]
pub fn base_directory(variable: &str, below_home: &str) -> Option<PathBuf> {
    let absolute = |name| {
        let path = PathBuf::from(std::env::var_os(name)?);
        path.is_absolute().then_some(path)
    };
    absolute(variable).or_else(|| Some(absolute("HOME")?.join(below_home)))
}

/// `$XDG_CACHE_HOME/bivouac`, or `~/.cache/bivouac`.
pub fn cache_directory() -> Result<PathBuf, Error> {
    let caches = base_directory("XDG_CACHE_HOME", ".cache").ok_or(Error::NoHome)?;
    Ok(caches.join("bivouac"))
}

/// A file or directory of the cache that is to be loaded, or its place. What is there, and every directory
/// from the cache down to it, belongs to this user or to root, and nobody else may write it: a kernel from there is
/// executed.
///
/// # Errors
///
/// [`Error::Io`] that names what is somebody else's.
pub fn trusted(below: impl AsRef<Path>) -> Result<PathBuf, Error> {
    check_owner(&cache_directory()?, below.as_ref())
}

/// The same below `cache`.
pub fn check_owner(cache: &Path, below: &Path) -> Result<PathBuf, Error> {
    let mut path = cache.to_owned();
    for component in [Path::new("")].into_iter().chain(below.iter().map(Path::new)) {
        path.push(component);
        match fs::metadata(&path) {
            Ok(found) => check_rights(&found).map_err(at(&path))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(at(&path)(error)),
        }
    }
    Ok(cache.join(below))
}

fn check_rights(found: &fs::Metadata) -> io::Result<()> {
    let us = rustix::process::geteuid().as_raw();
    if ![0, us].contains(&found.uid()) {
        return Err(io::Error::other(format!("it belongs to user {}", found.uid())));
    }
    // Many systems give each user a group of their own, which may write by default.
    let own_group = found.gid() == rustix::process::getegid().as_raw();
    let others = if own_group { 0o002 } else { 0o022 };
    match found.mode() & others {
        0 => Ok(()),
        _ => Err(io::Error::other("other users may write it (chmod go-w)")),
    }
}

/// What is wrong with that file or directory of the cache.
pub fn at(path: &Path) -> impl FnOnce(io::Error) -> Error + use<> {
    let path = path.to_owned();
    move |error| Error::Io { path, error }
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
    let directory = trusted(directory)?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, chown};

    #[test]
    fn what_others_may_write_is_not_loaded() {
        let cache = std::env::temp_dir().join(format!("biv-cache-{}", std::process::id()));
        let file = cache.join("kernel/bzImage");
        fs::create_dir_all(cache.join("kernel")).unwrap();
        fs::write(&file, "").unwrap();
        let check = || check_owner(&cache, Path::new("kernel/bzImage"));
        for path in [&cache, &cache.join("kernel"), &file] {
            let rights = |mode| fs::set_permissions(path, fs::Permissions::from_mode(mode));
            rights(0o775).unwrap();
            assert_eq!(check().unwrap(), file);
            rights(0o777).unwrap();
            let error = check().unwrap_err().to_string();
            assert!(error.contains(path.to_str().unwrap()) && error.contains("chmod"), "{error}");
            rights(0o755).unwrap();
            // Only root can give a file away.
            if chown(path, Some(4711), None).is_ok() {
                let error = check().unwrap_err().to_string();
                assert!(error.contains("belongs to user 4711"), "{error}");
                chown(path, Some(0), None).unwrap();
            }
        }
        assert!(check_owner(&cache, Path::new("kernel/none")).is_ok(), "nothing is there");
        remove(&cache).unwrap();
    }
}
