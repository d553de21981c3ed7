//! What is in files and directories, and their attributes.

use std::ffi::CString;

use rustix::fs::OFlags;
use rustix::io::Errno;
use zerocopy::FromBytes;

use super::super::answer::Answer;
use super::super::data::is_for_writing;
use super::fids::{Fid, State};
use super::wire::{
    BASIC_ATTRIBUTES, ENTRY_BYTES, Fields, LOCK_SUCCESS, MAGIC, NO_LOCK, Out, Qid, SetValid, Tree,
};
use super::{Asker, Call, done};
use crate::limits::{MAX_DATA_BYTES, MAX_NAMES_ANSWER_BYTES};
use crate::wire::{
    AttrOut, CreateIn, Dirent, EntryOut, FSYNC_FDATASYNC, FsyncIn, GetattrIn, OPEN_KILL_SUIDGID,
    OpenIn, OpenOut, ReadIn, SetattrIn, SetattrValid, StatfsOut, WRITE_KILL_SUIDGID, WriteIn,
    WriteOut, opcode,
};

const REGULAR_FILE: u32 = 0o100_000;

impl Call<'_, '_> {
    /// How a file is opened. The guest says where the end is, unless it cannot.
    fn flags_of(&self, flags: u32) -> OFlags {
        let flags = OFlags::from_bits_retain(flags);
        if self.fids.tree() == Tree::Appending { flags } else { flags - OFlags::APPEND }
    }

    /// `Tlopen`.
    pub fn open(&mut self, mut fields: Fields<'_>) -> Result<Answer, Errno> {
        let (number, flags) = (fields.u32()?, self.flags_of(fields.u32()?));
        let fid = self.fids.get(number)?;
        let State::Named = fid.state else { return Err(Errno::BADF) };
        let inode = self.share.inodes.get(fid.node)?;
        let is_directory =
            inode.nature(&self.share.inodes)?.kind == rustix::fs::FileType::Directory;
        let opcode = match is_directory {
            true if is_for_writing(flags) => return Err(Errno::ISDIR),
            true => opcode::OPENDIR,
            false if flags.contains(OFlags::DIRECTORY) => return Err(Errno::NOTDIR),
            false => opcode::OPEN,
        };
        let open_flags = if fid.user == 0 { 0 } else { OPEN_KILL_SUIDGID };
        let asked = OpenIn { flags: flags.bits(), open_flags };
        let mut qid = self.qid_of(fid.node)?;
        if self.fids.tree() == Tree::Unkept && !is_for_writing(flags) {
            qid = qid.unkept();
        }
        let out: OpenOut = self.ask_for(opcode, Asker::of(&fid), &asked, &[])?;
        let opened = Fid { state: State::Open(out.fh, flags), ..fid.clone() };
        self.fids.replace(self.counted(), number, &fid, opened)?;
        // As many bytes at once as fit into a message.
        done(Out::default().qid(&qid).u32(0))
    }

    /// `Tlcreate`: the fid of the directory becomes that of the file.
    pub fn create(&mut self, mut fields: Fields<'_>) -> Result<Answer, Errno> {
        let (number, name, flags) = (fields.u32()?, fields.name()?, self.flags_of(fields.u32()?));
        let (mode, group) = (fields.u32()?, fields.u32()?);
        let fid = self.fids.get(number)?;
        let State::Named = fid.state else { return Err(Errno::BADF) };
        let mode = mode & 0o7777 | REGULAR_FILE;
        let asked = CreateIn { flags: flags.bits(), mode, umask: 0, open_flags: 0 };
        let asker = Asker { group, ..Asker::of(&fid) };
        let Answer::Bytes(bytes) = self.ask(opcode::CREATE, asker, &asked, &[&name])? else {
            return Err(Errno::IO);
        };
        let (entry, rest) = EntryOut::read_from_prefix(&bytes).map_err(|_| Errno::IO)?;
        let (out, _) = OpenOut::read_from_prefix(rest).map_err(|_| Errno::IO)?;
        let state = State::Open(out.fh, flags);
        let made = Fid { node: entry.nodeid, user: fid.user, state };
        self.fids.replace(self.counted(), number, &fid, made)?;
        done(Out::default().qid(&self.qid(entry.nodeid, &entry.attr)?).u32(0))
    }

