//! Making, removing and renaming files.

use std::ffi::CStr;
use std::sync::Arc;

use rustix::fs::{
    AtFlags, FileType, Gid, OFlags, RenameFlags, ResolveFlags, Statx, Uid, chownat, linkat,
    mkdirat, mknodat, openat2, renameat_with, symlinkat, unlinkat,
};
use rustix::io::Errno;
use zerocopy::IntoBytes;

use super::answer::Answer;
use super::data::{flags_for, flags_of, open_as};
use super::directory::entry;
use super::inodes::{Descriptor, Inode, attributes};
use super::recorded;
use super::request::Ask;
use super::share::Share;
use crate::owner::{Owner, PERMISSIONS};
use crate::wire::{
    CreateIn, EntryOut, LinkIn, MkdirIn, MknodIn, OPEN_KEEP_CACHE, OpenOut, Rename2In, RenameIn,
};

/// The permissions of a symbolic link (symlink(7)).
const LINK_MODE: u32 = 0o777;

/// A directory in which something is to change.
struct Place {
    directory: Arc<Inode>,
    descriptor: Arc<Descriptor>,
}

impl Place {
    fn new(share: &Share, number: u64) -> Result<Self, Errno> {
        share.check_writable()?;
        let directory = share.inodes.get(number)?;
        if directory.nature(&share.inodes)?.is_closed {
            return Err(Errno::PERM);
        }
        let descriptor = directory.descriptor(&share.inodes)?;
        Ok(Self { directory, descriptor })
    }

    /// The same, where something called `name` is to be made, removed or renamed.
    fn with_name(share: &Share, number: u64, name: &CStr) -> Result<Self, Errno> {
        let place = Self::new(share, number)?;
        match share.inodes.is_closed_name(&place.directory, name) {
            false => Ok(place),
            true => Err(Errno::ACCESS),
        }
    }

    /// Something was made here, with these permissions: whose it is, and what the guest is told of it.
    fn made(
        &self,
        share: &Share,
        ask: &Ask<'_>,
        name: &CStr,
        mode: u32,
    ) -> Result<EntryOut, Errno> {
        let (inode, status) = self.look_up_made(share, ask, name, mode)?;
        Ok(entry(share, &inode, &status))
    }

    /// What was made here, which belongs to who made it.
    fn look_up_made(
        &self,
        share: &Share,
        ask: &Ask<'_>,
        name: &CStr,
        mode: u32,
    ) -> Result<(Arc<Inode>, Statx), Errno> {
        let (inode, status) = share.inodes.look_up_made(&self.directory, name)?;
        let status = match () {
            () if share.has_owners => {
                let (user, group) = (ask.header.uid, ask.header.gid);
                let owner = Owner { user, group, mode: mode & PERMISSIONS };
                recorded::made(share, &self.directory, (&inode, &status), owner).map(|()| status)
            }
            () if share.is_root => self.give_away(share, ask, &inode, status),
            () => Ok(status),
        };
        let status = status.inspect_err(|_| share.inodes.forget(inode.number, 1))?;
        Ok((inode, status))
    }

    /// Give what was made to who made it, unless it is theirs, which it mostly is: to write that down costs as
    /// much as to make a file. Its group is the directory's where that says so (inode(7)). What it is then.
    fn give_away(
        &self,
        share: &Share,
        ask: &Ask<'_>,
        inode: &Arc<Inode>,
        made: Statx,
    ) -> Result<Statx, Errno> {
        let (user, group) = (share.user(ask.header.uid), share.group(ask.header.gid));
        let user = (made.stx_uid != user).then(|| Uid::from_raw(user));
        let mut group = (made.stx_gid != group).then(|| Gid::from_raw(group));
        if group.is_some() && attributes(&*self.descriptor)?.stx_mode & 0o2000 != 0 {
            group = None;
        }
        if user.is_none() && group.is_none() {
            return Ok(made);
        }
        let descriptor = inode.descriptor(&share.inodes)?;
        chownat(&*descriptor, c"", user, group, AtFlags::EMPTY_PATH)?;
        attributes(&*descriptor)
    }
}

/// `SYMLINK`.
pub fn symbolic_link(share: &Share, ask: &Ask<'_>) -> Result<Answer, Errno> {
    let mut arguments = ask.arguments();
    let (name, target) = (arguments.name()?, arguments.string()?);
    let place = Place::with_name(share, ask.header.nodeid, name)?;
    symlinkat(target, &*place.descriptor, name)?;
    Answer::of(&place.made(share, ask, name, LINK_MODE)?)
}

/// `MKNOD`: files, sockets and named pipes, but no devices: they would be the host's.
pub fn node(share: &Share, ask: &Ask<'_>) -> Result<Answer, Errno> {
    let mut arguments = ask.arguments();
    let asked: MknodIn = arguments.take()?;
    let name = arguments.name()?;
    let place = Place::with_name(share, ask.header.nodeid, name)?;
    let kind = match FileType::from_raw_mode(asked.mode) {
        kind @ (FileType::RegularFile | FileType::Socket | FileType::Fifo) => kind,
        _ => return Err(Errno::PERM),
    };
    mknodat(&*place.descriptor, name, kind, share.mode(kind, asked.mode), 0)?;
    Answer::of(&place.made(share, ask, name, asked.mode)?)
}

