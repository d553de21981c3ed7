//! The files of a domain's directory.
//!
//! | file | contents |
//! | --- | --- |
//! | `lock` | a lock that the domain's process holds as long as the domain lives |
//! | `record.json` | the domain's properties, and how it ended ([`super::record`]) |
//! | `origin.json` | its description with the host resources that it has ([`super::origin`]) |
//! | `control` | its control socket ([`super::v1`]) |
//! | `demand.json` | of a paravirtual domain: the most that it may have ([`super::admission`]) |
//! | `policy.json` | of a paravirtual domain: what it is worth ([`super::keeper`]) |
//! | `gates` | of a paravirtual domain: the page that it shares with the keeper |
//! | `helpers` | of a paravirtual domain: the number of the process that forks its helpers |
//! | `lifeline` | of a paravirtual domain: the named pipe whose writer may stop it ([`super::keeper`]) |
//! | `log.0`, `log.1` | the output of its command ([`super::log`]) |
//! | `messages` | `biv`'s own messages |
//! | `place` | where the way to another switch is sent, of a domain that shares a network |
//! | `place.json` | its place in that network ([`super::places`]) |
//! | `spec.json` | its description, from which it is started again ([`super::again`]) |
//! | `stopped` | there if somebody has stopped it, so that its supervisor does not start it again |
//! | `supervisor` | a lock that its supervisor holds (`biv run --restart`) |
//! | `vif` | where its VIF's router connects that was started again |
//! | `vif.json` | its VIF as it is now, with what `biv xen` has changed |

use std::fs::{File, Permissions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, flock, fstat, openat, renameat, unlinkat};
use rustix::io::Errno;

/// The keeper's directory in the registry, with a lock and a socket: no domain can be called so.
pub const KEEPER: &str = ".keeper";

/// The socket of the server that makes domains (`biv serve`), in the registry.
pub const SERVER: &str = ".serve";

/// The name of the scheduler that a keeper is to use, in the registry.
pub const SCHEDULER: &str = ".scheduler";

/// How much paravirtual domains may have ([`super::admission`]), in the registry.
pub const ADMISSION: &str = ".admission";

/// See above.
pub const LOCK: &str = "lock";
/// See above.
pub const RECORD: &str = "record.json";
/// See above.
pub const ORIGIN: &str = "origin.json";
/// See above.
pub const DEMAND: &str = "demand.json";
/// See above.
pub const SOCKET: &str = "control";
/// See above.
pub const LOGS: [&str; 2] = ["log.0", "log.1"];
/// See above.
pub const MESSAGES: &str = "messages";
/// See above.
pub const PLACE: &str = "place";
/// See above.
pub const PLACE_STATE: &str = "place.json";
/// See above.
pub const SPEC: &str = "spec.json";
/// See above.
pub const STOPPED: &str = "stopped";
/// See above.
pub const SUPERVISOR: &str = "supervisor";
/// See above.
pub const VIF: &str = "vif";
/// See above.
pub const VIF_STATE: &str = "vif.json";

/// How long to wait for other processes that have a lock: each has it for a few milliseconds, but a script may start
/// hundreds in one moment.
const LOCK_PATIENCE: Duration = Duration::from_secs(30);

/// How long between two tries, at first and in the end: hundreds that tried every millisecond would leave no processor
/// to the one that has the lock.
const LOCK_PAUSE: Duration = Duration::from_millis(1);
const LOCK_PAUSE_MAX: Duration = Duration::from_millis(32);

/// How much of the messages an inspection has.
const MESSAGES_MAX_BYTES: u64 = 4096;

/// The path of a file, for calls that take no directory. That of the directory may be longer than a
/// socket's address; this one is not.
#[must_use]
pub fn path(directory: impl AsFd, name: &str) -> String {
    format!("/proc/self/fd/{}/{name}", directory.as_fd().as_raw_fd())
}

/// Listens on a socket of that name, which only its owner can connect to.
///
/// # Errors
///
/// The host's, or there is something of that name.
pub fn listen(directory: impl AsFd, name: &str) -> io::Result<UnixListener> {
    let place = path(directory, name);
    let listener = UnixListener::bind(&place)?;
    std::fs::set_permissions(&place, Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// A socket of datagrams, to which only this user can send ([`tell`]); it waits for none.
///
/// # Errors
///
/// The host's, or there is something of that name.
pub fn hear(directory: impl AsFd, name: &str) -> io::Result<UnixDatagram> {
    let place = path(directory, name);
    let socket = UnixDatagram::bind(&place)?;
    std::fs::set_permissions(&place, Permissions::from_mode(0o600))?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// A socket whose datagrams whoever hears there ([`hear`]) receives; it waits for no room.
///
/// # Errors
///
/// The host's, or nobody does.
pub fn tell(directory: impl AsFd, name: &str) -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    socket.connect(path(directory, name))?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// The last of what is in the file of messages.
#[must_use]
pub fn last_messages(file: &File) -> String {
    let size = fstat(file).map_or(0, |found| u64::try_from(found.st_size).unwrap_or(0));
    let mut text = vec![0; size.min(MESSAGES_MAX_BYTES) as usize];
    let start = size - text.len() as u64;
    let count = file.read_at(&mut text, start).unwrap_or(0);
    String::from_utf8_lossy(&text[..count]).into_owned()
}

/// Opens a file to read it, and nothing that it might lead to.
pub fn open(directory: impl AsFd, name: &str) -> Result<OwnedFd, Errno> {
    openat(directory, name, OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
}

/// Reads a file, and nothing that it might lead to; so many bytes of it at most.
///
/// # Errors
///
/// The host's.
pub fn read(directory: impl AsFd, name: &str, most: u64) -> io::Result<Vec<u8>> {
    let mut contents = Vec::new();
    File::from(open(directory, name)?).take(most).read_to_end(&mut contents)?;
    Ok(contents)
}

/// Opens a file to read and write it, and makes it if it is not there.
pub fn create(directory: impl AsFd, name: &str) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(directory, name, flags, Mode::RUSR | Mode::WUSR)
}

/// Takes the lock, and waits for it up to a limit: a stopped process must not hold up all others.
pub(crate) fn until_locked(lock: impl AsFd) -> Result<(), Errno> {
    let start = Instant::now();
    let mut pause = LOCK_PAUSE;
    loop {
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK | Errno::INTR) if start.elapsed() < LOCK_PATIENCE => {
                std::thread::sleep(pause);
                pause = LOCK_PAUSE_MAX.min(pause * 2);
            }
            other => return other,
        }
    }
}

/// A random number; any will do.
#[must_use]
pub fn random() -> u64 {
    let mut bytes = [0; 8];
    let flags = rustix::rand::GetRandomFlags::INSECURE;
    let _ = rustix::rand::getrandom(&mut bytes, flags);
    u64::from_ne_bytes(bytes)
}

/// Replaces a file whole: who reads it meanwhile finds the one or the other.
///
/// # Errors
///
/// The host's.
pub fn replace(directory: impl AsFd, name: &str, contents: &[u8]) -> io::Result<()> {
    let new = format!("{name}.{:x}", random());
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = openat(&directory, &new, flags, Mode::RUSR | Mode::WUSR)?;
    let written = File::from(file).write_all(contents);
    let placed = written.and_then(|()| Ok(renameat(&directory, &new, &directory, name)?));
    if placed.is_err() {
        let _ = unlinkat(&directory, &new, AtFlags::empty());
    }
    placed
}
