//! What the guest calls files by: numbers that it chooses itself.
//!
//! A fid is a file that the guest knows (by one of the look-ups that [`super::super::inodes`] counts), a user for whom
//! it is used, and, if it is open, a handle. Or it is an extended attribute, whose value is kept here while it is read
//! or written. The guest may make as many fids as it may know files.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::CString;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use locks::Unpoisoned;
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::super::handles::Handles;
use super::super::inodes::Inodes;
use super::wire::Tree;
use crate::limits::MAX_ATTRIBUTE_FIDS;

/// Where what fids stand for is counted.
#[derive(Clone, Copy)]
pub struct Counted<'a> {
    pub inodes: &'a Inodes,
    pub handles: &'a Handles,
}

/// One fid's.
#[derive(Debug, Clone)]
pub struct Fid {
    /// The file's number.
    pub node: u64,
    /// For whom it is used.
    pub user: u32,
    pub state: State,
}

/// What can be done with it.
#[derive(Debug, Clone)]
pub enum State {
    /// It names a file.
    Named,
    /// The file is open with these flags.
    Open(u64, OFlags),
    /// An attribute, or the list of their names, that is read.
    Read(Arc<Attribute>),
    /// An attribute that is written, when the fid is given up.
    Written(Arc<Attribute>),
}

/// An extended attribute.
#[derive(Debug)]
pub struct Attribute {
    pub name: CString,
    /// How many bytes it is to have.
    pub size: usize,
    pub flags: u32,
    pub value: Mutex<Vec<u8>>,
    count: Arc<AtomicUsize>,
}

impl Drop for Attribute {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Fid {
    /// A file that has been looked up for this user.
    pub fn named(node: u64, user: u32) -> Self {
        Self { node, user, state: State::Named }
    }

    /// Its open handle.
    pub fn handle(&self) -> Result<u64, Errno> {
        match self.state {
            State::Open(handle, _) => Ok(handle),
            _ => Err(Errno::BADF),
        }
    }

    /// Give up what it stands for.
    pub fn release(self, counted: Counted<'_>) {
        if let State::Open(handle, _) = self.state {
            counted.handles.remove(handle);
        }
        counted.inodes.forget(self.node, 1);
    }
}

/// All of them, and which requests are under way.
#[derive(Debug, Default)]
pub struct Fids {
    known: Mutex<HashMap<u32, Fid>>,
    attributes: Arc<AtomicUsize>,
    tree: Mutex<Tree>,
    flights: Mutex<HashMap<u16, usize>>,
    landed: Condvar,
}

impl Fids {
    fn all(&self) -> MutexGuard<'_, HashMap<u32, Fid>> {
        self.known.lock().unpoisoned()
    }

    /// What a fid stands for.
    ///
    /// # Errors
    ///
    /// [`Errno::BADF`] when there is none of that number.
    pub fn get(&self, number: u32) -> Result<Fid, Errno> {
        self.all().get(&number).cloned().ok_or(Errno::BADF)
    }

    /// The guest calls it so; what it is given up if it cannot.
    ///
    /// # Errors
    ///
    /// [`Errno::BADF`] when another has the number, [`Errno::NFILE`] when there are too many.
    pub fn add(&self, counted: Counted<'_>, number: u32, fid: Fid) -> Result<(), Errno> {
        let mut all = self.all();
        let has_room = all.len() < counted.inodes.most_files();
        let refused = match all.entry(number) {
            Entry::Vacant(place) if has_room => {
                place.insert(fid);
                return Ok(());
            }
            Entry::Vacant(_) => Errno::NFILE,
            Entry::Occupied(_) => Errno::BADF,
        };
        drop(all);
        fid.release(counted);
        Err(refused)
    }

    /// A fid that was `before`, and named a file, stands for something else now.
    ///
    /// # Errors
    ///
    /// [`Errno::BADF`] when it has become something else meanwhile; then `after` is given up, but for the file if that
    /// is the same.
    pub fn replace(
        &self,
        counted: Counted<'_>,
        number: u32,
        before: &Fid,
        after: Fid,
    ) -> Result<(), Errno> {
        let mut all = self.all();
        let is_same = |fid: &&mut Fid| {
            fid.node == before.node && fid.user == before.user && matches!(fid.state, State::Named)
        };
        let (given_up, done) = match all.get_mut(&number).filter(is_same) {
            Some(fid) => (std::mem::replace(fid, after), Ok(())),
            None => (after, Err(Errno::BADF)),
        };
        let has_moved = match all.get(&number) {
            Some(fid) if done.is_ok() => fid.node != given_up.node,
            _ => given_up.node != before.node,
        };
        drop(all);
        match given_up.state {
            _ if has_moved => given_up.release(counted),
            State::Open(handle, _) => counted.handles.remove(handle),
            _ => {}
        }
        done
    }

    /// The guest gives a fid up.
    ///
    /// # Errors
    ///
    /// [`Errno::BADF`] when there is none of that number.
    pub fn remove(&self, number: u32) -> Result<Fid, Errno> {
        self.all().remove(&number).ok_or(Errno::BADF)
    }

    /// A new kernel has none.
    pub fn clear(&self) {
        let all = std::mem::take(&mut *self.all());
        drop(all);
    }

    /// The tree that the guest has attached last: it is one kernel.
    pub fn tree(&self) -> Tree {
        *self.tree.lock().unpoisoned()
    }

    /// The guest has attached this one.
    pub fn set_tree(&self, tree: Tree) {
        *self.tree.lock().unpoisoned() = tree;
    }

    /// An attribute to be read or written.
    ///
    /// # Errors
    ///
    /// [`Errno::NFILE`] when there are too many.
    pub fn attribute(
        &self,
        name: CString,
        size: usize,
        flags: u32,
        value: Vec<u8>,
    ) -> Result<Arc<Attribute>, Errno> {
        let before = self.attributes.fetch_add(1, Ordering::Relaxed);
        // It is counted again when it goes, also if it goes at once.
        let count = Arc::clone(&self.attributes);
        let made = Arc::new(Attribute { name, size, flags, value: value.into(), count });
        if before < MAX_ATTRIBUTE_FIDS { Ok(made) } else { Err(Errno::NFILE) }
    }

    /// A request with this tag is under way until what is returned goes.
    pub fn take_off(&self, tag: u16) -> Flight<'_> {
        *self.flights.lock().unpoisoned().entry(tag).or_default() += 1;
        Flight { fids: self, tag }
    }

    /// Wait until no request with this tag is under way.
    pub fn await_landing(&self, tag: u16) {
        let mut flights = self.flights.lock().unpoisoned();
        while flights.contains_key(&tag) {
            flights = self.landed.wait(flights).unpoisoned();
        }
    }

    /// How many there are.
    #[cfg(test)]
    pub fn count(&self) -> usize {
        self.all().len()
    }
}

/// A request that is under way.
pub struct Flight<'a> {
    fids: &'a Fids,
    tag: u16,
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        let mut flights = self.fids.flights.lock().unpoisoned();
        if let Entry::Occupied(mut count) = flights.entry(self.tag) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
        drop(flights);
        self.fids.landed.notify_all();
    }
}
