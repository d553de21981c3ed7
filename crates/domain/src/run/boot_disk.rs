//! What a disk boots (`--boot-disk`), found by a process of its own: the program starts itself again for that. The
//! process opens the disk, to be read only, and confines itself before it looks for partitions, because a disk may come
//! from anywhere.
//!
//! 1. *Nobody else parses the disk.* The parent knows its name, and what the answer says. (The header of a qcow2 image
//!    is read before the process is confined, as that of every disk is by the machine's process.)
//! 2. The answer is a byte that tells the outcome, and then the reason, or four lengths and what they are of: title,
//!    command line, kernel and initial RAM disk.
//! 3. The parent takes no more of each than `bootdisk` reads, and no more than the host and the machine have memory
//!    for. It looks into none of it: the kernel is unpacked and loaded as any other that a user names.
//! 4. Memory and processor time are limited, and the process ends with its parent.
//! 5. It reads no xfs and no btrfs. If a disk has these and boots nothing without them, the parent starts a machine
//!    whose kernel does ([`machine`]), and another such process, whose standard input is a socket to the machine.
//!    Neither believes anything that the other says, and the parent hears the one only.

use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::process::Stdio;
use std::rc::Rc;

use rustix::process::Resource;
use serde::{Deserialize, Serialize};
use spec::{Disk, shown};
use vmm::disk::Reading;

use bootdisk::limits;

pub use bootdisk::Bootable;

use super::disk;
use super::error::Error;
use super::files::Limit;
use crate::helper::{bound, helper};

mod machine;

use machine::Machine;
pub use machine::{MACHINE_KIND, ServeDisk};

/// The kind of process that reads a disk.
pub const KIND: &str = "read-disk";

/// What it is started with.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReadDisk {
    /// Which disk.
    pub disk: Disk,
    /// It may make the system calls only that it needs.
    pub confined: bool,
    /// At the other end of its standard input is a machine that reads more of the disk than it does.
    #[serde(default)]
    pub served: bool,
}

/// What the answer begins with.
const FOUND: u8 = 0;
const REFUSED: u8 = 1;
const UNREAD: u8 = 2;

/// The longest reason that is taken, in bytes.
const MAX_REASON_BYTES: u64 = 2048;

/// The most of title and command line that is taken, in bytes: more than `bootdisk` reads.
const MAX_TEXT_BYTES: u64 = 64 << 10;

/// The most of each part that is taken, in bytes.
const MAX_BYTES: [u64; 4] = [
    MAX_TEXT_BYTES,
    MAX_TEXT_BYTES,
    limits::KERNEL_MAX_BYTES,
    limits::INITRD_MAX_BYTES + limits::ARCHIVE_ALIGNMENT as u64,
];

/// Address space of the process: the largest kernel and initial RAM disk, one of them twice, and the program.
const MAX_ADDRESS_SPACE_BYTES: u64 = 4 << 30;

/// Processor time of the process.
const MAX_PROCESSOR_SECONDS: u64 = 60;

/// What such a process says.
#[derive(Debug)]
enum Answer {
    Found(Bootable),
    /// It boots nothing: why.
    Refused(String),
    /// The same, and the reason may be that nobody reads some of it.
    Unread(String),
}

/// Finds what a disk boots in a machine with so many bytes of memory, by such a process, which is confined if it is to
/// be, and by a machine that helps it if need be.
///
/// # Errors
///
/// What the disk has instead, or what is wrong with it.
pub fn find(disk: &Disk, memory: u64, confine: bool) -> Result<Bootable, Error> {
    let failed = |reason: String| Error::BootDisk { path: disk.path.clone(), reason };
    let order = ReadDisk {
        disk: Disk { read_only: true, snapshot: false, ..disk.clone() },
        confined: confine,
        served: false,
    };
    let limit = Limit::of_modules(memory).within_host();
    let answer = match ask(&order, None, &limit).map_err(failed)? {
        Answer::Unread(reason) => {
            tracing::info!("{reason}; a machine reads its xfs and btrfs");
            ask_with_machine(ReadDisk { served: true, ..order }, &limit, &reason)
        }
        answer => Ok(answer),
    };
    match answer.map_err(failed)? {
        Answer::Found(bootable) => {
            tracing::info!("{} boots {}", disk.path.display(), bootable.title);
            Ok(bootable)
        }
        Answer::Refused(reason) | Answer::Unread(reason) => Err(failed(reason)),
    }
}

