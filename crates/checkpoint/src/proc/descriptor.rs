//! /proc/PID/fd and /proc/PID/fdinfo: what a descriptor refers to.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};

use crate::error::Error;

/// The close-on-exec bit among the flags of fdinfo.
const CLOSE_ON_EXEC: u32 = libc::O_CLOEXEC.cast_unsigned();
/// `O_LARGEFILE` as the kernel has it: open(2) sets it always here, pipe(2) never, and it means nothing.
const LARGE_FILE: u32 = 0o100_000;

/// The bit of `O_TMPFILE` that `O_DIRECTORY` has not: how a file began says nothing about it.
const NAMELESS: u32 = (libc::O_TMPFILE & !libc::O_DIRECTORY).cast_unsigned();

/// What kind of file is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Regular,
    Directory,
    /// A character device, with its numbers.
    Device(u32, u32),
    Pipe,
    /// A named pipe.
    Fifo,
    Socket,
    /// Something without a file: see the link.
    Anonymous,
    Other,
}

/// A descriptor.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    pub number: u32,
    /// Where the link leads: a path, or `kind:[inode]`.
    pub link: String,
    pub kind: Kind,
    pub device: u64,
    pub inode: u64,
    /// Links that the file has; 0 if it was unlinked.
    pub links: u64,
    pub position: u64,
    /// `O_*` without the bits for close-on-exec and large files.
    pub flags: u32,
    pub close_on_exec: bool,
    /// The other lines of fdinfo.
    pub rest: Vec<(String, String)>,
}

impl Line {
    /// A line of fdinfo by its name.
    pub(crate) fn value(&self, name: &str) -> Option<&str> {
        self.rest.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }
}

/// The descriptors of a process, in order. Those that a running process closes meanwhile are left out.
pub(crate) fn read(pid: u32) -> Result<Vec<Line>, Error> {
    let lines = super::numbers(pid, "fd")?.into_iter().map(|number| read_one(pid, number));
    lines.filter(|line| !matches!(line, Err(Error::Gone(_)))).collect()
}

/// One descriptor of a process.
pub(crate) fn read_one(pid: u32, number: u32) -> Result<Line, Error> {
    let link = super::link(pid, &format!("fd/{number}"))?;
    let metadata = fs::metadata(format!("/proc/{pid}/fd/{number}"));
    let metadata = metadata.map_err(|source| match super::is_gone(pid, &source) {
        true => Error::Gone(pid),
        false => Error::io(format!("look at descriptor {number} of process {pid}"))(source),
    })?;
    let text = super::read(pid, &format!("fdinfo/{number}"))?;
    let split = |line: &str| {
        let (name, value) = line.split_once(':')?;
        Some((name.to_owned(), value.trim().to_owned()))
    };
    let rest: Vec<(String, String)> = text.lines().filter_map(split).collect();
    let mut line = Line {
        number,
        kind: kind(&metadata, &link),
        link,
        device: metadata.dev(),
        inode: metadata.ino(),
        links: metadata.nlink(),
        position: 0,
        flags: 0,
        close_on_exec: false,
        rest,
    };
    line.position = line.value("pos").and_then(|value| value.parse().ok()).unwrap_or(0);
    let flags = line.value("flags").and_then(|value| u32::from_str_radix(value, 8).ok());
    let flags = flags.ok_or(Error::Gone(pid))?;
    line.flags = flags & !(CLOSE_ON_EXEC | LARGE_FILE);
    if line.flags & NAMELESS != 0 {
        line.flags &= !libc::O_TMPFILE.cast_unsigned();
    }
    line.close_on_exec = flags & CLOSE_ON_EXEC != 0;
    Ok(line)
}

fn kind(metadata: &fs::Metadata, link: &str) -> Kind {
    let kind = metadata.file_type();
    match () {
        () if link.starts_with("anon_inode:") => Kind::Anonymous,
        () if kind.is_file() => Kind::Regular,
        () if kind.is_dir() => Kind::Directory,
        () if kind.is_socket() => Kind::Socket,
        () if kind.is_fifo() && link.starts_with("pipe:") => Kind::Pipe,
        () if kind.is_fifo() => Kind::Fifo,
        () if kind.is_char_device() => {
            let device = metadata.rdev();
            Kind::Device(rustix::fs::major(device), rustix::fs::minor(device))
        }
        () => Kind::Other,
    }
}
