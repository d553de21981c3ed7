//! The owners of files in a guest, those of an image or of a directory whose owners are kept, where one
//! user of the host owns all of them. Extended attributes of the `user` namespace record them, which any
//! user can set on his own files, and any file system for Linux keeps.
//!
//! Such a file has, on the host, permissions that make it harmless there: its maker may read
//! and write it, and it runs as no other user (`mode & 0o777 | 0o600`). Its attributes say what it
//! is in the guest: [`OWNER`] has its user, group and permissions, [`CAPABILITY`] a program's
//! capabilities (capabilities(7)). Symbolic links have no such attributes, and belong to root.

use std::fmt;
use std::path::Path;

use rustix::buffer::spare_capacity;
use rustix::fs::{XattrFlags, lgetxattr, lsetxattr};
use rustix::io::Errno;

use crate::limits::MAX_OWNER_BYTES;

/// The attribute with what [`Owner`] has: `USER:GROUP:PERMISSIONS`, the latter in octal.
pub const OWNER: &str = "user.bivouac.owner";

/// The attribute with what is `security.capability` in the guest.
pub const CAPABILITY: &str = "user.bivouac.capability";

/// The permissions of a file, with those that make it run as its owner.
pub(crate) const PERMISSIONS: u32 = 0o7777;

/// A file's owner in a guest, and its permissions there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    /// The user's number.
    pub user: u32,
    /// The group's.
    pub group: u32,
    /// The permissions, at most `0o7777`.
    pub mode: u32,
}

impl Owner {
    /// What is recorded of the file, directory or link at `path`, if anything is.
    #[must_use]
    pub fn recorded(path: impl AsRef<Path>) -> Option<Owner> {
        let mut value = Vec::with_capacity(MAX_OWNER_BYTES);
        lgetxattr(path.as_ref(), OWNER, spare_capacity(&mut value)).ok()?;
        Owner::parse(&value)
    }

    /// What a value says.
    #[must_use]
    pub fn parse(value: &[u8]) -> Option<Owner> {
        let mut parts = std::str::from_utf8(value).ok()?.split(':');
        let (user, group) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        let mode = u32::from_str_radix(parts.next()?, 8).ok()?;
        let is_whole = parts.next().is_none() && mode & !PERMISSIONS == 0;
        is_whole.then_some(Owner { user, group, mode })
    }

    /// Records it for the file or directory at `path`, which must be ours and writable.
    ///
    /// # Errors
    ///
    /// The host's; [`std::io::ErrorKind::Unsupported`] where the file system keeps no such attributes.
    pub fn record(self, path: &Path) -> std::io::Result<()> {
        set(path, OWNER, self.to_string().as_bytes())
    }

    /// The permissions on the host of a file or directory that has these in a guest: they let its maker work with it,
    /// and make nobody run as him.
    #[must_use]
    pub fn mode_on_host(mode: u32, is_directory: bool) -> u32 {
        mode & 0o777 | if is_directory { 0o700 } else { 0o600 }
    }
}

/// As it is recorded.
impl fmt::Display for Owner {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}:{:o}", self.user, self.group, self.mode & PERMISSIONS)
    }
}

/// Records the capabilities of the program at `path`: the value of its `security.capability`.
///
/// # Errors
///
/// As [`Owner::record`].
pub fn record_capability(path: &Path, value: &[u8]) -> std::io::Result<()> {
    set(path, CAPABILITY, value)
}

fn set(path: &Path, name: &str, value: &[u8]) -> std::io::Result<()> {
    lsetxattr(path, name, value, XattrFlags::empty()).map_err(|errno: Errno| errno.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_recorded_is_found_again() {
        let path = std::env::temp_dir().join(format!("files-owner-{}", std::process::id()));
        std::fs::write(&path, "").unwrap();
        assert_eq!(Owner::recorded(&path), None);
        let owner = Owner { user: 101, group: 4_294_967_294, mode: 0o6755 };
        owner.record(&path).unwrap();
        assert_eq!(Owner::recorded(&path), Some(owner));
        std::fs::remove_file(&path).unwrap();
        assert!(owner.record(&path).is_err());
    }

    #[test]
    fn what_is_no_record_is_none() {
        for wrong in
            ["", "0", "0:0", "0:0:", "0:0:9", "0:0:10000", "0:0:755:0", "-1:0:755", "a:b:c"]
        {
            assert_eq!(Owner::parse(wrong.as_bytes()), None, "{wrong}");
        }
    }
}