/// Has a process look at a disk; what it says, or what is wrong with it.
fn ask(order: &ReadDisk, machine: Option<OwnedFd>, limit: &Limit) -> Result<Answer, String> {
    let start = || {
        let mut command = helper(KIND, order)?;
        let input = machine.map_or_else(Stdio::null, Stdio::from);
        // Names of files mean what they mean here. What is wrong with them is in the answer.
        command.current_dir(".").stdin(input).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()
    };
    let mut child = start().map_err(|error| error.to_string())?;
    let answer = child.stdout.take().map(|output| receive(output, limit));
    // It has said everything, or too much.
    let _ = child.kill();
    let status = child.wait().map_err(|error| error.to_string())?;
    match answer {
        Some(Ok(Some(answer))) => Ok(answer),
        Some(Err(error)) if error.kind() != io::ErrorKind::UnexpectedEof => Err(error.to_string()),
        _ => Err(format!("the process that reads it failed ({status})")),
    }
}

/// The same with a machine that reads xfs and btrfs, without which it boots nothing for this reason.
fn ask_with_machine(order: ReadDisk, limit: &Limit, reason: &str) -> Result<Answer, String> {
    let (machine, connection) = Machine::start(&order.disk, order.confined).map_err(|error| {
        format!("{reason}; a machine of Bivouac's would read xfs and btrfs, but {error}")
    })?;
    let answer = ask(&order, Some(connection), limit);
    let report = machine.end();
    match answer {
        Ok(Answer::Refused(reason)) => Ok(Answer::Refused(report.explain(reason))),
        answer => answer,
    }
}

/// The answer, if there is one: what the disk boots, of which kernel and initial RAM disk are within a limit, or why it
/// boots nothing.
fn receive(mut output: impl Read, limit: &Limit) -> io::Result<Option<Answer>> {
    let mut kind = [0];
    if output.read(&mut kind)? == 0 {
        return Ok(None);
    }
    if kind != [FOUND] {
        let mut reason = Vec::new();
        output.take(MAX_REASON_BYTES).read_to_end(&mut reason)?;
        let is_unread = kind == [UNREAD];
        return Ok(Some(if is_unread { Answer::Unread } else { Answer::Refused }(text(&reason))));
    }
    let mut lengths = [0; 4];
    for length in &mut lengths {
        let mut bytes = [0; 8];
        output.read_exact(&mut bytes)?;
        *length = u64::from_le_bytes(bytes);
    }
    if lengths.iter().zip(MAX_BYTES).any(|(length, most)| *length > most) {
        return Ok(None);
    }
    let all: u64 = lengths.iter().sum();
    if all > limit.bytes {
        let whom = &limit.whom;
        let reason = format!("what it boots has {all} bytes, which is too large for {whom}");
        return Ok(Some(Answer::Refused(reason)));
    }
    let mut part = |length: u64| {
        let mut bytes = Vec::new();
        let room = usize::try_from(length).map_err(io::Error::other)?;
        bytes.try_reserve_exact(room).map_err(io::Error::other)?;
        let count = output.by_ref().take(length).read_to_end(&mut bytes)?;
        if count == room { Ok(bytes) } else { Err(io::Error::from(io::ErrorKind::UnexpectedEof)) }
    };
    let (title, command_line) = (text(&part(lengths[0])?), text(&part(lengths[1])?));
    let (kernel, initrd) = (part(lengths[2])?, part(lengths[3])?);
    Ok(Some(Answer::Found(Bootable { title, kernel, initrd, command_line })))
}

/// A line of the disk's, in which nothing commands a terminal, and nothing ends the kernel's command line.
fn text(bytes: &[u8]) -> String {
    shown::line(&String::from_utf8_lossy(bytes))
}

/// An image as `bootdisk` reads it.
struct Image(Reading);

impl bootdisk::Storage for Image {
    fn bytes(&self) -> u64 {
        self.0.bytes()
    }

    fn read_at(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        self.0.read_at(at, into)
    }
}

/// What that process does.
///
/// # Errors
///
/// The process cannot be limited, or its parent has ended.
pub fn serve(order: &ReadDisk) -> io::Result<()> {
    bound(&[(Resource::As, MAX_ADDRESS_SPACE_BYTES), (Resource::Cpu, MAX_PROCESSOR_SECONDS)])?;
    let answer = look(order);
    let mut output = io::stdout().lock();
    match answer {
        Ok(Bootable { title, kernel, initrd, command_line }) => {
            output.write_all(&[FOUND])?;
            let parts = [title.as_bytes(), command_line.as_bytes(), &kernel, &initrd];
            for part in parts {
                output.write_all(&(part.len() as u64).to_le_bytes())?;
            }
            parts.iter().try_for_each(|part| output.write_all(part))?;
        }
        Err((kind, reason)) => {
            output.write_all(&[kind])?;
            output.write_all(reason.as_bytes())?;
        }
    }
    output.flush()
}

