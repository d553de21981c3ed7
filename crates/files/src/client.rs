//! The client of the file server, in the domain's process.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Mutex;
use std::time::Duration;

use host::subordinate::Namespace;
use locks::Unpoisoned;
use rustix::fs::MemfdFlags;
use rustix::net::{RecvFlags, recv};
use zerocopy::{FromBytes, IntoBytes};

use crate::limits::{MAX_DESCRIPTORS, MAX_RANGES, MAX_SHARES};
use crate::message::{
    Command, Header, Range, Region, Reply, Request, ShareRecord, VERSION, command, flags,
};
pub use crate::ring::socket_pair as pair;
use crate::ring::{self, Notifier, Reader, Writer};

/// A directory of the host's that is to be shared.
#[derive(Debug)]
pub struct Share {
    /// The directory.
    pub directory: OwnedFd,
    /// May it be written?
    pub is_writable: bool,
    /// May files be given set-user-ID and set-group-ID bits and `security.*` attributes?
    pub allows_privileges: bool,
    /// May file systems of unknown kinds be seen ([`crate::kinds`])?
    pub allows_unknown_kinds: bool,
    /// Are credentials in home directories, and what is the host's own, left out?
    pub hides_secrets: bool,
    /// How long the guest may believe what it knows of names and attributes, in milliseconds.
    pub validity_milliseconds: u64,
    /// User and group on the host, and who they are in the guest; these are who the former are there. They mean
    /// something for [`Owners::OfHost`].
    pub host_owner: (u32, u32),
    /// See above.
    pub guest_owner: (u32, u32),
    /// Whom its files belong to.
    pub owners: Owners,
    /// Nobody but the guest changes it while the machine runs: what the guest knows of it remains true.
    pub is_exclusive: bool,
    /// The same, and what the guest's programs write comes when they close a file, or want it written.
    pub is_written_back: bool,
    /// The guest is told that files have no extended attributes, and does not ask for any.
    pub without_attributes: bool,
    /// A guest that goes on may find another directory than it had: what it knows of that is gone then.
    pub may_be_another: bool,
    /// The guest's driver speaks 9P2000.L, and not FUSE.
    pub is_nine: bool,
}

/// Whom the files of a share belong to in the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owners {
    /// Whom they belong to on the host, but that two change places.
    OfHost,
    /// The users of this namespace, which the server is in.
    OfNamespace(Namespace),
    /// Who is in their attributes ([`crate::owner`]).
    Recorded,
}

/// Tell the server at the other end of `control` what there is to do; the sockets of the shares, in
/// their order. Regions are (guest-physical address, bytes, offset in the file).
///
/// # Errors
///
/// The host's, or that there are too many shares.
pub fn introduce(
    control: BorrowedFd<'_>,
    memory: BorrowedFd<'_>,
    regions: &[(u64, u64, u64)],
    shares: &[Share],
) -> io::Result<Vec<Connection>> {
    if shares.len() > MAX_SHARES {
        return Err(io::Error::other(format!("a machine has at most {MAX_SHARES} shares")));
    }
    let (regions_count, shares_count) = (regions.len() as u32, shares.len() as u32);
    let header = Header { version: VERSION, regions: regions_count, shares: shares_count };
    let command = Command { kind: command::INTRODUCE, share: 0 };
    let mut bytes = [command.as_bytes(), header.as_bytes()].concat();
    for &(guest, length, offset) in regions {
        bytes.extend(Region { guest, bytes: length, offset }.as_bytes());
    }
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for share in shares {
        bytes.extend(record(share).as_bytes());
        let ((writer, reader, notifier), rings, socket) = ring::pair()?;
        ours.push(Connection { writer: writer.into(), reader: reader.into(), notifier });
        theirs.push((rings, socket));
    }
    let mut descriptors = vec![memory];
    for (share, (rings, socket)) in shares.iter().zip(&theirs) {
        descriptors.extend([share.directory.as_fd(), rings.as_fd(), socket.as_fd()]);
    }
    send_with(control, &bytes, &descriptors)?;
    Ok(ours)
}

/// Send a message with descriptors.
fn send_with(
    control: BorrowedFd<'_>,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    if descriptors.len() > MAX_DESCRIPTORS {
        return Err(io::Error::other("too many descriptors for one message"));
    }
    host::rights::send(control, bytes, descriptors)
}

fn record(share: &Share) -> ShareRecord {
    let allowed = [
        (share.is_writable, flags::WRITABLE),
        (share.allows_privileges, flags::ALLOWS_PRIVILEGES),
        (share.allows_unknown_kinds, flags::ALLOWS_UNKNOWN_KINDS),
        (share.hides_secrets, flags::HIDES_SECRETS),
        (share.owners == Owners::Recorded, flags::HAS_OWNERS),
        (share.is_exclusive, flags::EXCLUSIVE),
        (share.is_written_back, flags::WRITTEN_BACK),
        (share.without_attributes, flags::WITHOUT_ATTRIBUTES),
        (share.may_be_another, flags::MAY_BE_ANOTHER),
        (share.is_nine, flags::NINE),
    ];
    let (host, guest) = match share.owners {
        Owners::OfHost | Owners::Recorded => (share.host_owner, share.guest_owner),
        Owners::OfNamespace(_) => ((0, 0), (0, 0)),
    };
    ShareRecord {
        flags: allowed.iter().filter(|(is_allowed, _)| *is_allowed).map(|(_, flag)| flag).sum(),
        validity: share.validity_milliseconds,
        host_user: host.0,
        host_group: host.1,
        guest_user: guest.0,
        guest_group: guest.1,
    }
}

