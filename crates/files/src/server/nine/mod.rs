//! 9P2000.L (the protocol 9p as Linux extends it), for guests whose kernel has no virtio-fs.
//!
//! Nothing is carried out here. Each message is translated into requests of FUSE, which are carried out as any other
//! ([`dispatch::act`]), by the same functions with the same checks; data move between files and guest memory as they do
//! there. What is here is what 9p has and FUSE has not: files called by numbers of the guest's choice ([`fids`]),
//! paths of several names, extended attributes that are read and written as files are, and requests that are
//! called back ([`Fids::await_landing`]).
//!
//! 1. *The guest's kernel checks permissions* of its users, as it does with virtio-fs: it mounts with `access=client`.
//!    A user's number comes with the fid that he has attached, and says whose what he makes is.
//! 2. *A name is one name*: no `..`, no `/`. Linux asks for nothing else. What is moved or removed by its fid, as old
//!    clients do it, is so by the name that it was found by last, if it still has that.
//! 3. *Where the end of a file is, the guest knows*, as where it writes back over FUSE: what it opens to append to is
//!    written where it says. It writes whole pages of its cache through what is open for writing. Kernels that do
//!    otherwise, or that keep too much, attach another [`wire::Tree`].
//! 4. *Locks are between the guest's own programs*, whose kernel has granted them before it asks. There are none
//!    between guests, as there are none over FUSE.

mod changes;
mod contents;
mod extended;
mod fids;
mod session;
mod wire;

use std::ffi::CStr;
use std::io;

use host::vectored::Pieces;
use rustix::io::Errno;
use vm_memory::GuestMemoryMmap;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::answer::Answer;
use super::dispatch::{self, Pace};
use super::request::{Ask, gather, ranges, scatter, total};
use super::share::Share;
use crate::limits::{MAX_ARGUMENT_BYTES, MUCH_DATA_BYTES};
use crate::message::Range;
use crate::wire::{EntryOut, InHeader};
use fids::{Counted, Fid};
pub use fids::{Fids, Flight};
use wire::{DATA_HEAD_BYTES, Fields, HEAD_BYTES, Out, WRITE_HEAD_BYTES, kind};

/// One message of the guest's kernel, and the place for its answer.
pub struct Message<'a> {
    /// What is asked for.
    kind: u8,
    /// What the guest knows the answer by.
    pub tag: u16,
    memory: &'a GuestMemoryMmap,
    /// What follows the head; of a write, without its data.
    body: Vec<u8>,
    /// The data of a write.
    data: Option<Pieces<'a>>,
    readable: Vec<Range>,
    writable: Vec<Range>,
    /// Bytes of `writable`.
    room: u64,
}

impl<'a> Message<'a> {
    /// The message that is in these ranges. One that is not as long as it says is none that we know, and is answered.
    ///
    /// # Errors
    ///
    /// When it is none: too short, or not in memory.
    pub fn new(
        memory: &'a GuestMemoryMmap,
        readable: &[Range],
        writable: &[Range],
    ) -> io::Result<Self> {
        let here = total(readable)?;
        let mut body = gather(memory, readable, here.min(WRITE_HEAD_BYTES as u64))?;
        let invalid = |_| io::Error::from(io::ErrorKind::InvalidData);
        let mut head = Fields(&body);
        let size = u64::from(head.u32().map_err(invalid)?);
        let mut kind = head.u8().map_err(invalid)?;
        let tag = head.u16().map_err(invalid)?;
        let mut data = None;
        if kind == kind::WRITE && body.len() == WRITE_HEAD_BYTES {
            // Before Linux 5.0 its size is that without the data.
            let mut pieces = Pieces::new(memory, ranges(readable))?;
            pieces.advance(WRITE_HEAD_BYTES);
            data = Some(pieces);
        } else if size < HEAD_BYTES as u64 || size > here.min(MAX_ARGUMENT_BYTES) {
            kind = kind::NONE;
        } else {
            body = gather(memory, readable, size)?;
        }
        let body = body.split_off(HEAD_BYTES.min(body.len()));
        let room = total(writable)?;
        let (readable, writable) = (readable.to_vec(), writable.to_vec());
        Ok(Self { kind, tag, memory, body, data, readable, writable, room })
    }

    /// The pace at which it is carried out.
    pub fn pace(&self) -> Pace {
        let is_much = || {
            let mut fields = Fields(&self.body);
            let count = fields.u32().and_then(|_| fields.u64()).and_then(|_| fields.u32());
            count.is_ok_and(|count| count >= MUCH_DATA_BYTES)
        };
        match self.kind {
            kind::FSYNC | kind::FLUSH => Pace::Slow,
            kind::READ | kind::WRITE if is_much() => Pace::Slow,
            _ => Pace::Quick,
        }
    }

    /// Whether it waits for others, and nothing waits for it.
    pub fn is_flush(&self) -> bool {
        self.kind == kind::FLUSH
    }

    /// Bytes for the data of an answer.
    fn room(&self) -> usize {
        (self.room as usize).saturating_sub(DATA_HEAD_BYTES)
    }

    /// Write an answer, or as much of one of `length` bytes as is not in its place; its length.
    fn put(&self, kind: u8, bytes: &[u8], length: usize) -> Option<usize> {
        if length as u64 > self.room {
            return None;
        }
        let head = Out::default().u32(length as u32).u8(kind).u16(self.tag);
        let bytes = [&head.0, bytes].concat();
        scatter(self.memory, &self.writable, &bytes).then_some(length)
    }

