//! POSIX message queues: those of the namespace that the processes have to themselves, and those that are open and have
//! no name any more.
//!
//! Nobody may look at a message without taking it. So all are taken, and sent again in the same order; nobody runs
//! meanwhile, and who waits for a message, or for room, begins anew when it goes on. Whoever kills the tracer in that
//! moment kills the processes as well.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

use host::processes::identity::{descriptor_of, open_process};
use host::processes::message_queues::{attributes, receive, send};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl, statfs};

use super::answer::expect;
use crate::borrow::borrow;
use crate::error::Error;
use crate::freeze::Frozen;
use crate::limits::{MAX_MESSAGES, MAX_POSIX_QUEUES, MAX_QUEUE_MESSAGE_BYTES, MAX_SOCKET_BYTES};
use crate::proc;
use crate::proc::descriptor::Line;
use crate::state::{Bytes, OpenFile, PosixQueue};

/// The magic number of their file system (linux/magic.h).
const MAGIC: i64 = 0x1980_0202;
/// Who may use a file.
const RIGHTS: u32 = 0o777;
/// Those that were found so far.
#[derive(Default)]
pub(super) struct Queues {
    /// Device and inode of each.
    numbers: Vec<(u64, u64)>,
    queues: Vec<PosixQueue>,
}

/// Those that have a name; none if the namespace is ours too.
pub(super) fn find(frozen: &Frozen) -> Result<Queues, Error> {
    let mut found = Queues::default();
    let Some(&pid) = frozen.roots.first() else { return Ok(found) };
    if proc::link(pid, "ns/ipc")? == proc::link(std::process::id(), "ns/ipc")? {
        return Ok(found);
    }
    let Some(place) = place(pid)? else { return Ok(found) };
    let entries = std::fs::read_dir(&place).map_err(Error::io("list message queues"))?;
    let mut names = Vec::new();
    for entry in entries {
        let name = entry.map_err(Error::io("list message queues"))?.file_name().into_string();
        names.push(name.map_err(|_| unsupported(pid, "?", "whose name is no text"))?);
    }
    if names.len() > MAX_POSIX_QUEUES {
        return Err(Error::Host("its namespace has too many message queues".to_owned()));
    }
    names.sort_unstable();
    for name in names {
        let metadata = std::fs::symlink_metadata(format!("{place}/{name}"));
        let metadata = metadata.map_err(Error::io(format!("look at the message queue {name}")))?;
        found.numbers.push((metadata.dev(), metadata.ino()));
        found.queues.push(describe(pid, Some(&name), &open(pid, &name)?)?);
    }
    Ok(found)
}

/// Where a process finds its queues as files, if it does (proc_pid_mountinfo(5)).
fn place(pid: u32) -> Result<Option<String>, Error> {
    let table = proc::read(pid, "mountinfo")?;
    let line = table.lines().find(|line| line.contains(" - mqueue "));
    let place = line.and_then(|line| line.split(' ').nth(4));
    Ok(place.map(|place| format!("/proc/{pid}/root{place}")))
}

fn unsupported(pid: u32, name: &str, what: &str) -> Error {
    Error::unsupported(pid, format!("has the POSIX message queue /{name}, {what}"))
}

/// A descriptor of ours of a queue, which a process opens for us. It does not block.
fn open(pid: u32, name: &str) -> Result<OwnedFd, Error> {
    let process = open_process(pid).map_err(Error::io("open a process"))?;
    borrow(pid, |seat, area| {
        let mut script = area.script();
        let text = script.string(name.as_bytes());
        let flags = (libc::O_RDWR | libc::O_NONBLOCK | libc::O_CLOEXEC).cast_unsigned().into();
        script.call(libc::SYS_mq_open, [text, flags, 0, 0]);
        let opened = seat.run(area, &script)?.results.first().copied().unwrap_or(-1);
        let number = expect(pid, &format!("open the message queue /{name}"), opened)?;
        let taken = descriptor_of(&process, u32::try_from(number).unwrap_or(u32::MAX));
        let mut script = area.script();
        script.call(libc::SYS_close, [number]);
        seat.run(area, &script)?;
        taken.map_err(Error::io(format!("take the message queue /{name}")))
    })
}

