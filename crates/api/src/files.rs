//! The files of a domain's directory.
//!
//! | file | contents |
//! | --- | --- |
//! | `lock` | a lock that the domain's process holds as long as the domain lives |
//! | `record.json` | the domain's properties, and how it ended ([`super::record`]) |
//! | `origin.json` | its description with the host resources that it has ([`super::origin`]) |
//! | `control` | its control socket ([`super::v1`]) |
//! | `log.0`, `log.1` | the output of its command ([`super::log`]) |
//! | `messages` | `biv`'s own messages |
//! | `vif` | where its VIF's router connects that was started again |
//! | `vif.json` | its VIF as it is now, with what `biv xen` has changed |

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;

/// See above.
pub const LOCK: &str = "lock";
/// See above.
pub const RECORD: &str = "record.json";
/// See above.
pub const ORIGIN: &str = "origin.json";
/// See above.
pub const SOCKET: &str = "control";
/// See above.
pub const LOGS: [&str; 2] = ["log.0", "log.1"];
/// See above.
pub const MESSAGES: &str = "messages";
/// See above.
pub const VIF: &str = "vif";
/// See above.
pub const VIF_STATE: &str = "vif.json";

/// The path of a file, for calls that take no directory. That of the directory may be longer than a
/// socket's address; this one is not.
#[must_use]
pub fn path(directory: impl AsFd, name: &str) -> String {
    format!("/proc/self/fd/{}/{name}", directory.as_fd().as_raw_fd())
}

/// Opens a file to read it, and nothing that it might lead to.
pub fn open(directory: impl AsFd, name: &str) -> Result<OwnedFd, Errno> {
    openat(directory, name, OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
}

/// Opens a file to read and write it, and makes it if it is not there.
pub fn create(directory: impl AsFd, name: &str) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(directory, name, flags, Mode::RUSR | Mode::WUSR)
}

/// A random number; any will do.
#[must_use]
pub fn random() -> u64 {
    let mut bytes = [0; 8];
    let flags = rustix::rand::GetRandomFlags::INSECURE;
    let _ = rustix::rand::getrandom(&mut bytes, flags);
    u64::from_ne_bytes(bytes)
}
