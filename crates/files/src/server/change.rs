//! Making, removing and renaming files.

use std::ffi::CStr;
use std::os::fd::AsFd;
use std::sync::Arc;

use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, RenameFlags, ResolveFlags, Uid, chownat, linkat, mkdirat,
    mknodat, openat2, renameat_with, symlinkat, unlinkat,
};
use rustix::io::Errno;
use zerocopy::IntoBytes;

use super::data::flags_of;
use super::directory::entry;
use super::dispatch::Answer;
use super::inodes::{Descriptor, Inode, attributes};
use super::request::Ask;
use super::share::Share;
use crate::wire::{CreateIn, EntryOut, LinkIn, MkdirIn, MknodIn, OpenOut, Rename2In, RenameIn};

/// A directory in which something is to change.
struct Place {
    directory: Arc<Inode>,
    descriptor: Arc<Descriptor>,
}

impl Place {
    fn new(share: &Share, number: u64) -> Result<Self, Errno> {
        share.check_writable()?;
        let directory = share.inodes.get(number)?;
        if directory.is_closed {
            return Err(Errno::PERM);
        }
        let descriptor = directory.descriptor(&share.inodes)?;
        Ok(Self { directory, descriptor })
    }

    /// Something was made here: whose it is, and what the guest is told of it.
    fn made(&self, share: &Share, ask: &Ask<'_>, name: &CStr) -> Result<EntryOut, Errno> {
        if share.is_root {
            self.give_away(share, ask, name)?;
        }
        let (inode, status) = share.inodes.look_up(&self.directory, name)?;
        Ok(entry(share, &inode, &status))
    }

    /// Give what was made to who made it; its group is the directory's where that says so (inode(7)).
    fn give_away(&self, share: &Share, ask: &Ask<'_>, name: &CStr) -> Result<(), Errno> {
        let inherits = attributes(&*self.descriptor)?.stx_mode & 0o2000 != 0;
        let user = Some(Uid::from_raw(share.user(ask.header.uid)));
        let group = (!inherits).then(|| Gid::from_raw(share.group(ask.header.gid)));
        chownat(&*self.descriptor, name, user, group, AtFlags::SYMLINK_NOFOLLOW)
    }
}

fn permissions(mode: u32) -> Mode {
    Mode::from_raw_mode(mode & 0o7777)
}

/// `SYMLINK`.
pub fn symbolic_link(share: &Share, ask: &Ask<'_>) -> Result<Answer, Errno> {
    let mut arguments = ask.arguments();
    let (name, target) = (arguments.name()?, arguments.string()?);
    let place = Place::new(share, ask.header.nodeid)?;
    symlinkat(target, &*place.descriptor, name)?;
    Answer::of(&place.made(share, ask, name)?)
}

/// `MKNOD`: files, sockets and named pipes, but no devices: they would be the host's.
pub fn node(share: &Share, ask: &Ask<'_>) -> Result<Answer, Errno> {
    let mut arguments = ask.arguments();
    let asked: MknodIn = arguments.take()?;
    let name = arguments.name()?;
    let place = Place::new(share, ask.header.nodeid)?;
    let kind = match FileType::from_raw_mode(asked.mode) {
        kind @ (FileType::RegularFile | FileType::Socket | FileType::Fifo) => kind,
        _ => return Err(Errno::PERM),
    };
    mknodat(&*place.descriptor, name, kind, permissions(asked.mode), 0)?;
    Answer::of(&place.made(share, ask, name)?)
}

/// `MKDIR`.
pub fn directory(share: &Share, ask: &Ask<'_>) -> Result<Answer, Errno> {
    let mut arguments = ask.arguments();
    let asked: MkdirIn = arguments.take()?;
    let name = arguments.name()?;
    let place = Place::new(share, ask.header.nodeid)?;
    mkdirat(&*place.descriptor, name, permissions(asked.mode))?;
    Answer::of(&place.made(share, ask, name)?)
}

/// `CREATE`: a file, opened.
pub fn file(share: &Share, ask: &Ask<'_>) -> Result<Answer, Errno> {
    let mut arguments = ask.arguments();
    let asked: CreateIn = arguments.take()?;
    let name = arguments.name()?;
    let place = Place::new(share, ask.header.nodeid)?;
    let how = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_SYMLINKS;
    let flags = flags_of(asked.flags) | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let mode = permissions(asked.mode);
    // Whether it was there decides whose it is.
    let exclusively = openat2(&*place.descriptor, name, flags | OFlags::EXCL, mode, how);
    let is_exclusive = asked.flags & OFlags::EXCL.bits() != 0;
    let file = match exclusively {
        Ok(file) => {
            if share.is_root {
                place.give_away(share, ask, name)?;
            }
            file
        }
        Err(Errno::EXIST) if !is_exclusive => {
            let (inode, _) = share.inodes.look_up(&place.directory, name)?;
            share.inodes.forget(inode.number, 1);
            share.open(&inode, flags_of(asked.flags))?
        }
        Err(errno) => return Err(errno),
    };
    let (inode, status) = share.inodes.look_up(&place.directory, name)?;
    if status.stx_ino != attributes(file.as_fd())?.stx_ino {
        // Somebody on the host was faster.
        share.inodes.forget(inode.number, 1);
        return Err(Errno::STALE);
    }
    let fh = share.handles.add(file, &inode)?;
    let out = OpenOut { fh, open_flags: 0, padding: 0 };
    Ok(Answer::Bytes([entry(share, &inode, &status).as_bytes(), out.as_bytes()].concat()))
}

/// `UNLINK` and `RMDIR`.
pub fn remove(share: &Share, ask: &Ask<'_>, is_directory: bool) -> Result<Answer, Errno> {
    let mut arguments = ask.arguments();
    let name = arguments.name()?;
    let place = Place::new(share, ask.header.nodeid)?;
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
    let from = Place::new(share, ask.header.nodeid)?;
    let to = Place::new(share, target)?;
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
    let place = Place::new(share, ask.header.nodeid)?;
    let inode = share.inodes.get(asked.oldnodeid)?;
    if inode.kind == FileType::Directory {
        return Err(Errno::PERM);
    }
    share.by_name(&inode, |own, number| {
        linkat(own, number, &*place.descriptor, name, AtFlags::SYMLINK_FOLLOW)
    })?;
    let (inode, status) = share.inodes.look_up(&place.directory, name)?;
    Answer::of(&entry(share, &inode, &status))
}
