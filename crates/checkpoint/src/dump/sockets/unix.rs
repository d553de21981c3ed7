//! Unix sockets: their names, whom they are connected with, and who waits to be accepted.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};

use host::processes::sockets::{Count, End, address, count};

use super::answers::Answers;
use super::diagnosis::{Row, Table};
use super::entry::Entry;
use crate::credentials;
use crate::error::Error;
use crate::proc;
use crate::state::sockets::{Message, Unix, UnixFile, UnixKind, UnixName, UnixRole, Who};

/// What is in the queue of a connection that was not accepted yet is where nobody can look at it.
const SENT_BEFORE: &str = "has sent something over a Unix socket that was not accepted yet";

/// What is known of the sockets of a tree.
pub(super) struct Described<'a> {
    entries: &'a [Entry],
    table: &'a Table,
    answers: &'a Answers,
    /// The places of the entries, by their inodes.
    places: BTreeMap<u64, usize>,
    /// Inodes of those that wait to be accepted anywhere.
    waiting: Vec<u32>,
    /// The files that lead to a socket that listens.
    listening: Vec<(u32, u32)>,
}

impl<'a> Described<'a> {
    pub fn new(entries: &'a [Entry], table: &'a Table, answers: &'a Answers) -> Self {
        let places = entries.iter().enumerate().map(|(place, entry)| (entry.inode, place));
        let listening = table.rows().filter(|row| row.backlog.is_some());
        Self {
            entries,
            table,
            answers,
            places: places.collect(),
            waiting: table.rows().flat_map(|row| row.waiting.clone()).collect(),
            listening: listening.filter_map(|row| row.file).collect(),
        }
    }

    /// The socket at a place.
    pub fn describe(&self, place: usize, queue: Vec<Message>) -> Result<Unix, Error> {
        let entry = &self.entries[place];
        let row = self.table.get(entry.inode);
        let row = row.ok_or_else(|| {
            Error::unsupported(entry.pid, "has a socket of another network namespace")
        })?;
        let kind = match i32::from(row.kind) {
            libc::SOCK_STREAM => UnixKind::Stream,
            libc::SOCK_DGRAM => UnixKind::Datagrams,
            libc::SOCK_SEQPACKET => UnixKind::Packets,
            _ => return Err(Error::unsupported(entry.pid, "has a socket of an unknown kind")),
        };
        let name = self.name(entry, row)?;
        let role = self.role(entry, row)?;
        let peer_is =
            entry.number.and_then(|number| self.answers.peers.get(&(entry.pid, number)).cloned());
        Ok(Unix { kind, name, role, shutdown: row.shutdown & 3, queue, peer_is })
    }

    fn role(&self, entry: &Entry, row: &Row) -> Result<UnixRole, Error> {
        if let Some(backlog) = row.backlog {
            let waiting = row.waiting.iter().map(|inode| self.who_waits(entry, *inode));
            let waiting = waiting.collect::<Result<_, _>>()?;
            return Ok(UnixRole::Listens { backlog, waiting });
        }
        if self.waiting.iter().any(|inode| u64::from(*inode) == entry.inode) {
            return self.waits(entry);
        }
        match row.peer {
            None => Ok(UnixRole::Idle),
            Some(0) => {
                let name = plain_name(entry.pid, &peer_name(entry))?;
                Ok(UnixRole::Left { name, reset: entry.has_error()? })
            }
            Some(inode) => match self.places.get(&inode.into()) {
                Some(&peer) => Ok(UnixRole::Connected { peer }),
                None => Err(Error::unsupported(entry.pid, self.outside(entry))),
            },
        }
    }

    /// The socket that waits at one that listens; none if it was closed.
    fn who_waits(&self, entry: &Entry, inode: u32) -> Result<Option<usize>, Error> {
        if inode != 0 {
            let what = "has a Unix socket at which one outside of the tree waits";
            let place = self.places.get(&inode.into()).copied();
            return place.map(Some).ok_or_else(|| Error::unsupported(entry.pid, what));
        }
        let own = self.table.get(entry.inode);
        let is_here =
            |row: &&Row| own.is_some_and(|own| (own.kind, &own.name) == (row.kind, &row.name));
        match self.table.unopened().filter(is_here).any(|row| row.queued > 0) {
            true => Err(Error::unsupported(entry.pid, SENT_BEFORE)),
            false => Ok(None),
        }
    }

