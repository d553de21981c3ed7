//! Open file descriptions: which descriptors have the same one, and what it is.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

use host::processes::identity::{self, Shared};
use rustix::fs::OFlags;
use rustix::pipe::fcntl_getpipe_size;

use super::anonymous::{self, Holder};
use super::found::Found;
use super::named_pipes::NamedPipes;
use super::objects::Objects;
use super::pipes::{copy, has_ended};
use super::posix_queues::Queues;
use super::sockets::Sockets;
use super::terminals::{self, Terminals};
use super::{Names, input, locks, pidfds};
use crate::error::Error;
use crate::freeze::Frozen;
use crate::limits::{MAX_DESCRIPTIONS, MAX_PIPE_BYTES};
use crate::proc::descriptor::{self, Kind, Line};
use crate::refuse;
use crate::slots::Slots;
use crate::state::{Bytes, Description, Descriptor, InputSignal, Lock, OpenFile, Pipe};

/// What the processes have open.
#[derive(Default)]
pub(super) struct Collected {
    /// By the host's numbers of processes.
    pub descriptors: BTreeMap<u32, Vec<Descriptor>>,
    pub descriptions: Vec<Description>,
    pub locks: Vec<Lock>,
    pub input_signals: Vec<InputSignal>,
    /// Pipes and sockets, which are not looked at yet.
    pub pipes: Pipes,
    /// Of each description a process that has it, its descriptor, device and inode.
    pub known: Vec<(u32, u32, (u64, u64))>,
}

pub(super) fn collect(
    frozen: &Frozen,
    names: &Names,
    objects: &mut Objects,
    (slots, queues): (&Slots, Queues),
) -> Result<Collected, Error> {
    private_tables(frozen)?;
    let mut found = Vec::new();
    for &pid in frozen.processes.keys() {
        let lines = descriptor::read(pid)?;
        found.extend(lines.into_iter().map(|line| Found { pid, own: names.own(pid), line }));
    }
    if found.len() > MAX_DESCRIPTIONS {
        return Err(Error::Host(format!("more than {MAX_DESCRIPTIONS} descriptors are open")));
    }
    let mut groups = group(found)?;
    // The order says nothing of the kernel: by the first descriptor.
    groups.sort_by_key(|group| (group[0].own, group[0].line.number));
    let mut collected = Collected::default();
    collected.pipes.queues = queues;
    for group in groups {
        let Found { pid, line, .. } = &group[0];
        let index = collected.descriptions.len();
        let description = match pidfds::describe(&group, frozen, names)? {
            Some(description) => description,
            None => collected.pipes.describe(&group, (index, *pid), objects, slots)?,
        };
        locks::find(&group, index, &mut collected.locks)?;
        collected.input_signals.extend(input::find(&group, index, frozen, names)?);
        collected.descriptions.push(description);
        collected.known.push((*pid, line.number, (line.device, line.inode)));
        for Found { pid, line, .. } in group {
            let descriptor = Descriptor {
                number: line.number,
                description: index,
                close_on_exec: line.close_on_exec,
            };
            collected.descriptors.entry(pid).or_default().push(descriptor);
        }
    }
    for descriptors in collected.descriptors.values_mut() {
        descriptors.sort_by_key(|descriptor| descriptor.number);
    }
    Ok(collected)
}

/// Refuse tasks that share what processes usually have for themselves, or threads that do not share it.
fn private_tables(frozen: &Frozen) -> Result<(), Error> {
    for (&pid, threads) in &frozen.processes {
        for &thread in threads.iter().filter(|thread| **thread != pid) {
            for what in [Shared::Descriptors, Shared::Directories] {
                let order =
                    identity::compare(pid, thread, what).map_err(Error::io("compare tasks"))?;
                if order != Ordering::Equal {
                    return Err(Error::unsupported(pid, "has threads that do not share its files"));
                }
            }
        }
    }
    for what in [Shared::Memory, Shared::Descriptors, Shared::Directories, Shared::Actions] {
        let pids: Vec<u32> = frozen.processes.keys().copied().collect();
        let pids = sort(pids, |one, other| identity::compare(*one, *other, what))?;
        for pair in pids.windows(2) {
            let order = identity::compare(pair[0], pair[1], what);
            if order.map_err(Error::io("compare tasks"))? == Ordering::Equal {
                let what = format!("shares its {what:?} with process {}", pair[1]);
                return Err(Error::unsupported(pair[0], what.to_lowercase()));
            }
        }
    }
    Ok(())
}

/// Sort by an order that may fail.
fn sort<T>(
    mut list: Vec<T>,
    compare: impl Fn(&T, &T) -> std::io::Result<Ordering>,
) -> Result<Vec<T>, Error> {
    let mut failure = None;
    list.sort_by(|one, other| {
        compare(one, other).unwrap_or_else(|error| {
            failure.get_or_insert(error);
            Ordering::Equal
        })
    });
    match failure {
        None => Ok(list),
        Some(source) => Err(Error::Io { what: "compare tasks (kcmp(2))".to_owned(), source }),
    }
}

/// Descriptors of the same description together, the first by number first.
fn group(found: Vec<Found>) -> Result<Vec<Vec<Found>>, Error> {
    let compare = |one: &Found, other: &Found| {
        identity::compare_files((one.pid, one.line.number), (other.pid, other.line.number))
    };
    let mut groups: Vec<Vec<Found>> = Vec::new();
    for found in sort(found, compare)? {
        let last = groups.last_mut();
        let is_same = match &last {
            Some(group) => {
                let order = compare(&group[0], &found);
                order.map_err(Error::io("compare descriptors"))? == Ordering::Equal
            }
            None => false,
        };
        match last.filter(|_| is_same) {
            Some(group) => group.push(found),
            None => groups.push(vec![found]),
        }
    }
    for group in &mut groups {
        group.sort_by_key(|found| (found.own, found.line.number));
    }
    Ok(groups)
}

