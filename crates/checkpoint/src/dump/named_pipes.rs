//! Named pipes that are open.
//!
//! As with other pipes, each end must be in the tree, or nowhere. A named pipe has one difficulty more: an end to read
//! from that was opened before anybody has opened one to write to does not say so; it looks as if there were a writer.
//! If the pipe is empty, copying from it tells the two apart.

use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, OwnedFd};

use host::processes::identity;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_getpipe_size, pipe_with, tee};

use super::pipes::{copy, has_ended};
use crate::error::Error;
use crate::limits::MAX_PIPE_BYTES;
use crate::proc::descriptor::Line;
use crate::refuse;
use crate::state::{Bytes, Description, NamedPipe, OpenFile};

/// An end.
struct End {
    /// A descriptor of ours for it.
    file: OwnedFd,
    /// The place of its description.
    description: usize,
    /// `O_RDONLY`, `O_WRONLY` or `O_RDWR`.
    mode: u32,
}

struct Entry {
    pid: u32,
    path: String,
    ends: Vec<End>,
}

/// Those that were found so far.
#[derive(Default)]
pub(super) struct NamedPipes {
    /// By device and inode: its place.
    places: BTreeMap<(u64, u64), usize>,
    entries: Vec<Entry>,
}

impl NamedPipes {
    /// An end, which is to be a description at the place `description`.
    pub fn open(&mut self, pid: u32, line: &Line, description: usize) -> Result<OpenFile, Error> {
        let path = &line.link;
        if line.links == 0 || !refuse::names(pid, path, line.inode) {
            let what = format!("has the named pipe {path} open, which has no name any more");
            return Err(Error::unsupported(pid, what));
        }
        if line.flags & (libc::O_DIRECT | libc::O_PATH).cast_unsigned() != 0 {
            let what = format!("has the named pipe {path} open for packets, or for its path");
            return Err(Error::unsupported(pid, what));
        }
        let process = identity::open_process(pid).map_err(Error::io("open a process"))?;
        let file = identity::descriptor_of(&process, line.number);
        let file = file.map_err(Error::io(format!("take {path} of process {pid}")))?;
        let mode = line.flags & libc::O_ACCMODE.cast_unsigned();
        let index = *self.places.entry((line.device, line.inode)).or_insert_with(|| {
            self.entries.push(Entry { pid, path: path.clone(), ends: Vec::new() });
            self.entries.len() - 1
        });
        self.entries[index].ends.push(End { file, description, mode });
        Ok(OpenFile::NamedPipe { index, waits: false })
    }

    /// When all are found: what is in them, and which descriptions wait for somebody to write.
    pub fn finish(self, descriptions: &mut [Description]) -> Result<Vec<NamedPipe>, Error> {
        let mut pipes = Vec::new();
        for entry in self.entries {
            for description in waiting(&entry)? {
                if let OpenFile::NamedPipe { waits, .. } = &mut descriptions[description].file {
                    *waits = true;
                }
            }
            pipes.push(content(entry)?);
        }
        Ok(pipes)
    }
}

/// The descriptions that nobody has begun to write to. Refuses where somebody has who is not in the tree.
fn waiting(entry: &Entry) -> Result<Vec<usize>, Error> {
    let is_for = |end: &&End, other: i32| end.mode != other.cast_unsigned();
    let mut readers = entry.ends.iter().filter(|end| is_for(end, libc::O_WRONLY));
    let mut writers = entry.ends.iter().filter(|end| is_for(end, libc::O_RDONLY));
    let elsewhere = || {
        let what = format!("has {} open, whose other end is not in the tree", entry.path);
        Error::unsupported(entry.pid, what)
    };
    let mut waiting = Vec::new();
    match (readers.clone().next(), writers.next()) {
        (Some(_), Some(_)) | (None, None) => {}
        (None, Some(writer)) if has_ended(&writer.file)? => {}
        (None, Some(_)) => return Err(elsewhere()),
        (Some(_), None) => {
            for reader in readers.by_ref() {
                if has_ended(&reader.file)? {
                    continue;
                }
                if !is_empty_and_unwritten(reader)? {
                    return Err(elsewhere());
                }
                waiting.push(reader.description);
            }
        }
    }
    Ok(waiting)
}

/// Whether nothing is in a pipe, and nobody could write to it.
fn is_empty_and_unwritten(reader: &End) -> Result<bool, Error> {
    let (_read, write) = pipe_with(PipeFlags::CLOEXEC).map_err(Error::io("make a pipe"))?;
    match tee(&reader.file, &write, 1, SpliceFlags::NONBLOCK) {
        Ok(copied) => Ok(copied == 0),
        Err(Errno::AGAIN) => Ok(false),
        Err(error) => Err(Error::io("look at a named pipe")(error)),
    }
}

fn content(entry: Entry) -> Result<NamedPipe, Error> {
    let Entry { pid, path, ends } = entry;
    let reader = ends.iter().find(|end| end.mode != libc::O_WRONLY.cast_unsigned());
    let opened;
    let source = match (reader, ends.first()) {
        (Some(reader), _) => &reader.file,
        // Somebody may come to read what is in it.
        (None, Some(writer)) => {
            let own = format!("/proc/self/fd/{}", writer.file.as_raw_fd());
            let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
            opened = rustix::fs::open(own, flags, Mode::empty());
            opened.as_ref().map_err(|error| Error::io("open a named pipe")(*error))?
        }
        (None, None) => return Err(Error::Gone(pid)),
    };
    let capacity = fcntl_getpipe_size(source).map_err(Error::io("ask for a pipe's size"))?;
    if capacity > MAX_PIPE_BYTES {
        return Err(Error::unsupported(pid, format!("has the named pipe {path}: it is too large")));
    }
    let content = Bytes(copy(source, capacity)?);
    Ok(NamedPipe { path, capacity: capacity as u64, content })
}