    fn answer(&self, result: Result<Answer, Errno>) -> usize {
        let kind = self.kind.wrapping_add(1);
        let done = match result {
            Ok(Answer::Bytes(bytes)) => Ok(self.put(kind, &bytes, HEAD_BYTES + bytes.len())),
            Ok(Answer::InPlace(count)) => {
                let bytes = (count as u32).to_le_bytes();
                Ok(self.put(kind, &bytes, DATA_HEAD_BYTES + count))
            }
            Ok(Answer::Nothing) => Err(Errno::IO),
            // FUSE's kernel does without from then on.
            Err(Errno::NOSYS) => Err(Errno::OPNOTSUPP),
            Err(errno) => Err(errno),
        };
        let refuse = |errno: Errno| {
            tracing::trace!(kind = self.kind, %errno, "9p request fails");
            let bytes = errno.raw_os_error().to_le_bytes();
            self.put(kind::ERROR + 1, &bytes, HEAD_BYTES + bytes.len())
        };
        // Without room for it there is no answer.
        done.map_or_else(refuse, |put| put.or_else(|| refuse(Errno::NOBUFS))).unwrap_or(0)
    }
}

/// Carry a message out and answer it; the length of the answer.
pub fn carry_out(share: &Share, fids: &Fids, message: &mut Message<'_>) -> usize {
    share.begins();
    let body = std::mem::take(&mut message.body);
    let mut call = Call { share, fids, message };
    let result = call.act(Fields(&body));
    call.message.answer(result)
}

/// A message that is carried out.
struct Call<'c, 'm> {
    share: &'c Share,
    fids: &'c Fids,
    message: &'c mut Message<'m>,
}

impl<'c> Call<'c, '_> {
    fn counted(&self) -> Counted<'c> {
        Counted { inodes: &self.share.inodes, handles: &self.share.handles }
    }
}

/// Whom FUSE's requests come from, and what they are for.
#[derive(Clone, Copy)]
struct Asker {
    node: u64,
    user: u32,
    group: u32,
}

impl Asker {
    fn of(fid: &Fid) -> Self {
        Self { node: fid.node, user: fid.user, group: 0 }
    }
}

impl Call<'_, '_> {
    fn act(&mut self, fields: Fields<'_>) -> Result<Answer, Errno> {
        use std::sync::atomic::Ordering;
        match self.message.kind {
            kind::VERSION => return self.agree(fields),
            kind::FLUSH => return self.flush(fields),
            _ if !self.share.is_started.load(Ordering::Relaxed) => return Err(Errno::IO),
            _ => {}
        }
        match self.message.kind {
            kind::ATTACH => self.attach(fields),
            kind::WALK => self.walk(fields),
            kind::CLUNK => self.give_up(fields),
            kind::OPEN => self.open(fields),
            kind::CREATE => self.create(fields),
            kind::READ => self.read(fields),
            kind::WRITE => self.write(fields),
            kind::READDIR => self.list(fields),
            kind::FSYNC => self.sync(fields),
            kind::GETATTR => self.attributes(fields),
            kind::SETATTR => self.set_attributes(fields),
            kind::READLINK => self.read_link(fields),
            kind::STATFS => self.file_system(fields),
            kind::LOCK => self.lock(fields),
            kind::GETLOCK => self.find_lock(fields),
            kind::SYMLINK => self.make_symbolic_link(fields),
            kind::MKNOD => self.make_node(fields),
            kind::MKDIR => self.make_directory(fields),
            kind::LINK => self.make_link(fields),
            kind::RENAMEAT => self.rename(fields),
            kind::UNLINKAT => self.unlink(fields),
            kind::REMOVE => self.remove(fields),
            kind::RENAME => self.move_file(fields),
            kind::XATTRWALK => self.find_attribute(fields),
            kind::XATTRCREATE => self.begin_attribute(fields),
            _ => Err(Errno::OPNOTSUPP),
        }
    }

    /// Have a request of FUSE carried out.
    fn ask(
        &mut self,
        opcode: u32,
        asker: Asker,
        arguments: &(impl IntoBytes + Immutable + ?Sized),
        names: &[&CStr],
    ) -> Result<Answer, Errno> {
        let Asker { node, user, group } = asker;
        let header = InHeader { opcode, nodeid: node, uid: user, gid: group, ..Default::default() };
        let mut bytes = arguments.as_bytes().to_vec();
        names.iter().for_each(|name| bytes.extend(name.to_bytes_with_nul()));
        let message = &mut *self.message;
        let place = (&message.writable[..], message.room);
        let (memory, data) = (message.memory, message.data.take());
        let mut ask = Ask::translated(memory, (header, bytes), data, place, DATA_HEAD_BYTES);
        dispatch::act(self.share, &mut ask)
    }

    /// The same, where the answer begins with a structure.
    fn ask_for<T: FromBytes>(
        &mut self,
        opcode: u32,
        asker: Asker,
        arguments: &(impl IntoBytes + Immutable + ?Sized),
        names: &[&CStr],
    ) -> Result<T, Errno> {
        match self.ask(opcode, asker, arguments, names)? {
            Answer::Bytes(bytes) => {
                T::read_from_prefix(&bytes).map(|(value, _)| value).map_err(|_| Errno::IO)
            }
            Answer::InPlace(_) | Answer::Nothing => Err(Errno::IO),
        }
    }

    /// What has been made in a directory, of which the guest has no fid yet.
    fn made(
        &mut self,
        opcode: u32,
        asker: Asker,
        arguments: &(impl IntoBytes + Immutable + ?Sized),
        names: &[&CStr],
    ) -> Result<Answer, Errno> {
        let entry: EntryOut = self.ask_for(opcode, asker, arguments, names)?;
        let qid = self.qid(entry.nodeid, &entry.attr);
        self.share.inodes.forget(entry.nodeid, 1);
        done(Out::default().qid(&qid?))
    }
}

fn done(out: Out) -> Result<Answer, Errno> {
    Ok(Answer::Bytes(out.0))
}