/// The machine at the other end of standard input.
struct Connection;

impl Read for Connection {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::read(io::stdin(), into)?)
    }
}

impl Write for Connection {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::io::write(io::stdin(), bytes)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Opens the disk, confines the process, and looks at the disk; if that comes to nothing, the outcome and the reason.
fn look(order: &ReadDisk) -> Result<Bootable, (u8, String)> {
    let reading = open(order).map_err(|reason| (REFUSED, reason))?;
    let machine = order.served.then(|| Box::new(Connection) as _);
    bootdisk::find(Rc::new(Image(reading)), machine).map_err(|error| {
        let is_unread = matches!(error, bootdisk::Error::Unread(_));
        (if is_unread { UNREAD } else { REFUSED }, error.to_string())
    })
}

fn open(order: &ReadDisk) -> Result<Reading, String> {
    let disk = disk::open(&order.disk).map_err(|error| error.reason())?;
    let reading = Reading::new(disk.image).map_err(|error| error.to_string())?;
    host::inherited::close_marked();
    if order.confined {
        host::privileges::drop_all().map_err(|error| io::Error::from(error).to_string())?;
        host::confine::confine_disk_reader().map_err(|error| error.to_string())?;
    }
    Ok(reading)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(parts: [&[u8]; 4]) -> Vec<u8> {
        let mut bytes = vec![FOUND];
        parts.iter().for_each(|part| bytes.extend((part.len() as u64).to_le_bytes()));
        parts.iter().for_each(|part| bytes.extend(*part));
        bytes
    }

    fn received(output: impl Read, bytes: u64) -> io::Result<Option<Result<Bootable, String>>> {
        let answer = receive(output, &Limit::of_modules(bytes))?;
        Ok(answer.map(|answer| match answer {
            Answer::Found(bootable) => Ok(bootable),
            Answer::Refused(reason) => Err(reason),
            Answer::Unread(reason) => Err(format!("unread: {reason}")),
        }))
    }

    #[test]
    fn an_answer_is_taken_whole_or_not_at_all() {
        let whole = answer([b"Debian\x1b[2J", b"ro\0 quiet", b"kernel", b"initrd"]);
        let found = received(&whole[..], 1 << 20).unwrap().unwrap().unwrap();
        assert_eq!(
            (&*found.command_line, &*found.kernel, &*found.initrd),
            ("ro\\u{0} quiet", &b"kernel"[..], &b"initrd"[..])
        );
        assert!(!found.title.contains('\x1b'), "{:?}", found.title);
        for length in 1..whole.len() {
            let cut = received(&whole[..length], 1 << 20);
            assert!(cut.is_err() || cut.is_ok_and(|it| it.is_none()), "{length}");
        }
        assert!(received(&b""[..], 1 << 20).unwrap().is_none());
    }

    #[test]
    fn no_more_is_taken_than_there_is_room_for() {
        let whole = answer([b"title", b"ro", b"kernel", b"initrd"]);
        assert!(received(&whole[..], 19).unwrap().unwrap().is_ok());
        let refused = received(&whole[..], 18).unwrap().unwrap().unwrap_err();
        assert!(refused.contains("19 bytes") && refused.contains("--mem"), "{refused}");
        for part in 0..4 {
            let mut large = whole.clone();
            let most = MAX_BYTES[part] + 1;
            large[1 + 8 * part..][..8].copy_from_slice(&most.to_le_bytes());
            assert!(received(&large[..], u64::MAX).unwrap().is_none(), "{part}");
        }
    }

    #[test]
    fn a_reason_is_one_line_and_has_an_end() {
        let refused = received(&b"\x01no\nloader"[..], 0).unwrap().unwrap();
        assert_eq!(refused.unwrap_err(), "no\\nloader");
        let unread = received(&b"\x02xfs"[..], 0).unwrap().unwrap();
        assert_eq!(unread.unwrap_err(), "unread: xfs");
        let endless = received(io::repeat(REFUSED), 0).unwrap().unwrap().unwrap_err();
        assert_eq!(endless.matches("\\u{1}").count() as u64, MAX_REASON_BYTES);
    }
}