    /// One that waits to be accepted. What it has sent already is where nobody can look at it.
    fn waits(&self, entry: &Entry) -> Result<UnixRole, Error> {
        let listens_here = self.entries.iter().any(|other| {
            let row = self.table.get(other.inode);
            row.is_some_and(|row| row.waiting.iter().any(|one| u64::from(*one) == entry.inode))
        });
        if !listens_here {
            return Err(Error::unsupported(entry.pid, self.outside(entry)));
        }
        let sent = count(&entry.socket, Count::Sent);
        if sent.map_err(Error::io("ask what a socket has sent"))? > 0 {
            return Err(Error::unsupported(entry.pid, SENT_BEFORE));
        }
        let by = self.answers.selves.get(&entry.pid).cloned();
        Ok(UnixRole::Waits { by: by.unwrap_or(Who { pid: 0, user: 0, group: 0 }) })
    }

    /// What to say of one that is connected with a socket outside of the tree.
    fn outside(&self, entry: &Entry) -> String {
        let name = peer_name(entry);
        let name = match name.as_slice() {
            [] => "one without a name".to_owned(),
            [0, name @ ..] => format!("@{}", String::from_utf8_lossy(name)),
            path => String::from_utf8_lossy(path).trim_end_matches('\0').to_owned(),
        };
        format!("has a Unix socket whose other end is not in the tree: {name}")
    }

    /// The name of a socket, and the file that leads to it.
    fn name(&self, entry: &Entry, row: &Row) -> Result<Option<UnixName>, Error> {
        let address = address(&entry.socket, End::Own).map_err(Error::io("ask for a name"))?;
        let Some(mut name) = plain_name(entry.pid, &behind_family(address))? else {
            return Ok(None);
        };
        let UnixName::Path { path, directory, file } = &mut name else { return Ok(Some(name)) };
        // One that was accepted has the name of the one that listens, and its file leads to that.
        let is_accepted = |row: &Row| {
            row.backlog.is_none()
                && i32::from(row.kind) != libc::SOCK_DGRAM
                && row.file.is_some_and(|file| self.listening.contains(&file))
        };
        if !is_accepted(row) {
            let start = directory.as_deref().map_or(String::new(), |start| format!("{start}/"));
            let full = format!("/proc/{}/root{start}{path}", entry.pid);
            let found = fs::symlink_metadata(full).ok().filter(|found| {
                // The kernel tells the lower half of the inode.
                let inode = (found.ino() & 0xffff_ffff) as u32;
                found.file_type().is_socket() && row.file.is_some_and(|file| file.0 == inode)
            });
            if let Some(found) = found {
                let [user, group] = credentials::inside(entry.pid, [found.uid(), found.gid()])?;
                *file = Some(UnixFile { mode: found.mode() & 0o7777, user, group });
            }
        }
        Ok(Some(name))
    }
}

/// The name of the socket that one is connected with.
fn peer_name(entry: &Entry) -> Vec<u8> {
    address(&entry.socket, End::Peer).map(behind_family).unwrap_or_default()
}

/// What of an address is the name.
pub(super) fn behind_family(mut address: Vec<u8>) -> Vec<u8> {
    address.drain(..address.len().min(2));
    address
}

/// The name that those bytes are, without the file that may lead to it. A relative one began in the working directory
/// of the process, as far as anybody knows.
pub(super) fn plain_name(pid: u32, name: &[u8]) -> Result<Option<UnixName>, Error> {
    let path = match name {
        [] => return Ok(None),
        [0, name @ ..] => return Ok(Some(UnixName::Abstract(name.into()))),
        path => path.split(|byte| *byte == 0).next().unwrap_or_default(),
    };
    let path = String::from_utf8(path.to_vec())
        .map_err(|_| Error::unsupported(pid, "has a socket whose name is no UTF-8"))?;
    let directory = match path.starts_with('/') {
        true => None,
        false => Some(proc::link(pid, "cwd")?),
    };
    Ok(Some(UnixName::Path { path, directory, file: None }))
}