    /// `Tread`: from the file into the guest's memory, or of an attribute.
    pub fn read(&mut self, mut fields: Fields<'_>) -> Result<Answer, Errno> {
        let (number, offset, count) = (fields.u32()?, fields.u64()?, fields.u32()?);
        let fid = self.fids.get(number)?;
        let size = (count as usize).min(self.message.room()).min(MAX_DATA_BYTES as usize) as u32;
        if let State::Read(attribute) = &fid.state {
            return super::extended::read(attribute, offset, size);
        }
        let asked = ReadIn { fh: fid.handle()?, offset, size, ..ReadIn::default() };
        self.ask(opcode::READ, Asker::of(&fid), &asked, &[])
    }

    /// `Twrite`: from the guest's memory into the file, or of an attribute.
    pub fn write(&mut self, mut fields: Fields<'_>) -> Result<Answer, Errno> {
        let (number, offset, count) = (fields.u32()?, fields.u64()?, fields.u32()?);
        let here = self.message.data.as_ref().map_or(0, host::vectored::Pieces::bytes);
        if count as usize > here {
            return Err(Errno::INVAL);
        }
        let fid = self.fids.get(number)?;
        if let State::Written(attribute) = &fid.state {
            return self.write_attribute(attribute, offset, count);
        }
        let write_flags = if fid.user == 0 { 0 } else { WRITE_KILL_SUIDGID };
        let fh = fid.handle()?;
        let asked = WriteIn { fh, offset, size: count, write_flags, ..WriteIn::default() };
        let out: WriteOut = self.ask_for(opcode::WRITE, Asker::of(&fid), &asked, &[])?;
        done(Out::default().u32(out.size))
    }

    /// `Treaddir`. An entry is no longer here than over FUSE.
    pub fn list(&mut self, mut fields: Fields<'_>) -> Result<Answer, Errno> {
        let (number, offset, count) = (fields.u32()?, fields.u64()?, fields.u32()?);
        let fid = self.fids.get(number)?;
        let size = (count as usize).min(self.message.room()).min(MAX_NAMES_ANSWER_BYTES) as u32;
        let asked = ReadIn { fh: fid.handle()?, offset, size, ..ReadIn::default() };
        let apart = self.share.inodes.get(fid.node)?.apart(&self.share.inodes);
        let listed = self.ask(opcode::READDIR, Asker::of(&fid), &asked, &[])?;
        let Answer::Bytes(bytes) = listed else { return Err(Errno::IO) };
        let (mut rest, mut out) = (&bytes[..], Out::default());
        while let Ok((entry, after)) = Dirent::read_from_prefix(rest) {
            let length = entry.namelen as usize;
            let name = after.get(..length).ok_or(Errno::IO)?;
            rest = after.get(length.next_multiple_of(8)..).unwrap_or_default();
            let kind = entry.kind as u8;
            let qid = Qid::of_entry(entry.ino, entry.kind, apart);
            out = out.qid(&qid).u64(entry.off).u8(kind).string(name);
        }
        debug_assert!(size_of::<Dirent>() >= ENTRY_BYTES && out.0.len() <= size as usize);
        done(Out([&(out.0.len() as u32).to_le_bytes()[..], &out.0].concat()))
    }

    /// `Tfsync`.
    pub fn sync(&mut self, mut fields: Fields<'_>) -> Result<Answer, Errno> {
        let number = fields.u32()?;
        // Older kernels do not say whether the contents are enough.
        let is_data = fields.u32().is_ok_and(|is_data| is_data != 0);
        let fid = self.fids.get(number)?;
        let fsync_flags = if is_data { FSYNC_FDATASYNC } else { 0 };
        let asked = FsyncIn { fh: fid.handle()?, fsync_flags, padding: 0 };
        self.ask(opcode::FSYNC, Asker::of(&fid), &asked, &[])
    }

    /// `Tgetattr`: all that there is, whatever was asked for.
    pub fn attributes(&mut self, mut fields: Fields<'_>) -> Result<Answer, Errno> {
        let fid = self.fids.get(fields.u32()?)?;
        let asked = GetattrIn::default();
        let AttrOut { attr, .. } = self.ask_for(opcode::GETATTR, Asker::of(&fid), &asked, &[])?;
        let out = Out::default().u64(BASIC_ATTRIBUTES).qid(&self.qid(fid.node, &attr)?);
        let out = out.u32(attr.mode).u32(attr.uid).u32(attr.gid);
        let out = out.u64(attr.nlink.into()).u64(attr.rdev.into()).u64(attr.size);
        let out = out.u64(attr.blksize.into()).u64(attr.blocks);
        let out = out.u64(attr.atime).u64(attr.atimensec.into());
        let out = out.u64(attr.mtime).u64(attr.mtimensec.into());
        let out = out.u64(attr.ctime).u64(attr.ctimensec.into());
        // Time of birth, generation and version are not known.
        done(out.u64(0).u64(0).u64(0).u64(0))
    }

