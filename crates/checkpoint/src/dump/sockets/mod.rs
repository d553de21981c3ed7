//! Sockets: through descriptors of ours that are the processes' own (pidfd_getfd(2)), which disturbs nothing: what is
//! in a queue is peeked at.
//!
//! What only the kernel knows, who is connected with whom, it tells over a socket of the processes' own network
//! namespace, which one of them makes for us (`diagnosis`). A process also tells itself who is at the other end of its
//! sockets: the numbers of processes and users are those of its namespaces.
//!
//! *In flight.* A message may hold descriptors, of files that nobody else has open, sockets with queues of their own
//! among them. So queues are looked at one after the other, while each may add to the descriptions and to the
//! sockets.

mod address;
mod answers;
mod ask;
mod datagrams;
mod diagnosis;
mod entry;
mod groups;
mod inet;
mod options;
mod queue;
mod tcp;
mod unaccepted;
mod unix;
mod waiting;

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

use host::processes::identity;
use rustix::net::{AddressFamily, SocketType, sockopt};

use self::answers::Answers;
use self::entry::Entry;
use self::groups::Groups;
use super::Names;
use crate::credentials;
use crate::error::Error;
use crate::limits::MAX_MESSAGE_BYTES;
use crate::proc::descriptor::Line;
use crate::repair::Repaired;
use crate::state::Bytes;
use crate::state::sockets::{Message, Protocol, Socket, Who};

pub(super) use self::queue::{Arrived, peek};

/// The sockets that were found so far.
#[derive(Default)]
pub(super) struct Sockets {
    pub entries: Vec<Entry>,
}

impl Sockets {
    /// A socket that `holder` has open; its place. If that is none of the processes but we, it is in flight to one that
    /// has the names of `root`.
    pub fn open(&mut self, holder: u32, root: u32, line: &Line) -> Result<usize, Error> {
        let process = identity::open_process(holder).map_err(Error::io("open a process"))?;
        let socket = identity::descriptor_of(&process, line.number);
        let socket = socket.map_err(Error::io(format!("take {} of process {root}", line.link)))?;
        self.add(root, (holder == root).then_some(line.number), line.inode, socket)
    }

    fn add(
        &mut self,
        pid: u32,
        number: Option<u32>,
        inode: u64,
        socket: OwnedFd,
    ) -> Result<usize, Error> {
        let family = sockopt::socket_domain(&socket);
        let family = family.map_err(Error::io("look at a socket"))?;
        if ![AddressFamily::UNIX, AddressFamily::INET, AddressFamily::INET6].contains(&family) {
            let what = format!("has a socket of family {}", family.as_raw());
            return Err(Error::unsupported(pid, what));
        }
        self.entries.push(Entry { pid, number, inode, socket, family });
        Ok(self.entries.len() - 1)
    }

    /// Write them down; `queues` has what was peeked, by place.
    /// Connections that are in repair then are in `repaired`.
    pub fn finish(
        self,
        queues: Vec<Vec<Message>>,
        repaired: &mut Repaired,
    ) -> Result<Vec<Socket>, Error> {
        if self.entries.is_empty() {
            return Ok(Vec::new());
        }
        let mut by_process: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for entry in &self.entries {
            by_process.entry(entry.pid).or_default().extend(entry.number);
        }
        let mut answers = Answers::default();
        for (pid, numbers) in by_process {
            answers.ask(pid, &numbers)?;
        }
        let unix = self.entries.iter().filter(|entry| entry.family == AddressFamily::UNIX);
        let table = answers.table(&unix.map(|entry| entry.inode).collect::<Vec<_>>())?;
        let unix = unix::Described::new(&self.entries, &table, &answers);
        let all_options = self.entries.iter().map(options::read).collect::<Result<Vec<_>, _>>()?;
        let others = self.entries.iter().filter(|entry| entry.family != AddressFamily::UNIX);
        inet::begin(repaired, others)?;
        let mut sending = Vec::new();
        for entry in &self.entries {
            sending.push(match entry.family {
                AddressFamily::UNIX => None,
                _ => inet::sending(entry)?,
            });
        }
        let groups = Groups::read(self.entries[0].pid)?;
        let mut sockets = Vec::new();
        for ((index, entry), (queue, options)) in
            self.entries.iter().enumerate().zip(queues.into_iter().zip(all_options))
        {
            let mut options = options;
            let protocol = match entry.family {
                AddressFamily::UNIX => Protocol::Unix(unix.describe(index, queue)?),
                family => {
                    let is_six = family == AddressFamily::INET6;
                    let mut inet = inet::describe(entry, is_six, sending[index].take())?;
                    inet.groups = groups.of(entry)?;
                    options.retain(|option| options::is_meant(&inet, option));
                    Protocol::Inet(inet)
                }
            };
            sockets.push(Socket { options, protocol });
        }
        waiting::find(&self.entries, &mut sockets)?;
        inet::acknowledge(&mut sockets);
        Ok(sockets)
    }
}

/// A message as an image has it; of a stream perhaps several. `files` are the descriptions that go with it.
pub(super) fn messages(
    entry: &Entry,
    names: &Names,
    arrived: Arrived,
    files: Vec<usize>,
) -> Result<Vec<Message>, Error> {
    let kind = sockopt::socket_type(&entry.socket);
    let kind = kind.map_err(Error::io("look at a socket"))?;
    let from = match kind {
        SocketType::DGRAM => unix::plain_name(entry.pid, &unix::behind_family(arrived.from))?,
        _ => None,
    };
    let by = arrived.by.map(|by| who(entry, names, by, arrived.offset)).transpose()?;
    let is_plain = by.is_none() && files.is_empty();
    if is_plain || arrived.bytes.len() <= MAX_MESSAGE_BYTES {
        return Ok(vec![Message { bytes: Bytes(arrived.bytes), from, by, files }]);
    }
    if kind != SocketType::STREAM {
        return Err(Error::unsupported(entry.pid, "has a socket with a message that is too long"));
    }
    let mut files = Some(files);
    let pieces = arrived.bytes.chunks(MAX_MESSAGE_BYTES).map(|piece| Message {
        bytes: piece.into(),
        from: None,
        by: by.clone(),
        files: files.take().unwrap_or_default(),
    });
    Ok(pieces.collect())
}

/// Who has sent a message, as its receiver is told.
fn who(
    entry: &Entry,
    names: &Names,
    [number, user, group]: [u32; 3],
    offset: usize,
) -> Result<Who, Error> {
    let [user, group] = credentials::inside(entry.pid, [user, group])?;
    let pid = match names.own(number) {
        // It is no more, or is not in the tree.
        0 => queue::sender(entry, offset)?,
        own => own,
    };
    Ok(Who { pid, user, group })
}