/// What the server at the other end of `control` has to say of what the guest knows of a share.
///
/// # Errors
///
/// The host's, or that the server does not.
pub fn save(control: BorrowedFd<'_>, share: usize) -> io::Result<Vec<u8>> {
    let mut file = memory_file()?;
    command(control, command::SAVE, share, file.as_fd())?;
    let mut state = Vec::new();
    file.seek(SeekFrom::Start(0))?;
    file.read_to_end(&mut state)?;
    Ok(state)
}

/// Have it go on from there.
///
/// # Errors
///
/// The host's, or that the share is not what it was.
pub fn restore(control: BorrowedFd<'_>, share: usize, state: &[u8]) -> io::Result<()> {
    let mut file = memory_file()?;
    file.write_all(state)?;
    file.seek(SeekFrom::Start(0))?;
    command(control, command::RESTORE, share, file.as_fd())
}

fn memory_file() -> io::Result<File> {
    Ok(rustix::fs::memfd_create("bivouac-share", MemfdFlags::CLOEXEC)?.into())
}

fn command(
    control: BorrowedFd<'_>,
    kind: u32,
    share: usize,
    file: BorrowedFd<'_>,
) -> io::Result<()> {
    ask(control, Command { kind, share: share as u32 }.as_bytes(), &[file])
}

/// Send a command, and wait until it has been done.
fn ask(control: BorrowedFd<'_>, bytes: &[u8], files: &[BorrowedFd<'_>]) -> io::Result<()> {
    send_with(control, bytes, files)?;
    let mut answer = [0; 1];
    match recv(control, &mut answer[..], RecvFlags::empty())? {
        (1, _) if answer == [1] => Ok(()),
        _ => Err(io::Error::other("the file server cannot")),
    }
}

/// The way to one share's server.
#[derive(Debug)]
pub struct Connection {
    writer: Mutex<Writer>,
    reader: Mutex<Reader>,
    notifier: Notifier,
}

impl Connection {
    /// Send a request, without waiting; false if there is no room for it now. With `may_watch`, there is
    /// a core to spare for the server to watch for the next.
    ///
    /// # Errors
    ///
    /// The server makes no sense, or the request has too many ranges.
    pub fn submit(
        &self,
        token: u64,
        readable: impl ExactSizeIterator<Item = Range>,
        writable: impl ExactSizeIterator<Item = Range>,
        may_watch: bool,
    ) -> io::Result<bool> {
        if readable.len() + writable.len() > MAX_RANGES {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let (r, w) = (readable.len() as u32, writable.len() as u32);
        let mut bytes =
            Vec::with_capacity(size_of::<Request>() + 16 * (readable.len() + writable.len()));
        let sent = crate::monotonic_nanoseconds();
        bytes.extend(Request { token, sent, readable: r, writable: w }.as_bytes());
        for range in readable.chain(writable) {
            bytes.extend(range.as_bytes());
        }
        let is_sent = self.writer.lock().unpoisoned().put(&bytes)?;
        self.notifier.let_watch(may_watch);
        if is_sent {
            self.notifier.notify();
        }
        Ok(is_sent)
    }

    /// Take a reply if there is one now. It costs next to nothing if there is none.
    ///
    /// # Errors
    ///
    /// What there is is no reply.
    pub fn take(&self) -> io::Result<Option<Reply>> {
        let mut bytes = Vec::new();
        match self.reader.lock().unpoisoned().take(&mut bytes)? {
            false => Ok(None),
            true => match Reply::read_from_bytes(&bytes) {
                Ok(reply) => Ok(Some(reply)),
                Err(_) => Err(io::ErrorKind::InvalidData.into()),
            },
        }
    }

    /// Whether the server was last seen on the core that this thread is on, which it does not get as long as this
    /// thread watches.
    pub fn shares_core(&self) -> bool {
        self.notifier.shares_core()
    }

    /// Whether who is in [`Self::wait`] is to be woken by the next reply. Who asks for it looks for one
    /// afterwards, which may have come before.
    pub fn wake_waiting(&self, wake: bool) {
        self.notifier.set_asleep(wake);
    }

    /// Sleep until there is a reply, for so long at most: the server can have this thread's core.
    ///
    /// Who has slept looks, and then sees to it that who is in [`Self::wait`] is woken by what comes later.
    pub fn rest(&self, span: Duration) {
        self.notifier.rest(span, || self.reader.lock().unpoisoned().has_message());
    }

    /// Wait to be woken; false when the server has ended.
    pub fn wait(&self) -> bool {
        self.notifier.wait()
    }

    /// Wait for a reply; none when the server has ended.
    ///
    /// # Errors
    ///
    /// As [`Self::take`].
    pub fn receive(&self) -> io::Result<Option<Reply>> {
        loop {
            if let Some(reply) = self.take()? {
                return Ok(Some(reply));
            }
            self.wake_waiting(true);
            if !self.reader.lock().unpoisoned().has_message() && !self.wait() {
                return self.take();
            }
        }
    }

    /// Nothing more is said: who waits is told that the server has ended.
    pub fn shut(&self) {
        self.notifier.shut();
    }
}
