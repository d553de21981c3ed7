//! Shares whose files belong to whom their attributes say ([`crate::owner`]): what they say, and how it changes.
//!
//! 1. *What is recorded is more than the host's.* A file or directory that has no record is what it is on the host.
//!    What the guest's superuser makes with permissions that are harmless on the host is so there, and costs no record.
//! 2. *A record comes with permissions that let the server work*, whoever the guest's user is: the guest's kernel
//!    checks those that are recorded.
//! 3. *Only this file writes records.* A guest's user who could set the attribute himself would make files the
//!    superuser's, and run as him ([`is_record`]).
//! 4. *Links, sockets and pipes have no such attributes*, and stay the superuser's: the server opens none of them, and
//!    a link's owner says nothing about what it leads to. To give one away succeeds, and changes nothing.

use std::sync::Arc;

use rustix::fs::{FileType, Statx, XattrFlags, removexattr, setxattr};
use rustix::io::Errno;

use super::inodes::{Inode, attributes};
use super::share::{Share, can_be_recorded};
use crate::owner::{CAPABILITY, OWNER, Owner};

const SET_GROUP: u32 = 0o2000;

/// Whether an attribute's name is that of a record.
pub fn is_record(name: &[u8]) -> bool {
    name == OWNER.as_bytes() || name == CAPABILITY.as_bytes()
}

/// Something was made in a directory by a user and a group of the guest's, with these permissions, and is this on the
/// host: records whose it is. Its group is the directory's where that says so (inode(7)).
pub fn made(
    share: &Share,
    directory: &Arc<Inode>,
    (inode, made): (&Arc<Inode>, &Statx),
    mut owner: Owner,
) -> Result<(), Errno> {
    let above = attributes(&*directory.descriptor(&share.inodes)?)?;
    let above = share.owner(directory, &above);
    let kind = inode.nature(&share.inodes)?.kind;
    if above.mode & SET_GROUP != 0 {
        owner.group = above.group;
        if kind == FileType::Directory {
            owner.mode |= SET_GROUP;
        }
    }
    if !can_be_recorded(kind) || owner == share.unrecorded_owner(made) {
        return Ok(());
    }
    record(share, inode, owner)
}

/// Changes whose a file is, or its permissions.
pub fn change(
    share: &Share,
    inode: &Arc<Inode>,
    change: impl FnOnce(&mut Owner),
) -> Result<(), Errno> {
    let status = attributes(&*inode.descriptor(&share.inodes)?)?;
    let before = share.owner(inode, &status);
    let mut after = before;
    change(&mut after);
    let kind = inode.nature(&share.inodes)?.kind;
    if after == before || !can_be_recorded(kind) {
        return Ok(());
    }
    // They come first: what has them and no record is harmless, but what has a record and not the permissions might be
    // another's to read on the host.
    share.change_mode(inode, share.mode(kind, after.mode))?;
    record(share, inode, after)
}

fn record(share: &Share, inode: &Arc<Inode>, owner: Owner) -> Result<(), Errno> {
    let value = owner.to_string();
    share.by_path(inode, |path| setxattr(path, OWNER, value.as_bytes(), XattrFlags::empty()))
}

/// A program that has been changed has no capabilities any more (capabilities(7)).
pub fn drop_capability(share: &Share, inode: &Arc<Inode>) -> Result<(), Errno> {
    match share.by_path(inode, |path| removexattr(path, CAPABILITY)) {
        Err(Errno::NODATA) => Ok(()),
        done => done,
    }
}
