//! Dispatches a request to the function that carries it out.

use std::sync::atomic::Ordering;

use rustix::io::Errno;

use super::answer::Answer;
use super::request::Ask;
use super::share::{Agreed, Share};
use super::{attributes, change, data, directory, extended};
use crate::limits::{MAX_BACKGROUND_REQUESTS, MAX_DATA_BYTES, MAX_DATA_PAGES, MUCH_DATA_BYTES};
use crate::wire::{
    BatchForgetIn, ForgetIn, ForgetOne, InitFlags, InitIn, InitOut, MAJOR, MINOR, OLDEST_MINOR,
    ReadIn, WriteIn, opcode,
};

/// Whether a request may take so long that others should not wait for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    Quick,
    Slow,
}

/// The pace of a request.
pub fn pace(ask: &Ask<'_>) -> Pace {
    let mut arguments = ask.arguments();
    let is_slow = match ask.header.opcode {
        opcode::READ => arguments.take::<ReadIn>().is_ok_and(|read| read.size >= MUCH_DATA_BYTES),
        opcode::WRITE => {
            arguments.take::<WriteIn>().is_ok_and(|write| write.size >= MUCH_DATA_BYTES)
        }
        opcode::FSYNC
        | opcode::FSYNCDIR
        | opcode::SYNCFS
        | opcode::FALLOCATE
        | opcode::COPY_FILE_RANGE => true,
        _ => false,
    };
    if is_slow { Pace::Slow } else { Pace::Quick }
}

/// Carry a request out and answer it; the length of the answer.
pub fn carry_out(share: &Share, ask: &mut Ask<'_>) -> usize {
    share.begins();
    let is_started = share.is_started.load(Ordering::Relaxed);
    let result = match ask.header.opcode {
        opcode::INIT => start(share, ask),
        _ if !is_started => Err(Errno::IO),
        _ => act(share, ask),
    };
    let (number, node) = (ask.header.opcode, ask.header.nodeid);
    match result {
        Ok(Answer::Nothing) => 0,
        Ok(Answer::Bytes(bytes)) => ask.answer(Ok(&bytes)),
        Ok(Answer::InPlace(length)) => ask.answer_in_place(length),
        Err(errno) => {
            tracing::trace!(number, node, %errno, "file request fails");
            ask.answer(Err(errno))
        }
    }
}

/// Carry a request of a kernel that has mounted the share out.
pub fn act(share: &Share, ask: &mut Ask<'_>) -> Result<Answer, Errno> {
    match ask.header.opcode {
        opcode::LOOKUP => directory::look_up(share, ask),
        opcode::FORGET => forget(share, ask),
        opcode::BATCH_FORGET => forget_many(share, ask),
        opcode::GETATTR => attributes::get(share, ask),
        opcode::SETATTR => attributes::set(share, ask),
        opcode::READLINK => attributes::read_link(share, ask),
        opcode::STATFS => attributes::file_system(share, ask),
        opcode::SYMLINK => change::symbolic_link(share, ask),
        opcode::MKNOD => change::node(share, ask),
        opcode::MKDIR => change::directory(share, ask),
        opcode::UNLINK => change::remove(share, ask, false),
        opcode::RMDIR => change::remove(share, ask, true),
        opcode::RENAME => change::rename(share, ask, false),
        opcode::RENAME2 => change::rename(share, ask, true),
        opcode::LINK => change::link(share, ask),
        opcode::CREATE => change::file(share, ask),
        opcode::OPEN => data::open(share, ask),
        opcode::READ => data::read(share, ask),
        opcode::WRITE => data::write(share, ask),
        opcode::RELEASE | opcode::RELEASEDIR => data::release(share, ask),
        opcode::FSYNC | opcode::FSYNCDIR => data::sync(share, ask),
        opcode::SYNCFS => data::sync_all(share, ask),
        opcode::FALLOCATE => data::allocate(share, ask),
        opcode::LSEEK => data::seek(share, ask),
        opcode::COPY_FILE_RANGE => data::copy(share, ask),
        opcode::OPENDIR => directory::open(share, ask),
        opcode::READDIR => directory::read(share, ask, false),
        opcode::READDIRPLUS => directory::read(share, ask, true),
        opcode::GETXATTR | opcode::LISTXATTR | opcode::SETXATTR | opcode::REMOVEXATTR
            if !share.has_attributes =>
        {
            Err(Errno::NOSYS)
        }
        opcode::GETXATTR => extended::get(share, ask),
        opcode::LISTXATTR => extended::list(share, ask),
        opcode::SETXATTR => extended::set(share, ask),
        opcode::REMOVEXATTR => extended::remove(share, ask),
        // What is carried out is not interrupted.
        opcode::INTERRUPT => Ok(Answer::Nothing),
        opcode::DESTROY => {
            end(share);
            Answer::done()
        }
        // The kernel does without, and does not ask again.
        _ => Err(Errno::NOSYS),
    }
}

