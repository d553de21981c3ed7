//! The files that the guest has open, each with a number of the server's.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard};

use locks::Unpoisoned;
use rustix::io::Errno;

use super::inodes::{Inode, Open};

/// An open file or directory.
#[derive(Debug)]
pub struct Handle {
    pub open: Arc<Open>,
    pub inode: Arc<Inode>,
}

impl Handle {
    /// An open file, which its inode knows as long as it is open.
    fn new(file: OwnedFd, inode: &Arc<Inode>) -> Arc<Self> {
        let open = Arc::new(Open::new(file));
        *inode.opened.lock().unpoisoned() = Arc::downgrade(&open);
        Arc::new(Self { open, inode: Arc::clone(inode) })
    }
}

/// All of them.
#[derive(Debug)]
pub struct Handles {
    open: Mutex<(HashMap<u64, Arc<Handle>>, u64)>,
    most: usize,
}

impl Handles {
    /// At most so many.
    pub fn new(most: usize) -> Self {
        Self { open: Mutex::new((HashMap::new(), 1)), most }
    }

    fn all(&self) -> MutexGuard<'_, (HashMap<u64, Arc<Handle>>, u64)> {
        self.open.lock().unpoisoned()
    }

    /// Keep an open file; its number.
    ///
    /// # Errors
    ///
    /// [`Errno::NFILE`] when there are too many.
    pub fn add(&self, file: OwnedFd, inode: &Arc<Inode>) -> Result<u64, Errno> {
        let mut all = self.all();
        if all.0.len() >= self.most {
            return Err(Errno::NFILE);
        }
        let number = all.1;
        all.1 += 1;
        all.0.insert(number, Handle::new(file, inode));
        Ok(number)
    }

    /// The open file of that number.
    ///
    /// # Errors
    ///
    /// [`Errno::BADF`] when there is none.
    pub fn get(&self, number: u64) -> Result<Arc<Handle>, Errno> {
        self.all().0.get(&number).cloned().ok_or(Errno::BADF)
    }

    /// All that is open, and the next number.
    pub fn list(&self) -> (Vec<(u64, Arc<Handle>)>, u64) {
        let all = self.all();
        (all.0.iter().map(|(&number, handle)| (number, Arc::clone(handle))).collect(), all.1)
    }

    /// Keep a file that the guest knows as open by that number, if there is room.
    pub fn restore(&self, number: u64, file: OwnedFd, inode: &Arc<Inode>) {
        let mut all = self.all();
        if all.0.len() < self.most {
            all.0.insert(number, Handle::new(file, inode));
        }
    }

    /// No number below this is given again.
    pub fn go_on_from(&self, next: u64) {
        let mut all = self.all();
        let last = all.0.keys().max().copied().unwrap_or(0);
        all.1 = next.max(last.saturating_add(1));
    }

    /// The guest has closed it.
    pub fn remove(&self, number: u64) {
        let closed = self.all().0.remove(&number);
        // Closing may take long, and is not done under the lock.
        drop(closed);
    }

    /// The guest has nothing open any more.
    pub fn clear(&self) {
        let all = std::mem::take(&mut self.all().0);
        drop(all);
    }
}
