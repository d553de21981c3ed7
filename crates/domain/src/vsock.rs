//! `--vsock`: sockets between the guest and programs of the host. A process of its own serves them
//! ([`sockets`]). `biv` starts it with one end of a cable and with the listening socket, which it
//! has bound here. The process confines itself, serves, and ends when the cable is closed.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use host::listener::listen_at;
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::net::{SocketFlags, SocketType};
use sockets::Server;

use crate::helper::{helper, spawn_with};
use serde::{Deserialize, Serialize};

/// The modules that a kernel needs for the device, in order.
pub const DRIVERS: [&str; 3] =
    ["vsock", "vmw_vsock_virtio_transport_common", "vmw_vsock_virtio_transport"];

/// What a path may have, besides `_` and a port: what the address of a Unix socket has (unix(7)).
const PATH_MAX_BYTES: usize = 107 - 11;

/// How many connections may wait to be accepted.
const BACKLOG: i32 = 128;

/// The kind of process that serves them.
pub const KIND: &str = "sockets";

/// Why there are no sockets.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The path is too long.
    #[error(
        "--vsock {path}: the path is longer than {PATH_MAX_BYTES} bytes; give a shorter one",
        path = .0.display()
    )]
    Path(PathBuf),
    /// The path, or what is there.
    #[error("cannot listen at {path}: {error}; give --vsock another path", path = path.display())]
    Listen {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        error: io::Error,
    },
    /// The process.
    #[error("cannot start the process that serves the guest's virtio sockets: {0}")]
    Process(#[from] io::Error),
}

/// Starts the process; it confines itself, if it is to.
pub fn start(vsock: &spec::Sockets, confine: bool) -> Result<vmm::Sockets, Error> {
    let path = std::path::absolute(&vsock.path)?;
    if path.as_os_str().len() > PATH_MAX_BYTES {
        return Err(Error::Path(path));
    }
    let listener = listen(&path).map_err(|error| Error::Listen { path: path.clone(), error })?;
    let (ours, theirs) = UnixStream::pair()?;
    let theirs = OwnedFd::from(theirs);
    let (cable, address) = (theirs.as_raw_fd(), vsock.address);
    let order = Serving { cable, listener: listener.as_raw_fd(), path, address, confined: confine };
    let mut command = helper(KIND, &order)?;
    fcntl_setfd(&listener, FdFlags::empty()).map_err(io::Error::from)?;
    spawn_with(&theirs, &mut command)?;
    Ok(vmm::Sockets { cable: ours.into(), address: vsock.address })
}

/// Listens at a path, where there may be what a machine has left that has ended.
fn listen(path: &Path) -> io::Result<UnixListener> {
    let is_left = |path: &Path| {
        fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket())
            && UnixStream::connect(path)
                .is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
    };
    if is_left(path) {
        fs::remove_file(path)?;
    }
    Ok(listen_at(path, SocketType::STREAM, SocketFlags::empty(), BACKLOG)?.into())
}

/// What that process is started with.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Serving {
    /// The number of the descriptor that is the cable.
    pub cable: i32,
    /// That of the one that listens.
    pub listener: i32,
    /// Where it listens.
    #[serde(with = "spec::text")]
    pub path: PathBuf,
    /// The guest's address.
    pub address: u32,
    /// It may make the system calls only that it needs.
    pub confined: bool,
}

/// What that process does.
pub fn serve(serving: &Serving) -> io::Result<()> {
    host::inherited::close_marked();
    let cable = host::inherited::take(serving.cable)?;
    let listener = UnixListener::from(host::inherited::take(serving.listener)?);
    // A socket for each connection.
    host::raise_descriptor_limit();
    let mut server = Server::new(cable, serving.address, listener, serving.path.clone())?;
    if serving.confined {
        host::privileges::drop_all()?;
        host::confine::confine_sockets().map_err(io::Error::other)?;
    }
    server.run()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_machine_has_left_is_taken_and_nothing_else() {
        let path = std::env::temp_dir().join(format!("biv-vsock-{}", std::process::id()));
        let first = listen(&path).unwrap();
        assert!(listen(&path).is_err(), "somebody listens");
        drop(first);
        drop(listen(&path).unwrap());
        fs::remove_file(&path).unwrap();
        fs::write(&path, "a file").unwrap();
        assert!(listen(&path).is_err());
        assert_eq!(fs::read(&path).unwrap(), b"a file");
        fs::remove_file(&path).unwrap();
    }
}
