//! The file server: a process that is started with a control socket, receives its shares through
//! it, and ends when it is closed.

mod answer;
mod attributes;
mod change;
mod closed;
mod control;
mod data;
mod descriptor;
mod directory;
mod dispatch;
mod error;
mod extended;
mod handles;
mod inodes;
pub mod landlock;
mod nine;
mod recorded;
mod request;
mod saved;
mod share;
#[cfg(test)]
mod tests;
mod version;
mod worker;

use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;

use rustix::net::{RecvFlags, ReturnFlags, SendFlags, send};

use crate::limits::{MAX_DESCRIPTORS, MAX_MESSAGE_BYTES, RESERVED_DESCRIPTORS};
use crate::message::flags;
use closed::Closed;
pub use closed::OF_A_HOME;
use control::{Control, Introduced, Message};
pub use error::Error;
use error::failed;
use share::Share;

/// Be told through `control` what to share, and share it until the other end is closed. With
/// `confined`, nothing but that can be done by this process from then on. Of these home directories, and of
/// the host's root, what is nobody's business is not shown, if a share says so.
///
/// # Errors
///
/// [`Error`] when it cannot begin.
pub fn serve(control: &OwnedFd, confined: bool, homes: &[PathBuf]) -> Result<(), Error> {
    let Some(message) = receive(control)? else { return Ok(()) };
    let Introduced { memory, shares } = Introduced::understand(message)?;
    // So it is called in the host's list of processes; that it may not be is no matter.
    let _ = rustix::thread::set_name(c"biv files");
    // What the guest asks for is what a file gets.
    rustix::process::umask(rustix::fs::Mode::empty());
    let files = host::raise_descriptor_limit()
        .saturating_sub(RESERVED_DESCRIPTORS)
        .max(RESERVED_DESCRIPTORS);
    let each = files / shares.len().max(1);
    let memory = Arc::new(memory);
    let closed = match shares.iter().any(|(record, ..)| record.flags & flags::HIDES_SECRETS != 0) {
        true => Closed::find(homes),
        false => Closed::default(),
    };
    let closed = Arc::new(closed);
    let mut workers = Vec::new();
    for (record, directory, end) in shares {
        let share = Share::new(directory, &record, Arc::clone(&memory), each, &closed)
            .map_err(failed("look at a share"))?;
        workers.push((Arc::new(share), end));
    }
    let shares: Vec<_> = workers.iter().map(|(share, _)| Arc::clone(share)).collect();
    if confined {
        confine(&shares)?;
    }
    for (share, end) in workers {
        let start = worker::start(share, end);
        start.map_err(|error| Error::Host { action: "start a thread", error })?;
    }
    let asked = Control { shares };
    // What ends the wait is the end of the domain.
    while let Some(message) = receive(control)? {
        let answer = asked.obey(message);
        // If there is nobody to hear it, that is found next.
        let _ = send(control, &[u8::from(answer.is_some())], SendFlags::NOSIGNAL);
    }
    Ok(())
}

/// Give up all that serving does not take. There is one thread yet, and all others come from it.
fn confine(shares: &[Arc<Share>]) -> Result<(), Error> {
    let allows_privileges = shares.iter().any(|share| share.allows_privileges);
    host::privileges::keep_for_files(allows_privileges).map_err(failed("drop capabilities"))?;
    let mut directories = Vec::new();
    for share in shares {
        let root = share.inodes.root().descriptor(&share.inodes);
        directories.push((root.map_err(failed("look at a share"))?, share.is_writable));
    }
    let directories = directories.iter().map(|(root, is_writable)| (root.as_fd(), *is_writable));
    if landlock::keep_in(directories)? == landlock::Kept::CannotHere {
        tracing::debug!(
            "the host has no Landlock: only the file server itself keeps to the shares"
        );
    }
    Ok(host::confine::confine_file_server()?)
}

/// A message; none if the domain has ended.
fn receive(control: &OwnedFd) -> Result<Option<Message>, Error> {
    let mut bytes = vec![0; MAX_MESSAGE_BYTES];
    let received =
        match host::rights::receive(control, &mut bytes, MAX_DESCRIPTORS, RecvFlags::empty()) {
            Err(rustix::io::Errno::CONNRESET) => return Ok(None),
            other => other.map_err(failed("be told what to share"))?,
        };
    if received.bytes == 0 {
        return Ok(None);
    }
    if received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        return Err(Error::Introduction);
    }
    bytes.truncate(received.bytes);
    Ok(Some((bytes, received.files)))
}
