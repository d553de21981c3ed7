//! A pod's root that its users could not get to.
//!
//! The users of root's pods are nobody on the host: they may not enter a directory that only root may, and own nothing
//! in it. So root's keeper opens the directory for them, as a tree of mounts that is not attached anywhere, and has its
//! files belong to the pod's users instead (idmapped mounts, mount_setattr(2)). What the pod writes is in its own layer
//! as always: it gets to read what root has there, and nothing besides.
//!
//! The host's own root is not given, because it has what a pod is not to read; and a directory that the pod writes to
//! is not either, because root would own the files.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;

use host::mounts::map_users;
use pod_protocol::Root;
use rustix::fs::CWD;
use rustix::mount::{OpenTreeFlags, open_tree};

use super::Users;

/// See above.
#[derive(Debug)]
pub struct Tree(OwnedFd);

impl Tree {
    /// That of a pod with this root; none where it is not given, or the host does not let us.
    pub fn of(root: &Root, users: &Users) -> Option<Tree> {
        if users.are_ours() || root.is_host || root.is_writable {
            return None;
        }
        let flags = OpenTreeFlags::OPEN_TREE_CLONE
            | OpenTreeFlags::OPEN_TREE_CLOEXEC
            | OpenTreeFlags::AT_RECURSIVE;
        open_tree(CWD, OsStr::from_bytes(&root.path), flags).ok().map(Tree)
    }

    /// With files that belong to the users of the namespace of this process. Where a file system cannot have that, the
    /// pod reads what everybody may read.
    pub fn belong_to(self, process: u32) -> OwnedFd {
        if let Ok(users) = File::open(format!("/proc/{process}/ns/user")) {
            let _ = map_users(&self.0, &users);
        }
        self.0
    }
}
