//! The contents of files.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{
    self, FallocateFlags, OFlags, SeekFrom, copy_file_range, fallocate, fdatasync, fsync, syncfs,
};
use rustix::io::Errno;

use super::answer::Answer;
use super::attributes::drop_set_id;
use super::handles::Handle;
use super::inodes::{Inode, Open, attributes};
use super::request::Ask;
use super::share::Share;
use crate::limits::MAX_COPY_BYTES;
use crate::wire::{
    CopyFileRangeIn, FSYNC_FDATASYNC, FallocateIn, FsyncIn, LseekIn, LseekOut, OPEN_KEEP_CACHE,
    OPEN_KILL_SUIDGID, OpenIn, OpenOut, ReadIn, ReleaseIn, WRITE_KILL_SUIDGID, WriteIn, WriteOut,
};

/// How the host is to open what the guest opens so: for reading or writing, at the end, in step with the
/// disk. The rest is between the guest's programs and their kernel.
pub fn flags_of(flags: u32) -> OFlags {
    let kept = OFlags::ACCMODE | OFlags::APPEND | OFlags::TRUNC | OFlags::SYNC | OFlags::DSYNC;
    (OFlags::from_bits_retain(flags) & kept) | OFlags::CLOEXEC
}

/// The same, where the guest's kernel `writes_back`: it reads the rest of a page that is written to in part,
/// through whatever is open for writing, and knows itself where the end is. There the host would write
/// elsewhere (open(2), `O_APPEND`; pwrite(2), BUGS).
pub fn flags_for(flags: OFlags, writes_back: bool) -> OFlags {
    match flags & OFlags::ACCMODE {
        _ if !writes_back => flags,
        OFlags::WRONLY => (flags - OFlags::ACCMODE - OFlags::APPEND) | OFlags::RDWR,
        _ => flags - OFlags::APPEND,
    }
}

/// Open what the guest opens with these flags. What nobody may read on the host is only written.
pub fn open_as(share: &Share, inode: &Arc<Inode>, flags: OFlags) -> Result<OwnedFd, Errno> {
    let wanted = flags_for(flags, share.agreed.writes_back());
    match share.open(inode, wanted) {
        Err(Errno::ACCESS) if (wanted ^ flags).intersects(OFlags::ACCMODE) => {
            share.open(inode, flags - OFlags::APPEND)
        }
        done => done,
    }
}

/// Whether a file that is opened so can be changed.
pub fn is_for_writing(flags: OFlags) -> bool {
    flags & OFlags::ACCMODE != OFlags::RDONLY || flags.contains(OFlags::TRUNC)
}

fn errno(error: &std::io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::FAULT, Errno::from_raw_os_error)
}

/// `OPEN`.
pub fn open(share: &Share, ask: &Ask<'_>) -> Result<Answer, Errno> {
    if share.agreed.opens_silently() {
        return Err(Errno::NOSYS);
    }
    let asked: OpenIn = ask.arguments().take()?;
    let flags = flags_of(asked.flags);
    if is_for_writing(flags) {
        share.check_writable()?;
    }
    let inode = share.inodes.get(ask.header.nodeid)?;
    let file = open_as(share, &inode, flags)?;
    if flags.contains(OFlags::TRUNC) && asked.open_flags & OPEN_KILL_SUIDGID != 0 {
        drop_set_id(share, &inode)?;
    }
    let may_keep = share.is_exclusive || inode.seen.opens(&attributes(&file)?);
    let fh = share.handles.add(file, &inode)?;
    let open_flags = if may_keep { OPEN_KEEP_CACHE } else { 0 };
    Answer::of(&OpenOut { fh, open_flags, padding: 0 })
}

/// `RELEASE` and `RELEASEDIR`.
pub fn release(share: &Share, ask: &Ask<'_>) -> Result<Answer, Errno> {
    let asked: ReleaseIn = ask.arguments().take()?;
    share.handles.remove(asked.fh);
    Answer::done()
}

/// `READ`: from the file into the guest's memory.
pub fn read(share: &Share, ask: &Ask<'_>) -> Result<Answer, Errno> {
    let asked: ReadIn = ask.arguments().take()?;
    let fill = |open: &Open, _: &Arc<Inode>| {
        let (mut target, mut done) = (ask.target(asked.size as usize)?, 0);
        // A read may end early at other places than the end; a guest takes it for that.
        while target.bytes() > 0 {
            match target.read_at(open.file.as_fd(), asked.offset + done as u64) {
                Ok(0) => break,
                Ok(count) => {
                    done += count;
                    target.advance(count);
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) if done == 0 => return Err(errno(&error)),
                Err(_) => break,
            }
        }
        Ok(Answer::InPlace(done))
    };
    if asked.offset.checked_add(asked.size.into()).is_none_or(|end| end > i64::MAX as u64) {
        return Err(Errno::INVAL);
    }
    share.with_open((ask.header.nodeid, asked.fh), fill)
}