    /// `Tsetattr`.
    pub fn set_attributes(&mut self, mut fields: Fields<'_>) -> Result<Answer, Errno> {
        let fid = self.fids.get(fields.u32()?)?;
        let valid = SetValid::from_bits_truncate(fields.u32()?);
        let mut asked = SetattrIn {
            mode: fields.u32()?,
            uid: fields.u32()?,
            gid: fields.u32()?,
            size: fields.u64()?,
            atime: fields.u64()?,
            atimensec: nanoseconds(fields.u64()?),
            mtime: fields.u64()?,
            mtimensec: nanoseconds(fields.u64()?),
            ..SetattrIn::default()
        };
        let mut wanted = translated(valid);
        if valid.contains(SetValid::SIZE) {
            if fid.user != 0 {
                wanted |= SetattrValid::KILL_SUIDGID;
            }
            if let State::Open(handle, flags) = fid.state
                && is_for_writing(flags)
            {
                wanted |= SetattrValid::FH;
                asked.fh = handle;
            }
        }
        asked.valid = wanted.bits();
        self.ask(opcode::SETATTR, Asker::of(&fid), &asked, &[])?;
        Answer::done()
    }

    /// `Treadlink`.
    pub fn read_link(&mut self, mut fields: Fields<'_>) -> Result<Answer, Errno> {
        let fid = self.fids.get(fields.u32()?)?;
        match self.ask(opcode::READLINK, Asker::of(&fid), &(), &[])? {
            Answer::Bytes(target) => done(Out::default().string(&target)),
            Answer::InPlace(_) | Answer::Nothing => Err(Errno::IO),
        }
    }

    /// `Tstatfs`.
    pub fn file_system(&mut self, mut fields: Fields<'_>) -> Result<Answer, Errno> {
        let fid = self.fids.get(fields.u32()?)?;
        let status: StatfsOut = self.ask_for(opcode::STATFS, Asker::of(&fid), &(), &[])?;
        let out = Out::default().u32(MAGIC).u32(status.frsize);
        let out = out.u64(status.blocks).u64(status.bfree).u64(status.bavail);
        done(out.u64(status.files).u64(status.ffree).u64(0).u32(status.namelen))
    }

    /// `Tlock`.
    pub fn lock(&mut self, mut fields: Fields<'_>) -> Result<Answer, Errno> {
        self.fids.get(fields.u32()?)?.handle()?;
        done(Out::default().u8(LOCK_SUCCESS))
    }

    /// `Tgetlock`: nobody else has one.
    pub fn find_lock(&mut self, mut fields: Fields<'_>) -> Result<Answer, Errno> {
        self.fids.get(fields.u32()?)?.handle()?;
        fields.u8()?;
        let (start, length, process) = (fields.u64()?, fields.u64()?, fields.u32()?);
        let client: CString = fields.text()?;
        let out = Out::default().u8(NO_LOCK).u64(start).u64(length).u32(process);
        done(out.string(client.as_bytes()))
    }
}

/// As FUSE has them. The host refuses more than there are in a second, if they are to be set at all.
fn nanoseconds(value: u64) -> u32 {
    value.try_into().unwrap_or(u32::MAX)
}

/// What is to be changed as FUSE says it: a time that is not said is now.
fn translated(valid: SetValid) -> SetattrValid {
    let given = |what, set| valid.contains(what) && valid.contains(set);
    let now = |what, set| valid.contains(what) && !valid.contains(set);
    let (atime, mtime) = (SetValid::ATIME, SetValid::MTIME);
    let all = [
        (valid.contains(SetValid::MODE), SetattrValid::MODE),
        (valid.contains(SetValid::UID), SetattrValid::UID),
        (valid.contains(SetValid::GID), SetattrValid::GID),
        (valid.contains(SetValid::SIZE), SetattrValid::SIZE),
        (given(atime, SetValid::ATIME_SET), SetattrValid::ATIME),
        (now(atime, SetValid::ATIME_SET), SetattrValid::ATIME_NOW),
        (given(mtime, SetValid::MTIME_SET), SetattrValid::MTIME),
        (now(mtime, SetValid::MTIME_SET), SetattrValid::MTIME_NOW),
    ];
    all.iter().filter(|(is_wanted, _)| *is_wanted).map(|(_, what)| *what).collect()
}