/// `MKDIR`.
pub fn directory(share: &Share, ask: &Ask<'_>) -> Result<Answer, Errno> {
    let mut arguments = ask.arguments();
    let asked: MkdirIn = arguments.take()?;
    let name = arguments.name()?;
    let place = Place::with_name(share, ask.header.nodeid, name)?;
    mkdirat(&*place.descriptor, name, share.mode(FileType::Directory, asked.mode))?;
    Answer::of(&place.made(share, ask, name, asked.mode)?)
}

/// `CREATE`: a file, opened.
pub fn file(share: &Share, ask: &Ask<'_>) -> Result<Answer, Errno> {
    let mut arguments = ask.arguments();
    let asked: CreateIn = arguments.take()?;
    let name = arguments.name()?;
    let place = Place::with_name(share, ask.header.nodeid, name)?;
    let how = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_SYMLINKS;
    let wanted = flags_of(asked.flags);
    let flags = flags_for(wanted, share.agreed.writes_back())
        | OFlags::CREATE
        | OFlags::NOFOLLOW
        | OFlags::NONBLOCK;
    let mode = share.mode(FileType::RegularFile, asked.mode);
    // Whether it was there decides whose it is.
    let exclusively = openat2(&*place.descriptor, name, flags | OFlags::EXCL, mode, how);
    let is_exclusive = asked.flags & OFlags::EXCL.bits() != 0;
    let made = match exclusively {
        Ok(file) => Some(file),
        Err(Errno::EXIST) if !is_exclusive => None,
        Err(errno) => return Err(errno),
    };
    let (inode, found) = match made {
        Some(_) => place.look_up_made(share, ask, name, asked.mode)?,
        None => share.inodes.look_up(&place.directory, name)?,
    };
    let open = || {
        let file = made.map_or_else(|| open_as(share, &inode, wanted), Ok)?;
        // It may have been cut; and somebody on the host may have been faster.
        let status = attributes(&file)?;
        match status.stx_ino == found.stx_ino {
            true => Ok((share.handles.add(file, &inode)?, status)),
            false => Err(Errno::STALE),
        }
    };
    let (fh, status) = open().inspect_err(|_| share.inodes.forget(inode.number, 1))?;
    let open_flags = if share.is_exclusive { OPEN_KEEP_CACHE } else { 0 };
    let out = OpenOut { fh, open_flags, padding: 0 };
    Ok(Answer::Bytes([entry(share, &inode, &status).as_bytes(), out.as_bytes()].concat()))
}

/// `UNLINK` and `RMDIR`.
pub fn remove(share: &Share, ask: &Ask<'_>, is_directory: bool) -> Result<Answer, Errno> {
    let mut arguments = ask.arguments();
    let name = arguments.name()?;
    let place = Place::with_name(share, ask.header.nodeid, name)?;
    let pin = share.inodes.pin(&place.directory, name);
    let flags = if is_directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
    unlinkat(&*place.descriptor, name, flags)?;
    pin.forget_place();
    Answer::done()
}

/// `RENAME` and `RENAME2`.
pub fn rename(share: &Share, ask: &Ask<'_>, with_flags: bool) -> Result<Answer, Errno> {
    let mut arguments = ask.arguments();
    let (target, flags) = if with_flags {
        let asked: Rename2In = arguments.take()?;
        (asked.newdir, asked.flags)
    } else {
        (arguments.take::<RenameIn>()?.newdir, 0)
    };
    let (old, new) = (arguments.name()?, arguments.name()?);
    let flags = RenameFlags::from_bits(flags).ok_or(Errno::INVAL)?;
    if flags.contains(RenameFlags::WHITEOUT) {
        return Err(Errno::INVAL);
    }
    let from = Place::with_name(share, ask.header.nodeid, old)?;
    let to = Place::with_name(share, target, new)?;
    let _moved = share.inodes.pin(&from.directory, old);
    let replaced = share.inodes.pin(&to.directory, new);
    renameat_with(&*from.descriptor, old, &*to.descriptor, new, flags)?;
    // What had the new name has none now, or the old one.
    replaced.forget_place();
    if flags.contains(RenameFlags::EXCHANGE) {
        share.inodes.name(&from.directory, old);
    }
    share.inodes.name(&to.directory, new);
    Answer::done()
}

/// `LINK`.
pub fn link(share: &Share, ask: &Ask<'_>) -> Result<Answer, Errno> {
    let mut arguments = ask.arguments();
    let asked: LinkIn = arguments.take()?;
    let name = arguments.name()?;
    let place = Place::with_name(share, ask.header.nodeid, name)?;
    let inode = share.inodes.get(asked.oldnodeid)?;
    if inode.nature(&share.inodes)?.kind == FileType::Directory {
        return Err(Errno::PERM);
    }
    share.by_name(&inode, |own, number| {
        linkat(own, number, &*place.descriptor, name, AtFlags::SYMLINK_FOLLOW)
    })?;
    let (inode, status) = share.inodes.look_up(&place.directory, name)?;
    Answer::of(&entry(share, &inode, &status))
}
