//! What is in the queue of a Unix socket, without taking it out.
//!
//! `SO_PEEK_OFF` has each look begin where the last one ended. It is given back its value.

use std::os::fd::OwnedFd;

use host::processes::sockets::{self, Look, option, set_option};
use libc::{EAGAIN, EFAULT, EINVAL, ENOTCONN};
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType, sockopt};

use super::ask;
use super::entry::Entry;
use crate::error::Error;
use crate::limits::{MAX_MESSAGES, MAX_SOCKET_BYTES};

/// Bytes that are looked at at once: more than a message has.
const PIECE_BYTES: usize = 4 << 20;

/// A message as it has arrived.
pub(in crate::dump) struct Arrived {
    pub bytes: Vec<u8>,
    /// The address of the socket that has sent it, of datagrams.
    pub from: Vec<u8>,
    /// Who has sent it: process, user and group, in our numbers.
    pub by: Option<[u32; 3]>,
    /// What goes with it.
    pub files: Vec<OwnedFd>,
    /// How many bytes are before it.
    pub offset: usize,
}

/// Look at all that is in a socket's queue.
pub(in crate::dump) fn peek(entry: &Entry) -> Result<Vec<Arrived>, Error> {
    if entry.family != AddressFamily::UNIX {
        return Ok(Vec::new());
    }
    let io = |error: Errno| Error::io("look at what has arrived at a socket")(error);
    if entry.has(PollFlags::PRI)? {
        return Err(Error::unsupported(entry.pid, "has a socket with urgent data"));
    }
    if sockopt::socket_acceptconn(&entry.socket).map_err(io)? {
        return Ok(Vec::new());
    }
    // An error is told once: of a stream to who looks behind its end, of others to who looks at all.
    let mut end = usize::MAX;
    if entry.has_error()? {
        let bytes = rustix::io::ioctl_fionread(&entry.socket).map_err(io)?;
        end = usize::try_from(bytes).unwrap_or(usize::MAX);
        let kind = sockopt::socket_type(&entry.socket).map_err(io)?;
        if kind == SocketType::DGRAM || (kind != SocketType::STREAM && end > 0) {
            let what = "has a socket with an error that it has not been told";
            return Err(Error::unsupported(entry.pid, what));
        }
    }
    from(entry, 0, || peek_up_to(entry, end))
}

/// Look at all that is in the queue of a socket that has no error.
pub(super) fn peek_all(entry: &Entry) -> Result<Vec<Arrived>, Error> {
    from(entry, 0, || peek_up_to(entry, usize::MAX))
}

/// The number that the sender of a message has for the receiver; 0 if that is not to be known.
pub(super) fn sender(entry: &Entry, offset: usize) -> Result<u32, Error> {
    let Some(number) = entry.number else { return Ok(0) };
    from(entry, offset, || ask::sender(entry.pid, number))
}

/// Do something while looks at a queue begin behind so many bytes.
fn from<T>(
    entry: &Entry,
    offset: usize,
    look: impl FnOnce() -> Result<T, Error>,
) -> Result<T, Error> {
    let name = (libc::SOL_SOCKET, libc::SO_PEEK_OFF);
    let before = option(&entry.socket, name.0, name.1, 4);
    let before = before.map_err(Error::io("look at a socket"))?;
    begin_at(entry, offset)?;
    let result = look();
    let back = set_option(&entry.socket, name.0, name.1, &before);
    back.map_err(Error::io("look at what has arrived at a socket"))?;
    result
}

/// Have the next look begin behind so many bytes.
fn begin_at(entry: &Entry, offset: usize) -> Result<(), Error> {
    let offset = i32::try_from(offset).unwrap_or(i32::MAX).to_ne_bytes();
    let set = set_option(&entry.socket, libc::SOL_SOCKET, libc::SO_PEEK_OFF, &offset);
    set.map_err(Error::io("look at what has arrived at a socket"))
}

/// How many of the bytes of a stream were sent before those that descriptors came with. The kernel shows them together,
/// and nothing behind them: what does not have room as a whole is the last piece, to which they belong.
fn bytes_before_files(entry: &Entry, arrived: &Arrived, offset: usize) -> Result<usize, Error> {
    begin_at(entry, offset)?;
    let mut room = vec![0; arrived.bytes.len().saturating_sub(1)];
    let before = match sockets::peek(&entry.socket, &mut room, Look::Whole) {
        Ok(received) => received.bytes,
        Err(error) if error.raw_os_error() == Some(EFAULT) => 0,
        Err(error) => return Err(Error::io("look at what has arrived at a socket")(error)),
    };
    begin_at(entry, offset + arrived.bytes.len())?;
    Ok(before)
}

fn peek_up_to(entry: &Entry, end: usize) -> Result<Vec<Arrived>, Error> {
    let kind = sockopt::socket_type(&entry.socket);
    let kind = kind.map_err(Error::io("look at a socket"))?;
    let too_much = || Error::unsupported(entry.pid, "has a socket with too much in its queue");
    let mut messages: Vec<Arrived> = Vec::new();
    let mut total = 0;
    let mut room = vec![0; PIECE_BYTES];
    while total < end {
        let Some(mut arrived) = peek_one(entry, &mut room)? else { break };
        arrived.offset = total;
        if kind == SocketType::STREAM && !arrived.files.is_empty() {
            let plain = bytes_before_files(entry, &arrived, total)?;
            let files = arrived.bytes.split_off(plain);
            let before = std::mem::replace(&mut arrived.bytes, files);
            arrived.offset += plain;
            if plain > 0 {
                messages.push(Arrived {
                    bytes: before,
                    from: Vec::new(),
                    by: arrived.by,
                    files: Vec::new(),
                    offset: total,
                });
                total += plain;
            }
        }
        total += arrived.bytes.len();
        // An end looks like an empty message, but for datagrams, which have no end.
        if arrived.bytes.is_empty() && kind != SocketType::DGRAM {
            break;
        }
        if total > MAX_SOCKET_BYTES || messages.len() >= MAX_MESSAGES {
            return Err(too_much());
        }
        let last = messages.last_mut().filter(|last| {
            let is_plain = last.files.is_empty() && arrived.files.is_empty();
            kind == SocketType::STREAM && is_plain && last.by == arrived.by
        });
        match last {
            Some(last) => last.bytes.extend(arrived.bytes),
            None => messages.push(arrived),
        }
    }
    Ok(messages)
}

/// The next message; none at the end.
fn peek_one(entry: &Entry, room: &mut [u8]) -> Result<Option<Arrived>, Error> {
    let received = match sockets::peek(&entry.socket, room, Look::Next) {
        Ok(received) => received,
        // A socket that is not connected has nothing.
        Err(error) if [EAGAIN, EINVAL, ENOTCONN].map(Some).contains(&error.raw_os_error()) => {
            return Ok(None);
        }
        Err(error) => return Err(Error::io("look at what has arrived at a socket")(error)),
    };
    if received.is_cut {
        return Err(Error::unsupported(entry.pid, "has a socket with a message that is too long"));
    }
    let bytes = room.get(..received.bytes).unwrap_or_default().to_vec();
    let sockets::Received { from, by, files, .. } = received;
    Ok(Some(Arrived { bytes, from, by, files, offset: 0 }))
}
