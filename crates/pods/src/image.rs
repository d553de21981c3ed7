//! An image of a pod: its processes, its files, its names; and a pod made from one.
//!
//! What it is written from is frozen: processes, files and clocks are of one moment. The pipes to init that are the
//! first command's standard streams are *slots*: what takes their places at the restart is init's again, another one.
//!
//! An image grants nothing. It is parsed by another process ([`crate::reader`]) and checked ([`checkpoint::check`]),
//! its processes are made by the new pod's init in the new pod's namespaces, and its files by the superuser of the
//! new pod, in file systems of the pod's own.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use api::pod::{Checkpoint, Member, Record};
use checkpoint::pod::{Joined, Pod};
use checkpoint::{Error, Frozen, Given, Image, Restarted, Slots, Tracker, Writer};
use host::processes::identity::descriptor_of;
use protocol::Streams;
use rustix::fs::{Mode, OFlags, fcntl_getfl};
use rustix::io::ioctl_fionread;

use crate::limits::{DRAIN_PATIENCE, LOOK};
use crate::names::{Helper, Init, Traced, clocks};

/// The names of the slots that are a command's standard streams.
const STREAMS: [&str; 3] = ["input", "output", "errors"];

/// The name of the slot that is its terminal.
const TERMINAL: &str = "terminal";

/// An image to be written.
#[derive(Debug)]
pub struct Write {
    /// Where.
    pub file: File,
    /// How.
    pub how: Checkpoint,
    /// What the pod is.
    pub record: Record,
    /// Those of its first command.
    pub streams: Streams,
}

/// Writes down what a frozen pod is, besides its memory's pages that have been copied before. The tracker goes on if
/// increments are to come.
pub(crate) fn dump(
    pod: &Traced,
    frozen: &mut Frozen,
    write: &Write,
    writer: &mut Writer,
    tracker: &mut Tracker,
) -> Result<Dumped, String> {
    let init = pod.init().map_err(words)?;
    let mut slots = Slots::new();
    let pipes = pipes(&init).map_err(words)?;
    for (name, inode) in STREAMS.iter().zip(write.streams.pipes) {
        // Init may have closed it, because the command has.
        if let Some((number, _)) = pipes.iter().find(|(_, found)| *found == inode) {
            let end = open(&init, *number).map_err(words)?;
            slots.add(*name, &end).map_err(words)?;
        }
    }
    if let Some(terminal) = write.streams.terminal {
        let master = master(&init, terminal).map_err(words)?;
        slots.add_terminal(TERMINAL, &master).map_err(words)?;
    }
    let clocks = clocks::read(init.number).map_err(words)?;
    let goes_on = write.how.tracked || write.how.incremental;
    let state = frozen.dump_rest(writer, &slots, tracker, goes_on).map_err(|error| told(&error))?;
    let (helper, archive) = Helper::pack(&init, &pod.layers).map_err(words)?;
    let packed = writer.put_files(archive);
    helper.end().map_err(|why| format!("cannot write the pod's files down: {why}"))?;
    let files = packed.map_err(words)?;
    let record = &write.record;
    let pod = Pod {
        hostname: record.hostname.clone(),
        command: record.command.clone(),
        first: write.streams.process,
        root: record.root.clone(),
        is_writable: record.is_writable,
        terminal: write.streams.terminal,
        clocks,
        joined: record.network.as_ref().and_then(|network| network.member.clone()).map(joined),
    };
    Ok(Dumped { state, pod, files })
}

/// What a pod was in the moment in which it was frozen.
#[derive(Debug)]
pub(crate) struct Dumped {
    pub state: checkpoint::state::State,
    pub pod: Pod,
    /// Bytes of the archive of its files.
    pub files: u64,
}

