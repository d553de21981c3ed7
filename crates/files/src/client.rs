//! The domain's side of the sockets.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::MemfdFlags;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags,
    SocketType, recv, send, sendmsg, socketpair,
};
use zerocopy::{FromBytes, IntoBytes};

use crate::message::{
    Command, Header, MAX_RANGES, MAX_SHARES, Range, Region, Reply, Request, ShareRecord, VERSION,
    command,
};

/// A directory of the host's that is to be shared.
#[derive(Debug)]
pub struct Share {
    /// The directory.
    pub directory: OwnedFd,
    /// May it be written?
    pub is_writable: bool,
    /// How long the guest may believe what it knows of names and attributes, in milliseconds.
    pub validity_milliseconds: u64,
    /// User and group on the host, and who they are in the guest; these are who the former are there.
    pub host_owner: (u32, u32),
    /// See above.
    pub guest_owner: (u32, u32),
}

/// Two ends of a line for messages.
///
/// # Errors
///
/// The host's.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

/// Tell the server at the other end of `control` what there is to do; the sockets of the shares, in
/// their order. Regions are (guest-physical address, bytes, offset in the file). With `may_watch`, there
/// are cores to spare for who watches for requests.
///
/// # Errors
///
/// The host's, or that there are too many shares.
pub fn introduce(
    control: BorrowedFd<'_>,
    memory: BorrowedFd<'_>,
    regions: &[(u64, u64, u64)],
    shares: &[Share],
    may_watch: bool,
) -> io::Result<Vec<Connection>> {
    if shares.len() > MAX_SHARES {
        return Err(io::Error::other(format!("a machine has at most {MAX_SHARES} shares")));
    }
    let (regions_count, shares_count) = (regions.len() as u32, shares.len() as u32);
    let header = Header {
        version: VERSION,
        regions: regions_count,
        shares: shares_count,
        may_watch: may_watch.into(),
    };
    let mut bytes = header.as_bytes().to_vec();
    for &(guest, length, offset) in regions {
        bytes.extend(Region { guest, bytes: length, offset }.as_bytes());
    }
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for share in shares {
        bytes.extend(record(share).as_bytes());
        let (our_end, their_end) = pair()?;
        ours.push(Connection { socket: our_end });
        theirs.push(their_end);
    }
    let mut descriptors = vec![memory];
    for (share, socket) in shares.iter().zip(&theirs) {
        descriptors.extend([share.directory.as_fd(), socket.as_fd()]);
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
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2 * MAX_SHARES + 1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::Error::other("too many descriptors for one message"));
    }
    sendmsg(control, &[io::IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

fn record(share: &Share) -> ShareRecord {
    ShareRecord {
        validity: share.validity_milliseconds,
        writable: share.is_writable.into(),
        host_user: share.host_owner.0,
        host_group: share.host_owner.1,
        guest_user: share.guest_owner.0,
        guest_group: share.guest_owner.1,
        reserved: 0,
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

/// Have it give a file that has no name this one, in a directory.
///
/// # Errors
///
/// The host's, or that there is such a file.
pub fn name(
    control: BorrowedFd<'_>,
    file: BorrowedFd<'_>,
    directory: BorrowedFd<'_>,
    name: &str,
) -> io::Result<()> {
    let command = Command { kind: command::NAME, share: 0 };
    let bytes = [command.as_bytes(), name.as_bytes()].concat();
    ask(control, &bytes, &[file, directory])
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

/// One share's socket.
#[derive(Debug)]
pub struct Connection {
    socket: OwnedFd,
}

impl Connection {
    /// Send a request, without waiting; false if there is no room for it now.
    ///
    /// # Errors
    ///
    /// The server is gone, or the request has too many ranges.
    pub fn submit(
        &self,
        token: u64,
        readable: impl ExactSizeIterator<Item = Range>,
        writable: impl ExactSizeIterator<Item = Range>,
    ) -> io::Result<bool> {
        if readable.len() + writable.len() > MAX_RANGES {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let (r, w) = (readable.len() as u32, writable.len() as u32);
        let mut bytes = Vec::with_capacity(16 * (1 + readable.len() + writable.len()));
        bytes.extend(Request { token, readable: r, writable: w }.as_bytes());
        for range in readable.chain(writable) {
            bytes.extend(range.as_bytes());
        }
        match send(&self.socket, &bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
            Ok(_) => Ok(true),
            Err(Errno::AGAIN) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Wait for a reply; none when the server is gone.
    ///
    /// # Errors
    ///
    /// The host's, or that this is no reply.
    pub fn receive(&self) -> io::Result<Option<Reply>> {
        self.receive_with(RecvFlags::empty())
    }

    /// Take a reply if there is one now.
    ///
    /// # Errors
    ///
    /// As [`Self::receive`].
    pub fn take(&self) -> io::Result<Option<Reply>> {
        self.receive_with(RecvFlags::DONTWAIT)
    }

    fn receive_with(&self, flags: RecvFlags) -> io::Result<Option<Reply>> {
        let mut bytes = [0; size_of::<Reply>()];
        loop {
            match recv(&self.socket, &mut bytes[..], flags) {
                Ok((0, _)) | Err(Errno::CONNRESET | Errno::AGAIN) => return Ok(None),
                Ok((length, _)) if length == bytes.len() => {
                    return Ok(Reply::read_from_bytes(&bytes).ok());
                }
                Ok(_) => return Err(io::ErrorKind::InvalidData.into()),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// No more replies: who waits for one is told that the server is gone.
    pub fn shut(&self) {
        // That the server was gone before is as good.
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
    }
}
