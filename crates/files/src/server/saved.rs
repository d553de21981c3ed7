//! The guest's view of a share as bytes, for a server that goes on with the guest elsewhere.
//!
//! The bytes identify a file by its directory and name, and by its key ([`super::inodes`]). The new
//! server looks for it when it is needed. A file that is gone, or is another file by then, is
//! stale, and the guest's kernel looks the path up anew. The new server opens again what the guest
//! has open; a file that was removed while it was open is lost.
//!
//! These bytes are not trusted: a snapshot is a file, and the domain's process that sends them may
//! be the guest's. So they only tell which number means which name in which directory:
//!
//! 1. *A name is one component*, neither `.` nor `..`, and is looked up as any name is. So a guest
//!    reaches nothing that it could not have looked up.
//! 2. *The server sees itself what a file is*: its type, and whether its file system is shown. The
//!    bytes do not contain that.
//! 3. *How a file is opened again* is limited to what the guest could ask for, in this share.
//! 4. *There are not more files, open or not*, than a guest may have otherwise.
//! 5. *The negotiated features* are among those that the guest could ask for: which requests it
//!    leaves out, and that files which it writes are opened for reading as well.

use std::collections::HashMap;
use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::fs::{OFlags, fcntl_getfl};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::data::{flags_of, is_for_writing, open_as};
use super::inodes::{Inode, Key, Known};
use super::request::is_component;
use super::share::Share;

/// The state does not belong to this share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a shared directory is not the one that it was")]
pub struct Unfit;

/// A file that the guest knows, or that is on the way to one.
#[derive(Debug, Serialize, Deserialize)]
pub struct SavedFile {
    /// Its number; none if only we know it.
    pub number: Option<u64>,
    pub key: Key,
    pub lookups: u64,
    /// The place of its directory in the list, and its name there.
    pub place: Option<(u32, Vec<u8>)>,
}

/// What the guest has open.
#[derive(Debug, Serialize, Deserialize)]
pub struct SavedHandle {
    pub number: u64,
    /// The file's place in the list.
    pub file: u32,
    /// How it was opened (open(2)).
    pub flags: u32,
}

/// The state of a share.
#[derive(Debug, Serialize, Deserialize)]
pub struct Saved {
    pub is_started: bool,
    /// What was agreed on ([`super::share::Agreed`]).
    pub agreed: u8,
    pub next_number: u64,
    pub next_handle: u64,
    /// The first is the root.
    pub files: Vec<SavedFile>,
    pub handles: Vec<SavedHandle>,
}

/// Files in the order in which they are found, each once.
#[derive(Default)]
struct List {
    files: Vec<Arc<Inode>>,
    places: HashMap<*const Inode, u32>,
}

impl List {
    fn place(&mut self, file: &Arc<Inode>) -> u32 {
        let next = self.files.len() as u32;
        let place = *self.places.entry(Arc::as_ptr(file)).or_insert(next);
        if place == next {
            self.files.push(Arc::clone(file));
        }
        place
    }
}

/// The state of a share of which nothing is asked just now.
pub fn save(share: &Share) -> Vec<u8> {
    let mut list = List::default();
    list.place(share.inodes.root());
    let (known, next_number) = share.inodes.known_files();
    for file in &known {
        list.place(file);
    }
    let (open, next_handle) = share.handles.list();
    let handle = |(number, handle): (u64, Arc<super::handles::Handle>)| SavedHandle {
        number,
        file: list.place(&handle.inode),
        flags: fcntl_getfl(&handle.open.file).map_or(0, |flags| flags.bits()),
    };
    let handles = open.into_iter().map(handle).collect();
    let numbers: HashMap<_, _> = known.iter().map(|it| (Arc::as_ptr(it), it.number)).collect();
    let mut files = Vec::new();
    // Directories of what is listed come behind it, and theirs behind them.
    while let Some(file) = list.files.get(files.len()).cloned() {
        let place = file.place().map(|(directory, name)| (list.place(&directory), name));
        files.push(SavedFile {
            number: numbers.get(&Arc::as_ptr(&file)).copied(),
            key: file.key(),
            lookups: file.lookups(),
            place: place.map(|(directory, name)| (directory, name.into_bytes())),
        });
    }
    let saved = Saved {
        is_started: share.is_started.load(Ordering::Relaxed),
        agreed: share.agreed.bits(),
        next_number,
        next_handle,
        files,
        handles,
    };
    postcard::to_stdvec(&saved).unwrap_or_default()
}

/// Go on from there, in a share of which nothing was asked.
///
/// # Errors
///
/// [`Unfit`] when the state makes no sense here.
pub fn restore(share: &Share, bytes: &[u8]) -> Result<(), Unfit> {
    let saved: Saved = postcard::from_bytes(bytes).map_err(|_| Unfit)?;
    if !saved.is_started {
        // Nobody knew anything of it, and it may be another directory.
        return Ok(());
    }
    let inodes = &share.inodes;
    let files = restore_files(share, &saved)?;
    let is_known = |(file, saved): &(&Arc<Inode>, &SavedFile)| {
        saved.number.is_some().then(|| Arc::clone(file))
    };
    let known = files.iter().zip(&saved.files).filter_map(|pair| is_known(&pair));
    inodes.know(Known::of(inodes.root(), known, saved.next_number));
    share.agreed.set(saved.agreed);
    for handle in &saved.handles {
        let file = files.get(handle.file as usize).ok_or(Unfit)?;
        match reopen(share, file, handle.flags) {
            Ok(open) => share.handles.restore(handle.number, open, file),
            Err(errno) => tracing::debug!(%errno, "an open file has gone"),
        }
    }
    share.handles.go_on_from(saved.next_handle);
    share.is_started.store(saved.is_started, Ordering::Relaxed);
    Ok(())
}

/// Open what was open with these flags, as the guest could.
fn reopen(share: &Share, file: &Arc<Inode>, flags: u32) -> Result<OwnedFd, Errno> {
    let is_directory = OFlags::from_bits_retain(flags) & OFlags::DIRECTORY;
    // What was cut when it was opened is not cut again.
    let flags = (flags_of(flags) - OFlags::TRUNC) | is_directory;
    if is_for_writing(flags) {
        share.check_writable()?;
    }
    open_as(share, file, flags)
}

fn restore_files(share: &Share, saved: &Saved) -> Result<Vec<Arc<Inode>>, Unfit> {
    let inodes = &share.inodes;
    let (root, here) = (saved.files.first().ok_or(Unfit)?.key, inodes.root().key());
    // In another directory there is none of the files, and each is stale.
    let is_fit = share.may_be_another || root.is_same_but_for_mount(&here);
    if !is_fit || saved.files.len() > inodes.most_files() {
        return Err(Unfit);
    }
    let mut files = vec![Arc::clone(inodes.root())];
    for file in &saved.files[1..] {
        // The root's file system may be mounted elsewhere now, and by another number.
        let key = file.key.moved(&root, &here);
        files.push(inodes.restored(file.number.unwrap_or(0), key, file.lookups));
    }
    for (file, saved) in files.iter().zip(&saved.files).skip(1) {
        let Some((directory, name)) = &saved.place else { continue };
        let directory = files.get(*directory as usize).ok_or(Unfit)?;
        let name = CString::new(name.clone()).map_err(|_| Unfit)?;
        if !is_component(name.as_bytes()) {
            return Err(Unfit);
        }
        file.set_place(directory, name);
    }
    Ok(files)
}