/// A kernel mounts the share, and knows nothing yet.
fn start(share: &Share, ask: &Ask<'_>) -> Result<Answer, Errno> {
    let asked: InitIn = ask.arguments().take()?;
    if asked.major != MAJOR || asked.minor < OLDEST_MINOR {
        // A kernel with a newer major version tries again with ours.
        let out = InitOut { major: MAJOR, minor: MINOR, ..InitOut::default() };
        return if asked.major > MAJOR { Answer::of(&out) } else { Err(Errno::PROTO) };
    }
    end(share);
    let flags = wanted(share) & InitFlags::from_bits_retain(asked.flags);
    share.agreed.set(agreed(flags));
    share.is_started.store(true, Ordering::Relaxed);
    Answer::of(&InitOut {
        major: MAJOR,
        minor: MINOR.min(asked.minor),
        max_readahead: asked.max_readahead,
        flags: flags.bits(),
        max_background: MAX_BACKGROUND_REQUESTS,
        congestion_threshold: MAX_BACKGROUND_REQUESTS / 4 * 3,
        max_write: MAX_DATA_BYTES,
        time_gran: 1,
        max_pages: MAX_DATA_PAGES,
        ..InitOut::default()
    })
}

/// What we want of a kernel that can do it.
fn wanted(share: &Share) -> InitFlags {
    let mut wanted = InitFlags::ASYNC_READ
        | InitFlags::ATOMIC_O_TRUNC
        | InitFlags::BIG_WRITES
        | InitFlags::DO_READDIRPLUS
        | InitFlags::READDIRPLUS_AUTO
        | InitFlags::ASYNC_DIO
        | InitFlags::PARALLEL_DIROPS
        | InitFlags::MAX_PAGES
        | InitFlags::HANDLE_KILLPRIV_V2;
    if !share.is_writable {
        wanted |= InitFlags::NO_OPEN_SUPPORT;
    }
    if !share.is_writable || share.is_exclusive {
        // Directories' listings are kept until the guest itself changes them, or they look otherwise.
        wanted |= InitFlags::NO_OPENDIR_SUPPORT | InitFlags::CACHE_SYMLINKS;
    }
    match share.is_exclusive {
        false => wanted |= InitFlags::AUTO_INVAL_DATA,
        true if share.is_writable && share.is_written_back => {
            wanted |= InitFlags::WRITEBACK_CACHE;
        }
        true => {}
    }
    wanted
}

/// What that means for the requests to come.
fn agreed(flags: InitFlags) -> u8 {
    let all = [
        (InitFlags::NO_OPEN_SUPPORT, Agreed::OPENS_SILENTLY),
        (InitFlags::NO_OPENDIR_SUPPORT, Agreed::LISTS_SILENTLY),
        (InitFlags::WRITEBACK_CACHE, Agreed::WRITES_BACK),
    ];
    all.iter().filter(|(flag, _)| flags.contains(*flag)).map(|(_, bit)| bit).sum()
}

/// The kernel that knew something of the share is gone.
pub fn end(share: &Share) {
    share.is_started.store(false, Ordering::Relaxed);
    share.handles.clear();
    share.inodes.clear();
}

fn forget(share: &Share, ask: &Ask<'_>) -> Result<Answer, Errno> {
    let ForgetIn { nlookup } = ask.arguments().take()?;
    share.inodes.forget(ask.header.nodeid, nlookup);
    Ok(Answer::Nothing)
}

fn forget_many(share: &Share, ask: &Ask<'_>) -> Result<Answer, Errno> {
    let mut arguments = ask.arguments();
    let BatchForgetIn { count, .. } = arguments.take()?;
    // A list that is shorter than it says ends where it ends.
    for _ in 0..count {
        let Ok(ForgetOne { nodeid, nlookup }) = arguments.take() else { break };
        share.inodes.forget(nodeid, nlookup);
    }
    Ok(Answer::Nothing)
}
