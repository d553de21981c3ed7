//! What leads out of the tree: pipes and sockets whose other end somebody else has, and terminals whose master somebody
//! else has, who will be there again at the restart.
//!
//! A keeper has the other ends of its commands' standard streams. It names them at the dump, and at the restart gives
//! the ends that take their place. What is in such a pipe is not part of the image, nor what was written to such a
//! terminal: it is the keeper's. What was typed there and not read is.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use host::processes::terminal;

use crate::error::Error;

/// Names of what leads out of the tree, at a dump.
#[derive(Debug, Clone, Default)]
pub struct Slots {
    /// By device and inode.
    names: BTreeMap<(u64, u64), String>,
    /// By the number of the terminal: the name, and the master.
    terminals: BTreeMap<u32, (String, Arc<OwnedFd>)>,
}

impl Slots {
    /// None: everything is in the tree.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Name a pipe, by either of its ends, or a socket.
    ///
    /// # Errors
    ///
    /// Where the kernel tells nothing about it.
    pub fn add(&mut self, name: impl Into<String>, end: impl AsFd) -> Result<(), Error> {
        let stat = rustix::fs::fstat(end).map_err(Error::io("look at a pipe"))?;
        self.names.insert((stat.st_dev, stat.st_ino), name.into());
        Ok(())
    }

    /// Name a terminal, by its master. Whoever restarts gives a master of the same number, in whose terminal nobody
    /// has been yet (or given it up).
    ///
    /// # Errors
    ///
    /// Where it is no master.
    pub fn add_terminal(
        &mut self,
        name: impl Into<String>,
        master: impl AsFd,
    ) -> Result<(), Error> {
        let what = Error::io("look at the master of a terminal");
        let index = match terminal::number(&master, terminal::Number::Index) {
            Ok(index) => index,
            Err(error) => return Err(what(error)),
        };
        let master = master.as_fd().try_clone_to_owned();
        let master = master.map_err(Error::io("keep the master of a terminal"))?;
        self.terminals.insert(index, (name.into(), Arc::new(master)));
        Ok(())
    }

    /// The name and the master of a terminal.
    pub(crate) fn terminal(&self, index: u32) -> Option<(&str, &OwnedFd)> {
        let (name, master) = self.terminals.get(&index)?;
        Some((name, master))
    }

    /// The name of what has this device and inode.
    pub(crate) fn find(&self, file: (u64, u64)) -> Option<&str> {
        self.names.get(&file).map(String::as_str)
    }
}

/// What takes the places of slots, by their names, at a restart.
pub type Given<'a> = BTreeMap<&'a str, BorrowedFd<'a>>;