/// Makes the files and processes of an image in a pod in which nobody is but init, with these streams. They do not
/// run.
pub(crate) fn restart(pod: &Traced, image: &Image, streams: &Streams) -> Result<Restarted, String> {
    let init = pod.init().map_err(|_| "the pod has ended".to_owned())?;
    let (helper, archive) = Helper::unpack(&init, &pod.layers).map_err(words)?;
    let copied = image.copy_files(archive);
    let ended = helper.end().map_err(|why| format!("cannot make the pod's files: {why}"));
    match copied {
        // If it has gone, it says why.
        Ok(()) | Err(Error::Io { .. }) => ended.and_then(|()| copied.map_err(words))?,
        Err(error) => return Err(words(error)),
    }
    let mut ends: Vec<(&str, OwnedFd)> = Vec::new();
    let pipes = pipes(&init).map_err(words)?;
    // Init has both ends: the command reads the first one and writes to the others.
    let modes = [OFlags::RDONLY, OFlags::WRONLY, OFlags::WRONLY];
    for ((name, inode), mode) in STREAMS.iter().zip(streams.pipes).zip(modes) {
        for (number, _) in pipes.iter().filter(|(_, found)| *found == inode) {
            let end = descriptor_of(&init.process, *number).map_err(words)?;
            if fcntl_getfl(&end).is_ok_and(|flags| flags & OFlags::ACCMODE == mode) {
                ends.push((name, end));
                break;
            }
        }
    }
    if let Some(terminal) = streams.terminal {
        let master = master(&init, terminal).map_err(words)?;
        ends.push((TERMINAL, master));
    }
    let given: Given<'_> = ends.iter().map(|(name, end)| (*name, end.as_fd())).collect();
    checkpoint::restart(init.number, image, &given).map_err(|error| told(&error))
}

/// The place of a pod in its network as an image has it.
fn joined(member: Member) -> Joined {
    let Member { network, address, lease, .. } = member;
    Joined { network: network.to_string(), address, lease }
}

/// Waits until init has taken what a frozen pod's first command has written to its streams: that is in no image.
pub(crate) fn drain(pod: &Traced, streams: &Streams) -> Result<(), String> {
    let init = pod.init().map_err(words)?;
    let outputs = &streams.pipes[1..];
    let ends =
        pipes(&init).map_err(words)?.into_iter().filter(|(_, inode)| outputs.contains(inode));
    let mut ends: Vec<_> =
        ends.filter_map(|(number, _)| descriptor_of(&init.process, number).ok()).collect();
    ends.extend(streams.terminal.and_then(|terminal| master(&init, terminal).ok()));
    let deadline = Instant::now() + DRAIN_PATIENCE;
    let is_full = |end: &OwnedFd| ioctl_fionread(end).is_ok_and(|bytes| bytes > 0);
    // Who reads may be slow, or not be there: then it is lost.
    while Instant::now() < deadline && ends.iter().any(is_full) {
        std::thread::sleep(LOOK);
    }
    Ok(())
}

/// An error for people.
pub(crate) fn words(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// The same, if it may be about a process, which is called what the pod calls it.
pub(crate) fn told(error: &Error) -> String {
    let Error::Unsupported { pid, what } = error else { return error.to_string() };
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let own = field("NSpid:").and_then(|numbers| numbers.split_whitespace().last());
    match (field("Name:"), own) {
        (Some(name), Some(own)) => {
            let name = spec::shown::line(name);
            format!("the pod cannot be checkpointed: its process {own} ({name}) {what}")
        }
        _ => error.to_string(),
    }
}

/// The numbers of init's descriptors.
fn numbers(init: &Init) -> io::Result<Vec<u32>> {
    let entries = std::fs::read_dir(format!("/proc/{}/fd", init.number))?;
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    Ok(names.filter_map(|name| name.parse().ok()).collect())
}

/// The master of a terminal, which init has.
fn master(init: &Init, terminal: u32) -> io::Result<OwnedFd> {
    let is_it = |number: &u32| {
        let path = format!("/proc/{}/fdinfo/{number}", init.number);
        let told = std::fs::read_to_string(path).unwrap_or_default();
        let index = told.lines().find_map(|line| line.strip_prefix("tty-index:"));
        index.and_then(|index| index.trim().parse().ok()) == Some(terminal)
    };
    let number = numbers(init)?.into_iter().find(is_it).ok_or(io::ErrorKind::NotFound)?;
    descriptor_of(&init.process, number)
}

/// The descriptors of init's that are pipes, with the pipes' inodes.
fn pipes(init: &Init) -> io::Result<Vec<(u32, u64)>> {
    let inode = |number: u32| {
        let link = std::fs::read_link(format!("/proc/{}/fd/{number}", init.number)).ok()?;
        let inode = link.to_str()?.strip_prefix("pipe:[")?.strip_suffix(']')?.parse().ok()?;
        Some((number, inode))
    };
    Ok(numbers(init)?.into_iter().filter_map(inode).collect())
}

/// A pipe of init's, which is not held open by this.
fn open(init: &Init, number: u32) -> rustix::io::Result<OwnedFd> {
    let path = format!("/proc/{}/fd/{number}", init.number);
    rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
}
