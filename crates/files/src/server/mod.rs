//! The server: started with a socket, told what to share, and ended with the socket.

mod attributes;
mod change;
mod data;
mod directory;
mod dispatch;
mod extended;
mod handles;
mod inodes;
mod request;
mod saved;
mod share;
#[cfg(test)]
mod tests;
mod version;
mod worker;

use std::fs::File;
use std::io::{self, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendFlags, recvmsg, send,
};
use vm_memory::GuestMemoryMmap;
use zerocopy::FromBytes;

use crate::message::{
    Command, Header, MAX_DESCRIPTORS, MAX_MESSAGE_BYTES, MAX_SHARES, Region, ShareRecord, VERSION,
    command,
};
use crate::ring;
use share::Share;

/// Why the server cannot serve.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A system call.
    #[error("file server: cannot {action}: {error}")]
    Host {
        /// What was tried.
        action: &'static str,
        /// The answer.
        error: io::Error,
    },
    /// What it was told.
    #[error("file server: what it was told makes no sense; it is started by biv itself")]
    Introduction,
    /// The guest's memory.
    #[error("file server: {0}")]
    Memory(#[from] host::Error),
    /// The filter.
    #[error("file server: {0}")]
    Confine(#[from] host::confine::Error),
}

fn failed(action: &'static str) -> impl FnOnce(rustix::io::Errno) -> Error {
    move |errno| Error::Host { action, error: errno.into() }
}

/// Descriptors for everything but files that the guest knows.
const RESERVED_DESCRIPTORS: usize = 64;

/// Be told through `control` what to share, and share it until the other end is closed. With
/// `confined`, nothing but that can be done by this process from then on.
///
/// # Errors
///
/// [`Error`] when it cannot begin.
pub fn serve(control: &OwnedFd, confined: bool) -> Result<(), Error> {
    let Some((bytes, descriptors)) = receive(control)? else { return Ok(()) };
    let Introduced { memory, shares } = understand(&bytes, descriptors)?;
    // So it is called in the host's list of processes; that it may not be is no matter.
    let _ = rustix::thread::set_name(c"biv files");
    // What the guest asks for is what a file gets.
    rustix::process::umask(rustix::fs::Mode::empty());
    let files = host::raise_descriptor_limit()
        .saturating_sub(RESERVED_DESCRIPTORS)
        .max(RESERVED_DESCRIPTORS);
    let each = files / shares.len().max(1);
    let memory = Arc::new(memory);
    let mut workers = Vec::new();
    for (record, directory, end) in shares {
        let share = Share::new(directory, &record, Arc::clone(&memory), each)
            .map_err(failed("look at a share"))?;
        workers.push((Arc::new(share), end));
    }
    if confined {
        host::confine::confine_file_server()?;
    }
    let shares: Vec<_> = workers.iter().map(|(share, _)| Arc::clone(share)).collect();
    for (share, end) in workers {
        let start = worker::start(share, end);
        start.map_err(|error| Error::Host { action: "start a thread", error })?;
    }
    // What ends the wait is the end of the domain.
    while let Some((bytes, descriptors)) = receive(control)? {
        let answer = obey(&shares, &bytes, descriptors);
        // If there is nobody to hear it, that is found next.
        let _ = send(control, &[u8::from(answer.is_some())], SendFlags::NOSIGNAL);
    }
    Ok(())
}

/// Do what is asked of all of a share; none if it cannot be done.
fn obey(shares: &[Arc<Share>], bytes: &[u8], descriptors: Vec<OwnedFd>) -> Option<()> {
    let (command, _) = Command::read_from_prefix(bytes).ok()?;
    let file = descriptors.into_iter().next()?;
    let share = shares.get(command.share as usize)?;
    let mut file = File::from(file);
    match command.kind {
        command::SAVE => file.write_all(&saved::save(share)).ok(),
        command::RESTORE => {
            let mut state = Vec::new();
            file.read_to_end(&mut state).ok()?;
            saved::restore(share, &state).ok()
        }
        _ => None,
    }
}

/// What there is to do.
struct Introduced {
    memory: GuestMemoryMmap,
    /// What each is, its directory, and how its requests come.
    shares: Vec<(ShareRecord, OwnedFd, ring::End)>,
}

/// Bytes, and descriptors that came with them.
type Message = (Vec<u8>, Vec<OwnedFd>);

/// A message; none if the domain has ended.
fn receive(control: &OwnedFd) -> Result<Option<Message>, Error> {
    let mut bytes = vec![0; MAX_MESSAGE_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let pieces = &mut [io::IoSliceMut::new(&mut bytes)];
    let received = match recvmsg(control, pieces, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
        Err(rustix::io::Errno::CONNRESET) => return Ok(None),
        other => other.map_err(failed("be told what to share"))?,
    };
    if received.bytes == 0 {
        return Ok(None);
    }
    if received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        return Err(Error::Introduction);
    }
    let mut descriptors = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    bytes.truncate(received.bytes);
    Ok(Some((bytes, descriptors)))
}

fn understand(bytes: &[u8], descriptors: Vec<OwnedFd>) -> Result<Introduced, Error> {
    let nonsense = || Error::Introduction;
    let (header, mut rest) = Header::read_from_prefix(bytes).map_err(|_| nonsense())?;
    if header.version != VERSION || header.shares as usize > MAX_SHARES {
        return Err(nonsense());
    }
    let mut regions = Vec::new();
    for _ in 0..header.regions {
        let (region, after) = Region::read_from_prefix(rest).map_err(|_| nonsense())?;
        regions.push((region.guest, region.bytes, region.offset));
        rest = after;
    }
    let mut descriptors = descriptors.into_iter();
    let memory = File::from(descriptors.next().ok_or_else(nonsense)?);
    let memory = host::memory::attach(memory, &regions)?;
    let mut introductions = Vec::new();
    for _ in 0..header.shares {
        let (record, after) = ShareRecord::read_from_prefix(rest).map_err(|_| nonsense())?;
        rest = after;
        let directory = descriptors.next().ok_or_else(nonsense)?;
        let rings = File::from(descriptors.next().ok_or_else(nonsense)?);
        let socket = descriptors.next().ok_or_else(nonsense)?;
        introductions.push((record, directory, ring::other_end(rings, socket)?));
    }
    Ok(Introduced { memory, shares: introductions })
}

/// Our own descriptors, by number: the one way to open a file that is known by an `O_PATH` descriptor.
const OWN_DESCRIPTORS: &str = "/proc/self/fd";

/// The name of a descriptor in [`OWN_DESCRIPTORS`].
fn number(descriptor: BorrowedFd<'_>) -> String {
    use std::os::fd::AsRawFd;
    descriptor.as_raw_fd().to_string()
}