/// The pipes that were found so far.
#[derive(Default)]
pub(super) struct Pipes {
    /// By inode: its place.
    places: BTreeMap<u64, usize>,
    /// Of each: whose, a descriptor of ours for either end, whether it was an end to read from and one to write to.
    ends: Vec<(u32, OwnedFd, [bool; 2])>,
    /// Named pipes, which are kept elsewhere.
    pub named: NamedPipes,
    /// And so are sockets.
    pub sockets: Sockets,
    /// And terminals.
    pub terminals: Terminals,
    /// And message queues.
    pub queues: Queues,
}

impl Pipes {
    /// What those refer to; `root` is a process in whose root the names of files are.
    pub fn describe(
        &mut self,
        group: &[Found],
        (index, root): (usize, u32),
        objects: &mut Objects,
        slots: &Slots,
    ) -> Result<Description, Error> {
        let Found { pid, line, .. } = &group[0];
        let holder =
            |found: &Found| Holder { pid: found.pid, own: found.own, number: found.line.number };
        let holders = || group.iter().map(holder);
        if let Some(name) = slots.find((line.device, line.inode)) {
            let file = OpenFile::Slot { name: name.to_owned() };
            return Ok(Description { flags: line.flags, file });
        }
        let queue = match line.kind {
            Kind::Regular => self.queues.open(*pid, line)?,
            _ => None,
        };
        if let Some(file) = queue {
            return Ok(Description { flags: line.flags, file });
        }
        let file = match line.kind {
            // It stands for a name, whatever that leads to.
            _ if line.flags & libc::O_PATH.cast_unsigned() != 0 => path(root, line)?,
            Kind::Regular if line.links == 0 => {
                OpenFile::Object { index: objects.open(*pid, root, line)?, position: line.position }
            }
            Kind::Device(major, minor) => match terminals::end(major, minor) {
                Some(end) => self.terminals.open(*pid, line, end)?,
                None => path(root, line)?,
            },
            Kind::Regular | Kind::Directory => path(root, line)?,
            Kind::Pipe => self.pipe(*pid, line)?,
            Kind::Anonymous => anonymous::describe(*pid, line, holders())?,
            Kind::Fifo => self.named.open(*pid, line, index)?,
            Kind::Socket => OpenFile::Socket { index: self.sockets.open(*pid, root, line)? },
            Kind::Other => {
                return Err(Error::unsupported(*pid, format!("has {} open", line.link)));
            }
        };
        // Who asks for signals does so again.
        Ok(Description { flags: line.flags & !libc::O_ASYNC.cast_unsigned(), file })
    }

    fn pipe(&mut self, pid: u32, line: &Line) -> Result<OpenFile, Error> {
        let mode = line.flags & libc::O_ACCMODE.cast_unsigned();
        let special = (libc::O_DIRECT).cast_unsigned();
        if mode > 1 || line.flags & special != 0 {
            return Err(Error::unsupported(
                pid,
                format!("has a pipe of packets, or both its ends in one ({})", line.link),
            ));
        }
        let writes = mode == 1;
        let index = match self.places.get(&line.inode) {
            Some(&index) => index,
            None => {
                let process = identity::open_process(pid).map_err(Error::io("open a process"))?;
                let end = identity::descriptor_of(&process, line.number);
                let end = end.map_err(Error::io(format!("take {} of process {pid}", line.link)))?;
                self.ends.push((pid, end, [false; 2]));
                self.places.insert(line.inode, self.ends.len() - 1);
                self.ends.len() - 1
            }
        };
        self.ends[index].2[usize::from(writes)] = true;
        Ok(OpenFile::Pipe { index, writes })
    }

    /// Look at the pipes.
    pub fn finish(self) -> Result<Vec<Pipe>, Error> {
        self.ends.into_iter().map(|(pid, end, ends)| content(pid, &end, ends)).collect()
    }
}

/// A file that has a name.
fn path(pid: u32, line: &Line) -> Result<OpenFile, Error> {
    let is_there = line.links > 0 && refuse::names(pid, &line.link, line.inode);
    if !is_there {
        let what = format!("has {} open, which has no name any more", line.link);
        return Err(Error::unsupported(pid, what));
    }
    Ok(OpenFile::Path { path: line.link.clone(), position: line.position })
}

/// What is in a pipe, without taking it out; `end` is either of its ends, `ends` says which of them the tree has.
fn content(pid: u32, end: &OwnedFd, ends: [bool; 2]) -> Result<Pipe, Error> {
    if ends != [true; 2] && !has_ended(end)? {
        return Err(Error::unsupported(pid, "has a pipe whose other end is not in the tree"));
    }
    let capacity = fcntl_getpipe_size(end).map_err(Error::io("ask for a pipe's size"))?;
    if capacity > MAX_PIPE_BYTES {
        return Err(Error::unsupported(pid, "has a pipe that is too large"));
    }
    // An end to read from that nobody else has: where the tree has only the other, nobody can ever read.
    let content = match ends[0] {
        true => {
            let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(end));
            let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let source = rustix::fs::open(path, flags, rustix::fs::Mode::empty());
            copy(&source.map_err(Error::io("open a pipe"))?, capacity)?
        }
        false => Vec::new(),
    };
    Ok(Pipe { capacity: capacity as u64, content: Bytes(content) })
}
