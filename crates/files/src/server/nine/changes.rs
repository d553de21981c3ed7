//! Making, removing and renaming files.

use std::ffi::CString;
use std::sync::Arc;

use rustix::fs::{AtFlags, FileType};
use rustix::io::Errno;

use super::super::answer::Answer;
use super::super::inodes::Inode;
use super::fids::Fid;
use super::wire::Fields;
use super::{Asker, Call};
use crate::wire::{LinkIn, MkdirIn, MknodIn, ROOT, RenameIn, opcode};

/// A device's number in 32 bits, as FUSE has it (Linux, `new_encode_dev`).
fn device(major: u32, minor: u32) -> u32 {
    minor & 0xff | (major & 0xfff) << 8 | (minor & !0xff) << 12
}

impl Call<'_, '_> {
    /// Who makes something in the directory that a fid stands for.
    fn maker(&self, number: u32, group: u32) -> Result<Asker, Errno> {
        Ok(Asker { group, ..Asker::of(&self.fids.get(number)?) })
    }

    /// `Tsymlink`.
    pub fn make_symbolic_link(&mut self, mut fields: Fields<'_>) -> Result<Answer, Errno> {
        let (number, name, target) = (fields.u32()?, fields.name()?, fields.text()?);
        let maker = self.maker(number, fields.u32()?)?;
        self.made(opcode::SYMLINK, maker, &(), &[&name, &target])
    }

    /// `Tmknod`.
    pub fn make_node(&mut self, mut fields: Fields<'_>) -> Result<Answer, Errno> {
        let (number, name, mode) = (fields.u32()?, fields.name()?, fields.u32()?);
        let rdev = device(fields.u32()?, fields.u32()?);
        let maker = self.maker(number, fields.u32()?)?;
        let asked = MknodIn { mode, rdev, umask: 0, padding: 0 };
        self.made(opcode::MKNOD, maker, &asked, &[&name])
    }

    /// `Tmkdir`.
    pub fn make_directory(&mut self, mut fields: Fields<'_>) -> Result<Answer, Errno> {
        let (number, name, mode) = (fields.u32()?, fields.name()?, fields.u32()?);
        let maker = self.maker(number, fields.u32()?)?;
        self.made(opcode::MKDIR, maker, &MkdirIn { mode, umask: 0 }, &[&name])
    }

    /// `Tlink`.
    pub fn make_link(&mut self, mut fields: Fields<'_>) -> Result<Answer, Errno> {
        let (directory, number, name) = (fields.u32()?, fields.u32()?, fields.name()?);
        let asked = LinkIn { oldnodeid: self.fids.get(number)?.node };
        let maker = self.maker(directory, 0)?;
        self.made(opcode::LINK, maker, &asked, &[&name])?;
        Answer::done()
    }

    /// `Trenameat`.
    pub fn rename(&mut self, mut fields: Fields<'_>) -> Result<Answer, Errno> {
        let (from, old) = (self.fids.get(fields.u32()?)?, fields.name()?);
        let (to, new) = (self.fids.get(fields.u32()?)?, fields.name()?);
        let asked = RenameIn { newdir: to.node };
        self.ask(opcode::RENAME, Asker::of(&from), &asked, &[&old, &new])
    }

    /// `Tunlinkat`.
    pub fn unlink(&mut self, mut fields: Fields<'_>) -> Result<Answer, Errno> {
        let (fid, name) = (self.fids.get(fields.u32()?)?, fields.name()?);
        let flags = AtFlags::from_bits_retain(fields.u32()?);
        let is_directory = flags.contains(AtFlags::REMOVEDIR);
        let opcode = if is_directory { opcode::RMDIR } else { opcode::UNLINK };
        self.ask(opcode, Asker::of(&fid), &(), &[&name])
    }

    /// `Tremove`: what old clients say for `Tunlinkat`. The fid is given up, whatever comes of it.
    pub fn remove(&mut self, mut fields: Fields<'_>) -> Result<Answer, Errno> {
        let fid = self.fids.remove(fields.u32()?)?;
        let removed = self.at_its_place(&fid, |call, directory, name| {
            let kind = call.share.inodes.get(fid.node)?.nature(&call.share.inodes)?.kind;
            let is_directory = kind == FileType::Directory;
            let opcode = if is_directory { opcode::RMDIR } else { opcode::UNLINK };
            call.ask(opcode, Asker::of(directory), &(), &[&name])
        });
        fid.release(self.counted());
        removed
    }

    /// `Trename`: the same for `Trenameat`.
    pub fn move_file(&mut self, mut fields: Fields<'_>) -> Result<Answer, Errno> {
        let (fid, to) = (self.fids.get(fields.u32()?)?, self.fids.get(fields.u32()?)?);
        let new = fields.name()?;
        self.at_its_place(&fid, |call, directory, name| {
            let asked = RenameIn { newdir: to.node };
            call.ask(opcode::RENAME, Asker::of(directory), &asked, &[&name, &new])
        })
    }

    /// Have `act` do something in the directory in which a file is, to the name that it has there.
    fn at_its_place(
        &mut self,
        fid: &Fid,
        act: impl FnOnce(&mut Self, &Fid, CString) -> Result<Answer, Errno>,
    ) -> Result<Answer, Errno> {
        if fid.node == ROOT {
            return Err(Errno::BUSY);
        }
        let inodes = &self.share.inodes;
        let (directory, name) = inodes.get(fid.node)?.place().ok_or(Errno::STALE)?;
        // It may have been moved meanwhile, and something else be there.
        let (found, _) = inodes.look_up(&directory, &name)?;
        inodes.forget(found.number, 1);
        if found.number != fid.node {
            return Err(Errno::STALE);
        }
        let directory = Fid::named(self.known_again(&directory)?, fid.user);
        let done = act(self, &directory, name);
        directory.release(self.counted());
        done
    }

    /// The number of a directory that the guest has perhaps only walked through.
    fn known_again(&self, directory: &Arc<Inode>) -> Result<u64, Errno> {
        let inodes = &self.share.inodes;
        if inodes.know_again(directory.number).is_ok() {
            return Ok(directory.number);
        }
        let (above, name) = directory.place().ok_or(Errno::STALE)?;
        let (found, _) = inodes.look_up(&above, &name)?;
        if found.key() == directory.key() {
            return Ok(found.number);
        }
        inodes.forget(found.number, 1);
        Err(Errno::STALE)
    }
}
