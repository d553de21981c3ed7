//! The socket that the server listens on. A lock beside it says whether a server is there: a socket without one was
//! left by a server that was killed, and is replaced.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use host::listener::listen_at;
use rustix::fs::{CWD, FlockOperation, Mode, OFlags, flock, fstat, openat};
use rustix::io::Errno;
use rustix::net::{SocketFlags, SocketType};

use crate::limits::BACKLOG;

/// How often a lock file is opened that others remove at that moment.
const TRIES: u32 = 100;

/// Why there is no socket.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A server is there.
    #[error("a server listens at {} already", .0.display())]
    Taken(PathBuf),
    /// Something is there that is not ours to remove.
    #[error("cannot listen at {}: there is something that is no socket", .0.display())]
    NoSocket(PathBuf),
    /// The host.
    #[error("cannot listen at {}: {error}", path.display())]
    Host {
        /// Where.
        path: PathBuf,
        /// What is wrong.
        error: io::Error,
    },
}

/// A path that this process listens at, until this value is dropped.
#[derive(Debug)]
pub struct Place {
    path: PathBuf,
    /// The path of the lock, and the lock.
    lock: (PathBuf, OwnedFd),
}

impl Place {
    /// Listens there. Only this user can connect.
    ///
    /// # Errors
    ///
    /// Another server does, something else is there, or the host's.
    pub fn listen(path: &Path) -> Result<(UnixListener, Place), Error> {
        let fail = |error: io::Error| Error::Host { path: path.to_owned(), error };
        let lock = take(path).map_err(fail)?.ok_or_else(|| Error::Taken(path.to_owned()))?;
        let place = Place { path: path.to_owned(), lock };
        match fs::symlink_metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(fail(error)),
            Ok(found) if !found.file_type().is_socket() => {
                // It stays, and so must this value not remove it.
                place.forget();
                return Err(Error::NoSocket(path.to_owned()));
            }
            Ok(_) => fs::remove_file(path).map_err(fail)?,
        }
        let listener = listen_at(path, SocketType::STREAM, SocketFlags::empty(), BACKLOG);
        Ok((UnixListener::from(listener.map_err(fail)?), place))
    }

    /// Removes the lock only.
    fn forget(mut self) {
        self.path = PathBuf::new();
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // In this order: without its lock, the socket could be another server's.
        let _ = fs::remove_file(&self.path);
        let _ = fs::remove_file(&self.lock.0);
    }
}

/// The lock beside a path; none if another process has it.
fn take(path: &Path) -> io::Result<Option<(PathBuf, OwnedFd)>> {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let name = PathBuf::from(name);
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    for _ in 0..TRIES {
        let lock = openat(CWD, &name, flags, Mode::RUSR | Mode::WUSR)?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => return Ok(None),
            other => other?,
        }
        // A server that ends removes the file before it lets go of the lock.
        let (ours, there) = (fstat(&lock)?, fs::symlink_metadata(&name));
        if there.is_ok_and(|there| (there.dev(), there.ino()) == (ours.st_dev, ours.st_ino)) {
            return Ok(Some((name, lock)));
        }
    }
    Err(Errno::BUSY.into())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixStream;

    use super::*;

    /// A directory that disappears.
    struct Directory(PathBuf);

    impl Directory {
        fn new(name: &str) -> Self {
            let path =
                std::env::temp_dir().join(format!("biv-serve-{name}-{}", std::process::id()));
            fs::create_dir(&path).expect("a directory");
            Self(path)
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn one_server_listens_and_leaves_nothing() {
        let directory = Directory::new("one");
        let path = directory.0.join("socket");
        let (_listener, place) = Place::listen(&path).expect("nobody is there");
        assert_eq!(fs::metadata(&path).expect("it is there").permissions().mode() & 0o777, 0o600);
        assert!(matches!(Place::listen(&path), Err(Error::Taken(_))));
        UnixStream::connect(&path).expect("the first one still listens");
        drop(place);
        assert_eq!(fs::read_dir(&directory.0).expect("a directory").count(), 0);
    }

    #[test]
    fn what_was_left_is_replaced_and_what_is_not_ours_stays() {
        let directory = Directory::new("left");
        let path = directory.0.join("socket");
        drop(UnixListener::bind(&path).expect("nobody is there"));
        assert!(UnixStream::connect(&path).is_err(), "nobody listens");
        let (_listener, place) = Place::listen(&path).expect("nobody is there");
        UnixStream::connect(&path).expect("somebody listens");
        drop(place);
        fs::write(&path, "a file").expect("it can be written");
        assert!(matches!(Place::listen(&path), Err(Error::NoSocket(_))));
        assert_eq!(fs::read(&path).expect("it is there"), b"a file");
        assert_eq!(fs::read_dir(&directory.0).expect("a directory").count(), 1);
    }
}
