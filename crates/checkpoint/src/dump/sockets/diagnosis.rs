//! What the kernel tells of the Unix sockets of a network namespace (sock_diag(7)).

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

use rustix::net::{RecvFlags, SendFlags, recv, send};

use crate::error::Error;
use crate::limits::MAX_SOCKETS_OF_NAMESPACE;

/// `SOCK_DIAG_BY_FAMILY`.
const BY_FAMILY: u16 = 20;
/// `NLM_F_REQUEST | NLM_F_DUMP`.
const REQUEST_ALL: u16 = 0x301;
/// `NLMSG_ERROR` and `NLMSG_DONE`.
const FAILED: u16 = 2;
const DONE: u16 = 3;
/// What is to be told (`UDIAG_SHOW_*`): names, files, peers, those that wait, queues.
const WANTED: u32 = 0x1 | 0x2 | 0x4 | 0x8 | 0x10;
/// Bytes of `struct nlmsghdr` and of `struct unix_diag_msg`.
const HEADER_BYTES: usize = 16;
const SOCKET_BYTES: usize = 16;
/// The states of a Unix socket that listens.
const LISTENS: u8 = 10;
/// Bytes of an answer; the kernel sends at most 32 KiB at once.
const ANSWER_BYTES: usize = 64 << 10;

/// A Unix socket.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Row {
    /// `SOCK_*`.
    pub kind: u8,
    /// If it listens: how many may wait.
    pub backlog: Option<u32>,
    /// The inode of the file that it was bound to, its lower half, and the device's number.
    pub file: Option<(u32, u32)>,
    /// The inode of its peer, 0 for one that nobody has open.
    pub peer: Option<u32>,
    /// The inodes of those that wait to be accepted.
    pub waiting: Vec<u32>,
    /// Its name, as bytes.
    pub name: Vec<u8>,
    /// How many bytes are in its queue, if it does not listen.
    pub queued: u32,
    /// Bit 0 if it does not receive any more, bit 1 if it does not send.
    pub shutdown: u8,
}

/// The Unix sockets of a network namespace.
#[derive(Debug, Default)]
pub(super) struct Table {
    /// By their inodes.
    rows: BTreeMap<u32, Row>,
    /// Those that nobody has open.
    unopened: Vec<Row>,
}

impl Table {
    /// Ask; `socket` is one for that.
    pub fn read(socket: &OwnedFd) -> Result<Self, Error> {
        let io = |error: rustix::io::Errno| Error::io("ask for sockets")(error);
        send(socket, &request(), SendFlags::empty()).map_err(io)?;
        let mut table = Self::default();
        let mut bytes = vec![0; ANSWER_BYTES];
        loop {
            let (received, _) = recv(socket, &mut *bytes, RecvFlags::empty()).map_err(io)?;
            let mut rest = bytes.get(..received).unwrap_or_default();
            while let Some((kind, message, behind)) = message(rest) {
                match kind {
                    DONE => return Ok(table),
                    FAILED => {
                        let code = number(message, 0).unwrap_or(0).cast_signed();
                        let source = std::io::Error::from_raw_os_error(-code);
                        return Err(Error::Io { what: "ask for sockets".to_owned(), source });
                    }
                    _ => match row(message) {
                        Some((0, row)) => table.unopened.push(row),
                        found => table.rows.extend(found),
                    },
                }
                rest = behind;
            }
            let total = table.rows.len() + table.unopened.len();
            if received == 0 || total > MAX_SOCKETS_OF_NAMESPACE {
                return Err(Error::Host("there are too many sockets".to_owned()));
            }
        }
    }

    /// The socket with an inode.
    pub fn get(&self, inode: u64) -> Option<&Row> {
        self.rows.get(&u32::try_from(inode).ok()?)
    }

    /// Those that nobody has open: they wait to be accepted.
    pub fn unopened(&self) -> impl Iterator<Item = &Row> {
        self.unopened.iter()
    }

    /// All of them that somebody has open.
    pub fn rows(&self) -> impl Iterator<Item = &Row> {
        self.rows.values()
    }
}

/// A request for all Unix sockets.
fn request() -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend(40_u32.to_ne_bytes());
    bytes.extend(BY_FAMILY.to_ne_bytes());
    bytes.extend(REQUEST_ALL.to_ne_bytes());
    bytes.extend([0; 8]);
    // `struct unix_diag_req`: family, all states, no inode, what is wanted, no cookie.
    bytes.extend(u32::from(libc::AF_UNIX.unsigned_abs().to_le_bytes()[0]).to_le_bytes());
    bytes.extend(u32::MAX.to_ne_bytes());
    bytes.extend(0_u32.to_ne_bytes());
    bytes.extend(WANTED.to_ne_bytes());
    bytes.extend([0xff; 8]);
    bytes
}

/// The first message: its kind, what is in it, and what is behind it.
fn message(bytes: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let length = number(bytes, 0)? as usize;
    let kind = u16::from_ne_bytes([*bytes.get(4)?, *bytes.get(5)?]);
    let inside = bytes.get(HEADER_BYTES..length)?;
    Some((kind, inside, bytes.get(length.next_multiple_of(4)..).unwrap_or_default()))
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at + 4)?;
    Some(u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
}

/// A socket, and its inode.
fn row(message: &[u8]) -> Option<(u32, Row)> {
    let inode = number(message, 4)?;
    let mut row = Row { kind: *message.get(1)?, ..Row::default() };
    let listens = *message.get(2)? == LISTENS;
    let mut rest = message.get(SOCKET_BYTES..)?;
    while let (Some(&[low, high]), Some(&[kind, _])) = (rest.get(..2), rest.get(2..4)) {
        let length = usize::from(u16::from_ne_bytes([low, high]));
        let value = rest.get(4..length)?;
        match kind {
            0 => row.name = value.to_vec(),
            1 => row.file = Some((number(value, 0)?, number(value, 4)?)),
            2 => row.peer = number(value, 0),
            3 => {
                row.waiting = (0..value.len() / 4).filter_map(|at| number(value, 4 * at)).collect()
            }
            4 if listens => row.backlog = number(value, 4),
            4 => row.queued = number(value, 0)?,
            6 => row.shutdown = *value.first()?,
            _ => {}
        }
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Some((inode, row))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_parsed() {
        let mut bytes = vec![1, 1, 10, 0];
        bytes.extend(77_u32.to_ne_bytes());
        bytes.extend([0; 8]);
        let attributes: [(u16, &[u32]); 3] = [(1, &[5, 6]), (3, &[8, 9]), (4, &[2, 128])];
        for (kind, numbers) in attributes {
            bytes.extend((4 + 4 * numbers.len() as u16).to_ne_bytes());
            bytes.extend(kind.to_ne_bytes());
            bytes.extend(numbers.iter().flat_map(|number| number.to_ne_bytes()));
        }
        bytes.extend([5, 0, 6, 0, 3, 0, 0, 0]);
        let expected = Row {
            kind: 1,
            backlog: Some(128),
            file: Some((5, 6)),
            peer: None,
            name: Vec::new(),
            queued: 0,
            waiting: vec![8, 9],
            shutdown: 3,
        };
        assert_eq!(row(&bytes), Some((77, expected)));
        for cut in 0..bytes.len() {
            // Whatever is missing, nothing is made up, and nothing panics.
            let _ = row(&bytes[..cut]);
        }
        assert_eq!(message(&[200, 0, 0, 0, 3, 0]), None);
        let request = request();
        assert_eq!(request.len(), 40);
        assert!(
            message(&request).is_some_and(|(kind, inside, _)| kind == 20 && inside.len() == 24)
        );
    }
}
