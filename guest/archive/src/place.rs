//! Where files are unpacked: the destination that the user means, and the way from there to each.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat};
use rustix::io::Errno;

use crate::{Error, at};

/// What the user names, and what is known of what is to be there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Destination {
    /// A directory, which is to have what the stream has, by the names there.
    Directory(PathBuf),
    /// As with cp(1): a directory that is there gets what the stream has, under this name or, without one,
    /// what is in it; what is not there becomes it. The first name in the stream does not count.
    Copy(PathBuf, Option<OsString>),
}

/// Whether a path ends with a dot, and so names not a directory but what is in it.
#[must_use]
pub fn names_contents(path: &Path) -> bool {
    let bytes = path.as_os_str().as_bytes();
    bytes == b"." || bytes.ends_with(b"/.")
}

/// A destination that is there.
pub struct Place {
    directory: OwnedFd,
    /// For messages.
    shown: PathBuf,
    /// What the stream's first name is replaced with; none where it stays.
    under: Option<Vec<OsString>>,
    follows_links: bool,
}

/// Names from the destination on.
pub type Names = Vec<OsString>;

impl Place {
    /// The destination of what is a directory or not.
    pub fn find(
        destination: &Destination,
        of_directory: bool,
        follows_links: bool,
    ) -> Result<Self, Error> {
        let (path, under) = match destination {
            Destination::Directory(path) => (path.clone(), None),
            Destination::Copy(path, name) => {
                let (directory, name) = resolve(path, name.as_deref(), of_directory)?;
                (directory, Some(Vec::from_iter(name)))
            }
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = openat(CWD, &path, flags, Mode::empty()).map_err(|errno| match errno {
            Errno::NOTDIR => Error::NoDirectory(path.clone()),
            errno => at(&path)(errno),
        })?;
        Ok(Self { directory, shown: path, under, follows_links })
    }

    /// The names that a path in the stream means.
    pub fn names(&self, path: &[u8]) -> Result<Names, Error> {
        let (mut names, rest) = match &self.under {
            None => (Vec::new(), path),
            Some(under) => {
                let first = path.iter().position(|&byte| byte == b'/').unwrap_or(path.len());
                (under.clone(), &path[first..])
            }
        };
        let rest = Path::new(OsStr::from_bytes(rest));
        for component in rest.components() {
            match component {
                Component::Normal(name) if !name.as_bytes().contains(&0) => names.push(name.into()),
                Component::RootDir | Component::CurDir => {}
                _ => {
                    let path = OsString::from_vec(path.to_vec());
                    return Err(Error::Outside(path.into()));
                }
            }
        }
        Ok(names)
    }

    /// Where that is, for messages.
    pub fn shown(&self, names: &[OsString]) -> PathBuf {
        names.iter().fold(self.shown.clone(), |path, name| path.join(name))
    }

    /// The directory that these names lead to, each from the one before; what is not there is made.
    pub fn open(&self, names: &[OsString]) -> Result<OwnedFd, Error> {
        let mut current: Option<OwnedFd> = None;
        for (number, name) in names.iter().enumerate() {
            let parent = current.as_ref().unwrap_or(&self.directory);
            let shown = || self.shown(&names[..=number]);
            let found = self.open_one(parent, name).or_else(|errno| match errno {
                Errno::NOENT => {
                    mkdirat(parent, name, Mode::from_raw_mode(0o755))?;
                    self.open_one(parent, name)
                }
                errno => Err(errno),
            });
            current = Some(found.map_err(|errno| match errno {
                Errno::NOTDIR | Errno::LOOP => Error::NoDirectory(shown()),
                errno => at(&shown())(errno),
            })?);
        }
        match current {
            Some(directory) => Ok(directory),
            None => self.directory.try_clone().map_err(|error| self.failed(error)),
        }
    }

    /// A directory in a directory, to be read.
    pub fn open_one(&self, parent: &impl AsFd, name: &OsStr) -> Result<OwnedFd, Errno> {
        let links = if self.follows_links { OFlags::empty() } else { OFlags::NOFOLLOW };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | links;
        match openat(parent, name, flags, Mode::empty()) {
            // One that we may only pass through.
            Err(Errno::ACCESS) => openat(parent, name, flags | OFlags::PATH, Mode::empty()),
            other => other,
        }
    }

    fn failed(&self, error: io::Error) -> Error {
        Error::File { path: self.shown.clone(), error }
    }
}

/// The directory where something is made, and under which name; without one, it is that directory.
fn resolve(
    path: &Path,
    name: Option<&OsStr>,
    of_directory: bool,
) -> Result<(PathBuf, Option<OsString>), Error> {
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => return Ok((path.to_owned(), name.map(OsStr::to_owned))),
        Ok(_) if of_directory => return Err(Error::NoDirectory(path.to_owned())),
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if path.as_os_str().as_bytes().ends_with(b"/") && !of_directory {
                return Err(Error::NoDirectory(path.to_owned()));
            }
        }
        Err(error) => return Err(Error::File { path: path.to_owned(), error }),
    }
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    match path.file_name() {
        Some(name) => Ok((parent.unwrap_or(Path::new(".")).to_owned(), Some(name.to_owned()))),
        None => Err(Error::NoDirectory(path.to_owned())),
    }
}
