//! What the guest knows of a share, as bytes, for a server that goes on with the guest elsewhere.
//!
//! A file is known by its directory and its name, and by what it was ([`super::inodes`]); it is sought again
//! when it is needed. What is not there any more, or is another file by then, is stale, and the guest's
//! kernel looks the path up anew. What it has open is opened again; a file that has been removed while it
//! was open is lost to it.

use std::collections::HashMap;
use std::ffi::CString;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::fs::{FileType, OFlags, fcntl_getfl};
use serde::{Deserialize, Serialize};

use super::inodes::{Inode, Inodes, Known, Remembered};
use super::share::Share;

/// The state does not belong to this share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a shared directory is not the one that it was")]
pub struct Unfit;

/// A file that the guest knows, or that is on the way to one.
#[derive(Debug, Serialize, Deserialize)]
struct SavedFile {
    /// Its number; none if only we know it.
    number: Option<u64>,
    remembered: Remembered,
    lookups: u64,
    /// The place of its directory in the list, and its name there.
    place: Option<(u32, Vec<u8>)>,
}

/// What the guest has open.
#[derive(Debug, Serialize, Deserialize)]
struct SavedHandle {
    number: u64,
    /// The file's place in the list.
    file: u32,
    /// How it was opened (open(2)).
    flags: u32,
}

/// The state of a share.
#[derive(Debug, Serialize, Deserialize)]
struct Saved {
    is_started: bool,
    opens_silently: bool,
    next_number: u64,
    next_handle: u64,
    /// The first is the root.
    files: Vec<SavedFile>,
    handles: Vec<SavedHandle>,
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
            remembered: file.remembered(),
            lookups: file.lookups(),
            place: place.map(|(directory, name)| (directory, name.into_bytes())),
        });
    }
    let saved = Saved {
        is_started: share.is_started.load(Ordering::Relaxed),
        opens_silently: share.opens_silently.load(Ordering::Relaxed),
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
    let files = restore_files(inodes, &saved)?;
    let is_known = |(file, saved): &(&Arc<Inode>, &SavedFile)| {
        saved.number.is_some().then(|| Arc::clone(file))
    };
    let known = files.iter().zip(&saved.files).filter_map(|pair| is_known(&pair));
    inodes.know(Known::of(inodes.root(), known, saved.next_number));
    for handle in &saved.handles {
        let file = files.get(handle.file as usize).ok_or(Unfit)?;
        let flags = OFlags::from_bits_retain(handle.flags) & REOPENED;
        match share.open(file, flags) {
            Ok(open) => share.handles.restore(handle.number, open, file),
            Err(errno) => tracing::debug!(%errno, "an open file has gone"),
        }
    }
    share.handles.go_on_from(saved.next_handle);
    share.opens_silently.store(saved.opens_silently, Ordering::Relaxed);
    share.is_started.store(saved.is_started, Ordering::Relaxed);
    Ok(())
}

/// What of the flags of an open file matters when it is opened again.
const REOPENED: OFlags = OFlags::RDWR
    .union(OFlags::WRONLY)
    .union(OFlags::APPEND)
    .union(OFlags::DIRECT)
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOATIME)
    .union(OFlags::SYNC);

fn restore_files(inodes: &Inodes, saved: &Saved) -> Result<Vec<Arc<Inode>>, Unfit> {
    let root = saved.files.first().ok_or(Unfit)?.remembered;
    let is_same = root.is_same_but_for_mount(&inodes.root().remembered());
    if !is_same || saved.files.len() > u32::MAX as usize {
        return Err(Unfit);
    }
    let mut files = vec![Arc::clone(inodes.root())];
    for file in &saved.files[1..] {
        // The root's file system may be mounted elsewhere now, and by another number.
        let remembered = file.remembered.moved(&root, &inodes.root().remembered());
        let number = file.number.unwrap_or(0);
        files.push(Inode::restored(number, remembered, file.lookups));
    }
    for (file, saved) in files.iter().zip(&saved.files).skip(1) {
        let Some((directory, name)) = &saved.place else { continue };
        let directory = files.get(*directory as usize).ok_or(Unfit)?;
        let name = CString::new(name.clone()).map_err(|_| Unfit)?;
        let is_name = !name.is_empty() && !name.as_bytes().contains(&b'/');
        if !is_name || directory.kind != FileType::Directory {
            return Err(Unfit);
        }
        file.set_place(directory, name);
    }
    Ok(files)
}
