//! Attributes of files: `GETATTR`, `SETATTR` and others.

use rustix::fs::{
    AtFlags, FileType, Gid, OFlags, Statx, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, Uid,
    chownat, fstatvfs, ftruncate, readlinkat, utimensat,
};
use rustix::io::Errno;
use std::sync::Arc;

use super::answer::Answer;
use super::inodes::{self, Inode};
use super::recorded;
use super::request::Ask;
use super::share::{Share, can_be_recorded};
use crate::owner::PERMISSIONS;
use crate::wire::{Attr, AttrOut, GETATTR_FH, GetattrIn, SetattrIn, SetattrValid, StatfsOut};

/// Set user, set group.
const SET_ID: u32 = 0o6000;

fn answer(share: &Share, attr: Attr) -> Result<Answer, Errno> {
    let (attr_valid, attr_valid_nsec) = share.validity;
    Answer::of(&AttrOut { attr_valid, attr_valid_nsec, dummy: 0, attr })
}

fn status(share: &Share, inode: &Arc<Inode>) -> Result<Statx, Errno> {
    inodes::attributes(&*inode.descriptor(&share.inodes)?)
}

/// `GETATTR`.
pub fn get(share: &Share, ask: &Ask<'_>) -> Result<Answer, Errno> {
    let asked: GetattrIn = ask.arguments().take()?;
    let inode = share.inodes.get(ask.header.nodeid)?;
    let status = match asked.getattr_flags & GETATTR_FH != 0 {
        true => inodes::attributes(&share.handles.get(asked.fh)?.open.file)?,
        false => status(share, &inode)?,
    };
    answer(share, share.attributes(&inode, &status))
}

/// `SETATTR`.
pub fn set(share: &Share, ask: &Ask<'_>) -> Result<Answer, Errno> {
    share.check_writable()?;
    let asked: SetattrIn = ask.arguments().take()?;
    let valid = SetattrValid::from_bits_truncate(asked.valid);
    let inode = share.inodes.get(ask.header.nodeid)?;
    let nature = inode.nature(&share.inodes)?;
    if nature.is_closed {
        return Err(Errno::PERM);
    }
    if valid.contains(SetattrValid::MODE) {
        set_mode(share, &inode, asked.mode)?;
    }
    if valid.intersects(SetattrValid::UID | SetattrValid::GID) {
        let user = valid.contains(SetattrValid::UID).then_some(asked.uid);
        let group = valid.contains(SetattrValid::GID).then_some(asked.gid);
        set_owner(share, &inode, user, group)?;
    }
    if valid.contains(SetattrValid::SIZE) {
        match valid.contains(SetattrValid::FH) {
            true => ftruncate(&share.handles.get(asked.fh)?.open.file, asked.size)?,
            false => ftruncate(share.open(&inode, OFlags::WRONLY)?, asked.size)?,
        }
    }
    if valid.contains(SetattrValid::KILL_SUIDGID) {
        drop_set_id(share, &inode)?;
    }
    let times = SetattrValid::ATIME | SetattrValid::MTIME;
    if valid.intersects(times | SetattrValid::ATIME_NOW | SetattrValid::MTIME_NOW) {
        set_times(share, &inode, &asked, valid)?;
    }
    answer(share, share.attributes(&inode, &status(share, &inode)?))
}

/// When a kernel that writes back has written a file, it says so of it, and of what it has open of it.
const WRITTEN_BACK: SetattrValid =
    SetattrValid::MTIME.union(SetattrValid::CTIME).union(SetattrValid::FH);