/// What a queue is and has. Its descriptor does not block.
fn describe(pid: u32, name: Option<&str>, queue: &OwnedFd) -> Result<PosixQueue, Error> {
    let shown = name.unwrap_or("(removed)");
    refuse_notified(pid, shown, queue)?;
    let what = format!("look at the message queue {shown}");
    let status = rustix::fs::fstat(queue).map_err(Error::io(&what))?;
    let [user, group] = crate::credentials::inside(pid, [status.st_uid, status.st_gid])?;
    let has = attributes(queue).map_err(Error::io(&what))?;
    let is_large = has.message_bytes > MAX_QUEUE_MESSAGE_BYTES as u64
        || has.messages > MAX_MESSAGES as u64
        || has.max_messages > MAX_MESSAGES as u64;
    if is_large {
        return Err(unsupported(pid, shown, "which is too large"));
    }
    let messages = messages(queue, has.message_bytes as usize).map_err(Error::io(&what))?;
    if messages.iter().map(|(_, message)| message.len()).sum::<usize>() > MAX_SOCKET_BYTES {
        return Err(unsupported(pid, shown, "which has too much in it"));
    }
    Ok(PosixQueue {
        name: name.map(str::to_owned),
        user,
        group,
        mode: status.st_mode & RIGHTS,
        max_messages: has.max_messages,
        message_bytes: has.message_bytes,
        messages,
    })
}

/// Who is told of a message is told once, and nobody says how.
fn refuse_notified(pid: u32, name: &str, queue: &OwnedFd) -> Result<(), Error> {
    let mut text = [0; 128];
    let read = rustix::io::pread(queue, &mut text[..], 0);
    let read = read.map_err(Error::io(format!("look at the message queue {name}")))?;
    let text = String::from_utf8_lossy(&text[..read]).into_owned();
    let told = text.split_whitespace().find_map(|word| word.strip_prefix("NOTIFY_PID:"));
    match told {
        Some("0") => Ok(()),
        _ => {
            Err(unsupported(pid, name, "of whose messages a process is to be told (mq_notify(3))"))
        }
    }
}

/// All messages, which are there again then.
fn messages(queue: &OwnedFd, most: usize) -> std::io::Result<Vec<(u32, Bytes)>> {
    let (mut messages, mut room) = (Vec::new(), vec![0; most]);
    let taken = loop {
        match receive(queue, &mut room) {
            Ok(Some((count, priority))) => messages.push((priority, Bytes(room[..count].to_vec()))),
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    // Whatever has come of it, what was taken is given back.
    for (priority, message) in &messages {
        send(queue, message, *priority)?;
    }
    taken.map(|()| messages)
}

impl Queues {
    /// What an open file is, if it is a queue.
    pub fn open(&mut self, pid: u32, line: &Line) -> Result<Option<OpenFile>, Error> {
        let number = (line.device, line.inode);
        if let Some(index) = self.numbers.iter().position(|known| *known == number) {
            return Ok(Some(OpenFile::Queue { index }));
        }
        let is_one = statfs(format!("/proc/{pid}/fd/{}", line.number));
        if line.links > 0 || !is_one.is_ok_and(|status| status.f_type == MAGIC) {
            return Ok(None);
        }
        let process = open_process(pid).map_err(Error::io("open a process"))?;
        let queue = descriptor_of(&process, line.number);
        let queue = queue.map_err(Error::io(format!("take {} of process {pid}", line.link)))?;
        self.numbers.push(number);
        self.queues.push(removed(pid, &queue, line)?);
        Ok(Some(OpenFile::Queue { index: self.queues.len() - 1 }))
    }

    /// All of them.
    pub fn finish(self) -> Vec<PosixQueue> {
        self.queues
    }
}

/// A queue that has no name, by an open file of a process, which does not block for as long.
fn removed(pid: u32, queue: &OwnedFd, line: &Line) -> Result<PosixQueue, Error> {
    let reads_and_writes = libc::O_RDWR.cast_unsigned();
    if line.flags & libc::O_ACCMODE.cast_unsigned() != reads_and_writes {
        let what = "which has no name any more and is not open for reading and writing";
        return Err(unsupported(pid, &line.link, what));
    }
    let failed = || Error::io(format!("look at the message queue {}", line.link));
    let flags = fcntl_getfl(queue.as_fd()).map_err(failed())?;
    fcntl_setfl(queue, flags | OFlags::NONBLOCK).map_err(failed())?;
    let described = describe(pid, None, queue);
    fcntl_setfl(queue, flags).map_err(failed())?;
    described
}
