//! Whether somebody waits to be accepted by a frozen process.
//!
//! A connection that waits is not always one that can be written down: what came over it already is where nobody can
//! look at it, and the kernel cannot be told to have one wait again whose other end is elsewhere. But it seldom waits
//! for long. So whoever may let the processes run for a moment does that, and freezes them again, before they are
//! written down.

use std::collections::BTreeSet;

use host::processes::identity;
use rustix::event::PollFlags;
use rustix::net::sockopt;

use super::entry::has;
use crate::error::Error;
use crate::freeze::Frozen;
use crate::proc;

impl Frozen {
    /// Whether a connection waits to be accepted, at a socket that listens, of whatever family.
    ///
    /// # Errors
    ///
    /// The host does not let us look.
    pub fn has_unaccepted(&self) -> Result<bool, Error> {
        let mut seen = BTreeSet::new();
        for &pid in self.processes.keys() {
            let process = identity::open_process(pid).map_err(Error::io("open a process"))?;
            for number in proc::numbers(pid, "fd")? {
                let link = proc::link(pid, &format!("fd/{number}"))?;
                if !link.starts_with("socket:") || !seen.insert(link) {
                    continue;
                }
                let socket = identity::descriptor_of(&process, number);
                let socket = socket.map_err(Error::io("take a socket of a process"))?;
                let listens = sockopt::socket_acceptconn(&socket);
                let listens = listens.map_err(Error::io("look at a socket"))?;
                if listens && has(&socket, PollFlags::IN)? {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }
}