fn set_times(
    share: &Share,
    inode: &Arc<Inode>,
    asked: &SetattrIn,
    valid: SetattrValid,
) -> Result<(), Errno> {
    let at = |given, now, seconds: u64, nanoseconds: u32| Timespec {
        tv_sec: seconds as i64,
        tv_nsec: match (valid.contains(now), valid.contains(given)) {
            (true, _) => UTIME_NOW,
            (_, true) => nanoseconds.into(),
            _ => UTIME_OMIT,
        },
    };
    let (given, now) = (SetattrValid::ATIME, SetattrValid::ATIME_NOW);
    let last_access = at(given, now, asked.atime, asked.atimensec);
    let (given, now) = (SetattrValid::MTIME, SetattrValid::MTIME_NOW);
    let last_modification = at(given, now, asked.mtime, asked.mtimensec);
    let times = Timestamps { last_access, last_modification };
    let descriptor = inode.descriptor(&share.inodes)?;
    match utimensat(&*descriptor, c"", &times, AtFlags::EMPTY_PATH) {
        // Before Linux 5.8 it does not take such a descriptor.
        Err(Errno::INVAL) if inode.nature(&share.inodes)?.kind != FileType::Symlink => {
            share.by_name(inode, |own, name| utimensat(own, name, &times, AtFlags::empty()))
        }
        // Who may write to a file of another may not set its time; it has one from having been written.
        Err(Errno::PERM) if valid == WRITTEN_BACK && share.agreed.writes_back() => Ok(()),
        done => done,
    }
}

fn set_owner(
    share: &Share,
    inode: &Arc<Inode>,
    user: Option<u32>,
    group: Option<u32>,
) -> Result<(), Errno> {
    if share.has_owners {
        drop_set_id(share, inode)?;
        return recorded::change(share, inode, |owner| {
            owner.user = user.unwrap_or(owner.user);
            owner.group = group.unwrap_or(owner.group);
        });
    }
    let user = user.map(|user| Uid::from_raw(share.user(user)));
    let group = group.map(|group| Gid::from_raw(share.group(group)));
    chownat(&*inode.descriptor(&share.inodes)?, c"", user, group, AtFlags::EMPTY_PATH)
}

fn set_mode(share: &Share, inode: &Arc<Inode>, mode: u32) -> Result<(), Errno> {
    let kind = inode.nature(&share.inodes)?.kind;
    if kind == FileType::Symlink {
        return Err(Errno::OPNOTSUPP);
    }
    if share.has_owners && can_be_recorded(kind) {
        return recorded::change(share, inode, |owner| owner.mode = mode & PERMISSIONS);
    }
    share.change_mode(inode, share.mode(kind, mode))
}

/// What is written by somebody does not run as somebody else any more. The host sees to that itself,
/// unless we are root, or it is recorded.
pub fn drop_set_id(share: &Share, inode: &Arc<Inode>) -> Result<(), Errno> {
    let is_ours_to_do = share.is_root || share.has_owners;
    if !is_ours_to_do || inode.nature(&share.inodes)?.kind != FileType::RegularFile {
        return Ok(());
    }
    if share.has_owners {
        recorded::drop_capability(share, inode)?;
    }
    let mode = share.owner(inode, &status(share, inode)?).mode;
    // A group that may not execute makes the bit one for locks (inode(7)).
    let group = if mode & 0o010 != 0 { 0o2000 } else { 0 };
    match mode & (SET_ID & (0o4000 | group)) {
        0 => Ok(()),
        bits => set_mode(share, inode, mode & !bits),
    }
}

/// `READLINK`.
pub fn read_link(share: &Share, ask: &Ask<'_>) -> Result<Answer, Errno> {
    let inode = share.inodes.get(ask.header.nodeid)?;
    let target = readlinkat(&*inode.descriptor(&share.inodes)?, c"", Vec::new())?;
    Ok(Answer::Bytes(target.into_bytes()))
}

/// `STATFS`.
pub fn file_system(share: &Share, ask: &Ask<'_>) -> Result<Answer, Errno> {
    let inode = share.inodes.get(ask.header.nodeid)?;
    let status = fstatvfs(&*inode.descriptor(&share.inodes)?)?;
    Answer::of(&StatfsOut {
        blocks: status.f_blocks,
        bfree: status.f_bfree,
        bavail: status.f_bavail,
        files: status.f_files,
        ffree: status.f_ffree,
        bsize: status.f_bsize as u32,
        namelen: status.f_namemax as u32,
        frsize: status.f_frsize as u32,
        ..StatfsOut::default()
    })
}
