//! Mounts that are not attached anywhere (open_tree(2), mount_setattr(2)).

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd};

/// Have the files of a tree of mounts that is not attached yet belong to the users of a user namespace: its user 0 owns
/// what the host's user 0 owns, and so on. Devices in it are none, and set-user-ID bits mean nothing.
///
/// # Errors
///
/// `EPERM`: the caller may not, or a namespace has been mapped before. `EINVAL`: one of the file systems cannot; then
/// nothing is changed.
pub fn map_users(tree: impl AsFd, users: impl AsFd) -> io::Result<()> {
    let attributes = libc::mount_attr {
        attr_set: libc::MOUNT_ATTR_IDMAP | libc::MOUNT_ATTR_NODEV | libc::MOUNT_ATTR_NOSUID,
        attr_clr: 0,
        propagation: 0,
        userns_fd: users.as_fd().as_raw_fd().cast_unsigned().into(),
    };
    let flags = libc::AT_EMPTY_PATH | libc::AT_RECURSIVE;
    let tree = tree.as_fd().as_raw_fd();
    // SAFETY: the kernel reads an empty string, and a local of the size that is said.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree,
            c"".as_ptr(),
            flags,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
