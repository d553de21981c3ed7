//! Unix sockets that listen at a path.
//!
//! A path that somebody sees leads to somebody who listens, and only its owner can connect there: the socket is bound
//! under another name in the same directory, and gets its own when it listens. Otherwise whoever is quick finds a
//! socket that refuses him, as one does that was left by a process that has ended. If this process is killed between
//! these calls, the other name is left.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::SocketAddr;
use std::path::Path;

use rustix::fs::{
    AtFlags, Mode, OFlags, RenameFlags, fchmod, linkat, open, renameat_with, unlinkat,
};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with,
};
use rustix::rand::{GetRandomFlags, getrandom};

/// A socket of this kind that listens at a path, where nothing must be.
///
/// # Errors
///
/// The host's; `EADDRINUSE`: something is there; [`io::ErrorKind::InvalidInput`]: the path is longer than an address.
pub fn listen_at(
    path: &Path,
    kind: SocketType,
    flags: SocketFlags,
    backlog: i32,
) -> io::Result<OwnedFd> {
    SocketAddr::from_pathname(path)?;
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let directory = open(
        parent.unwrap_or(Path::new(".")),
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    let mut chance = [0; 8];
    getrandom(&mut chance, GetRandomFlags::empty())?;
    let first = OsString::from(format!(".{:016x}", u64::from_ne_bytes(chance)));
    let socket = socket_with(AddressFamily::UNIX, kind, flags | SocketFlags::CLOEXEC, None)?;
    // What the socket has before it is bound, its file has from the beginning (unix(7)).
    fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    // Whatever the directory is called, this is short enough.
    let place = format!("/proc/self/fd/{}/{}", directory.as_raw_fd(), first.display());
    bind(&socket, &SocketAddrUnix::new(place.as_str())?)?;
    let named = listen(&socket, backlog).and_then(|()| {
        match renameat_with(&directory, &first, &directory, name, RenameFlags::NOREPLACE) {
            // Not every file system can rename so.
            Err(Errno::INVAL | Errno::NOSYS) => link(&directory, [&first, name]),
            other => other,
        }
    });
    if named.is_err() {
        // It may be the directory that has gone.
        let _ = unlinkat(&directory, &first, AtFlags::empty());
    }
    match named {
        Ok(()) => Ok(socket),
        Err(Errno::EXIST) => Err(Errno::ADDRINUSE.into()),
        Err(error) => Err(error.into()),
    }
}

/// Gives a file another name, which must be free, in two steps.
fn link(directory: &OwnedFd, [old, new]: [&OsStr; 2]) -> rustix::io::Result<()> {
    linkat(directory, old, directory, new, AtFlags::empty())?;
    unlinkat(directory, old, AtFlags::empty())
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::path::PathBuf;

    use super::*;

    /// A directory that disappears.
    struct Directory(PathBuf);

    impl Directory {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("biv-{name}-{}", std::process::id()));
            fs::create_dir(&path).unwrap();
            Self(path)
        }

        fn names(&self) -> Vec<OsString> {
            fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().file_name()).collect()
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn at(path: &Path) -> io::Result<OwnedFd> {
        listen_at(path, SocketType::STREAM, SocketFlags::empty(), 1)
    }

    #[test]
    fn who_finds_the_path_can_connect() {
        let directory = Directory::new("listener");
        // As long as an address may be.
        let length = directory.0.as_os_str().len();
        let path = directory.0.join("n".repeat(106 - length));
        for round in 0..200 {
            std::thread::scope(|scope| {
                let found = scope.spawn(|| {
                    while fs::symlink_metadata(&path).is_err() {
                        std::hint::spin_loop();
                    }
                    UnixStream::connect(&path)
                });
                let listener = UnixListener::from(at(&path).unwrap());
                found.join().unwrap().unwrap_or_else(|error| panic!("in round {round}: {error}"));
                listener.accept().unwrap();
            });
            let mode = fs::metadata(&path).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
            assert_eq!(directory.names().len(), 1);
            fs::remove_file(&path).unwrap();
        }
        let long = at(&path.with_file_name("n".repeat(107 - length)));
        assert_eq!(long.unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert!(directory.names().is_empty());
    }

    #[test]
    fn what_is_there_stays_and_nothing_is_left() {
        let directory = Directory::new("listener-there");
        let path = directory.0.join("there");
        fs::write(&path, "a file").unwrap();
        assert_eq!(at(&path).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        assert_eq!(fs::read(&path).unwrap(), b"a file");
        assert_eq!(directory.names(), ["there"]);
        assert!(at(Path::new("/no/such/directory/socket")).is_err());
        assert!(at(Path::new("/")).is_err());
    }

    #[test]
    fn a_name_is_given_in_two_steps_where_it_must_be() {
        let directory = Directory::new("listener-steps");
        for name in ["old", "other"] {
            fs::write(directory.0.join(name), name).unwrap();
        }
        let opened = OwnedFd::from(File::open(&directory.0).unwrap());
        let check = |new: &str| link(&opened, ["old".as_ref(), new.as_ref()]);
        assert_eq!(check("other"), Err(Errno::EXIST));
        check("new").unwrap();
        assert_eq!(fs::read(directory.0.join("new")).unwrap(), b"old");
        assert_eq!(directory.names().len(), 2);
    }
}