/// `WRITE`: from the guest's memory into the file.
pub fn write(share: &Share, ask: &mut Ask<'_>) -> Result<Answer, Errno> {
    share.check_writable()?;
    let asked: WriteIn = ask.arguments().take()?;
    let handle = share.handles.get(asked.fh)?;
    let mut source = ask.data.take().ok_or(Errno::INVAL)?;
    source.truncate(asked.size as usize);
    let mut done = 0;
    while source.bytes() > 0 {
        let offset = asked.offset.checked_add(done).ok_or(Errno::FBIG)?;
        match source.write_at(handle.open.file.as_fd(), offset) {
            Ok(0) => break,
            Ok(count) => {
                done += count as u64;
                source.advance(count);
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) if done == 0 => return Err(errno(&error)),
            Err(_) => break,
        }
    }
    if asked.write_flags & WRITE_KILL_SUIDGID != 0 {
        drop_set_id(share, &handle.inode)?;
    }
    Answer::of(&WriteOut { size: done as u32, padding: 0 })
}

/// `FSYNC` and `FSYNCDIR`.
pub fn sync(share: &Share, ask: &Ask<'_>) -> Result<Answer, Errno> {
    let asked: FsyncIn = ask.arguments().take()?;
    if !share.is_writable {
        return Answer::done();
    }
    let is_data = asked.fsync_flags & FSYNC_FDATASYNC != 0;
    let sync = |open: &Open, _: &Arc<Inode>| match is_data {
        true => fdatasync(&open.file),
        false => fsync(&open.file),
    };
    share.with_open((ask.header.nodeid, asked.fh), sync)?;
    Answer::done()
}

/// The first process, which asks for everything to be written when it switches the machine off: what
/// has been handed to the host by then survives that.
const INIT_PROCESS: u32 = 1;

/// `SYNCFS`.
pub fn sync_all(share: &Share, ask: &Ask<'_>) -> Result<Answer, Errno> {
    if share.is_writable && ask.header.pid != INIT_PROCESS {
        let inode = share.inodes.get(ask.header.nodeid)?;
        syncfs(share.open(&inode, OFlags::RDONLY)?)?;
    }
    Answer::done()
}

/// `FALLOCATE`.
pub fn allocate(share: &Share, ask: &Ask<'_>) -> Result<Answer, Errno> {
    share.check_writable()?;
    let asked: FallocateIn = ask.arguments().take()?;
    let mode = FallocateFlags::from_bits(asked.mode).ok_or(Errno::OPNOTSUPP)?;
    let handle = share.handles.get(asked.fh)?;
    fallocate(&handle.open.file, mode, asked.offset, asked.length)?;
    Answer::done()
}

/// `LSEEK`: only where data and holes are, because positions are the guest's business. Where its kernel writes
/// back, what is a hole here may have data there: then it takes all of a file for data.
pub fn seek(share: &Share, ask: &Ask<'_>) -> Result<Answer, Errno> {
    const SEEK_DATA: u32 = 3;
    const SEEK_HOLE: u32 = 4;
    if share.agreed.writes_back() {
        return Err(Errno::NOSYS);
    }
    let asked: LseekIn = ask.arguments().take()?;
    let to = match asked.whence {
        SEEK_DATA => SeekFrom::Data(asked.offset),
        SEEK_HOLE => SeekFrom::Hole(asked.offset),
        _ => return Err(Errno::INVAL),
    };
    let who = (ask.header.nodeid, asked.fh);
    let offset = share.with_open(who, |open, _| fs::seek(&open.file, to))?;
    Answer::of(&LseekOut { offset })
}

/// `COPY_FILE_RANGE`: the host may share the blocks.
pub fn copy(share: &Share, ask: &Ask<'_>) -> Result<Answer, Errno> {
    share.check_writable()?;
    let asked: CopyFileRangeIn = ask.arguments().take()?;
    let (from, to): (Arc<Handle>, _) =
        (share.handles.get(asked.fh_in)?, share.handles.get(asked.fh_out)?);
    let (mut source, mut target) = (asked.off_in, asked.off_out);
    let length = usize::try_from(asked.len).unwrap_or(usize::MAX).min(MAX_COPY_BYTES);
    let (file, other) = (&from.open.file, &to.open.file);
    let done = copy_file_range(file, Some(&mut source), other, Some(&mut target), length)?;
    Answer::of(&WriteOut { size: done as u32, padding: 0 })
}
