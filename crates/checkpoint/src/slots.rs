//! What leads out of the tree: pipes whose other end somebody else has, who will be there again at the restart.
//!
//! A keeper has the other ends of its commands' standard streams. It names them at the dump, and at the restart gives
//! the ends that take their place. What is in such a pipe is not part of the image: it is the keeper's.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd};

use crate::error::Error;

/// Names of what leads out of the tree, at a dump.
#[derive(Debug, Clone, Default)]
pub struct Slots {
    /// By device and inode.
    names: BTreeMap<(u64, u64), String>,
}

impl Slots {
    /// None: everything is in the tree.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Name a pipe, by either of its ends.
    ///
    /// # Errors
    ///
    /// Where the kernel tells nothing about it.
    pub fn add(&mut self, name: impl Into<String>, end: impl AsFd) -> Result<(), Error> {
        let stat =
            rustix::fs::fstat(end).map_err(|error| Error::io("look at a pipe")(error.into()))?;
        self.names.insert((stat.st_dev, stat.st_ino), name.into());
        Ok(())
    }

    /// The name of what has this device and inode.
    pub(crate) fn find(&self, file: (u64, u64)) -> Option<&str> {
        self.names.get(&file).map(String::as_str)
    }
}

/// What takes the places of slots, by their names, at a restart.
pub type Given<'a> = BTreeMap<&'a str, BorrowedFd<'a>>;
