//! The files that the guest's kernel knows, each with a number of the server's.
//!
//! The server holds a file by a descriptor that can only name it (`O_PATH`), opened beneath the
//! descriptor of its directory. Whatever happens to its path afterwards, here or on the host,
//! cannot make it another file.
//!
//! There may be more files than a process can have descriptors. The server closes descriptors that
//! have not been used for long, and opens them again by directory and name when they are needed.
//! The file must then be the same (device, inode number, time of birth), or else it is stale
//! (`ESTALE`), and the guest's kernel looks its path up anew.
//!
//! A guest that goes on from a snapshot brings numbers, places and keys along ([`super::saved`]).
//! Anybody may have written these, so they only say where to look. The server itself looks at the
//! file to learn what it *is* ([`Nature`]).

use std::collections::{HashMap, VecDeque};
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};

use locks::Unpoisoned;
use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, ResolveFlags, Statx, StatxFlags, openat, openat2, statx,
};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::closed::{Closed, Id, Shown, id_of};
use super::descriptor::counted;
pub use super::descriptor::{Descriptor, Open};
use super::version::Seen;
use crate::kinds::Kind;
use crate::limits::MAX_DEPTH_DIRECTORIES;
use crate::wire::ROOT;

/// What a file is known by on the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Key {
    device: u64,
    inode: u64,
    mount: u64,
    /// When it was made, where the file system knows: the number of a file that is gone may be used again.
    born: (i64, u32),
}

/// What a file is, as this server has seen it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nature {
    /// Its type.
    pub kind: FileType,
    /// It is shown as an empty directory: a file system that no guest is shown is mounted there, or it is
    /// [`Closed`].
    pub is_closed: bool,
}

/// A file.
#[derive(Debug)]
pub struct Inode {
    /// By which number the guest knows it.
    pub number: u64,
    /// Known when it has been found.
    nature: OnceLock<Nature>,
    key: Key,
    place: Mutex<Place>,
    descriptor: Mutex<Option<Arc<Descriptor>>>,
    /// It has been used since the server last looked for one to close.
    is_used: AtomicBool,
    lookups: AtomicU64,
    /// How many [`Pin`]s it has.
    pins: AtomicUsize,
    /// What the guest has of its contents.
    pub seen: Seen,
    /// What the guest has opened last of it.
    pub opened: Mutex<Weak<Open>>,
    /// How many inodes the share has.
    living: Arc<AtomicUsize>,
}

impl Key {
    /// Whether it is the same file, wherever its file system is mounted.
    pub fn is_same_but_for_mount(&self, other: &Self) -> bool {
        Self { mount: other.mount, ..*self } == *other
    }

    /// The same where the file system of `old` is now mounted as that of `new` is.
    #[must_use]
    pub fn moved(self, old: &Self, new: &Self) -> Self {
        match self.mount == old.mount {
            true => Self { mount: new.mount, ..self },
            false => self,
        }
    }
}

/// Where a file can be found again.
#[derive(Debug, Default)]
struct Place {
    /// None for the root, and for what cannot be found by name any more.
    directory: Option<Arc<Inode>>,
    name: CString,
}

/// All of them.
#[derive(Debug)]
pub struct Inodes {
    root: Arc<Inode>,
    known: Mutex<Known>,
    /// The descriptors that may be closed, those opened first at the front.
    open: Mutex<VecDeque<Weak<Inode>>>,
    count: Arc<AtomicUsize>,
    living: Arc<AtomicUsize>,
    limits: Limits,
    /// What is not shown of it, if anything.
    closed: Option<Arc<Closed>>,
}

/// What a guest may have us keep of a share, and what it may see.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Descriptors that name files.
    pub descriptors: usize,
    /// Files, those included of which only we know, because others lie below them.
    pub files: usize,
    /// It may see file systems of kinds that we do not know.
    pub allows_unknown_kinds: bool,
    /// Directories that we may not read are empty.
    pub closes_unreadable: bool,
}

#[derive(Debug)]
pub struct Known {
    by_number: HashMap<u64, Arc<Inode>>,
    by_key: HashMap<Key, u64>,
    next: u64,
}

/// What is asked of the host. Mounts have had numbers since Linux 5.8; without, they all have number zero.
const ATTRIBUTES: StatxFlags =
    StatxFlags::BASIC_STATS.union(StatxFlags::BTIME).union(StatxFlags::MNT_ID);

/// All attributes of what a descriptor names.
pub fn attributes(file: impl AsFd) -> Result<Statx, Errno> {
    statx(file, c"", AtFlags::EMPTY_PATH | AtFlags::NO_AUTOMOUNT, ATTRIBUTES)
}

/// All attributes of what has a name in a directory. A name of one component leads nowhere else, as a link is not
/// followed.
fn attributes_in(directory: &Descriptor, name: &CStr) -> Result<Statx, Errno> {
    statx(directory, name, AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT, ATTRIBUTES)
}

fn kind(status: &Statx) -> FileType {
    FileType::from_raw_mode(status.stx_mode.into())
}

fn device(status: &Statx) -> u64 {
    rustix::fs::makedev(status.stx_dev_major, status.stx_dev_minor)
}

/// By what a file with these attributes is known.
pub fn key(status: &Statx) -> Key {
    Key {
        device: device(status),
        inode: status.stx_ino,
        mount: status.stx_mnt_id,
        born: (status.stx_btime.tv_sec, status.stx_btime.tv_nsec),
    }
}

/// Name a file below a directory, without following links anywhere.
pub fn open_below(directory: impl AsFd, name: &CStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    // A link at the end is named itself (openat2(2), RESOLVE_NO_SYMLINKS).
    let how = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_SYMLINKS;
    openat2(directory, name, flags, Mode::empty(), how)
}

impl Inode {
    /// One at that place, which the guest has looked up so often.
    fn new(
        number: u64,
        key: Key,
        place: Place,
        lookups: u64,
        living: &Arc<AtomicUsize>,
    ) -> Arc<Self> {
        living.fetch_add(1, Ordering::Relaxed);
        Arc::new(Self {
            number,
            nature: OnceLock::new(),
            key,
            place: Mutex::new(place),
            is_used: AtomicBool::new(false),
            descriptor: Mutex::default(),
            lookups: AtomicU64::new(lookups),
            pins: AtomicUsize::new(0),
            seen: Seen::default(),
            opened: Mutex::default(),
            living: Arc::clone(living),
        })
    }

    /// By what it is known.
    pub fn key(&self) -> Key {
        self.key
    }

    /// What it is. Of a file that has not been found since the guest came here, that is seen now.
    ///
    /// # Errors
    ///
    /// [`Errno::STALE`] if it cannot be found again.
    pub fn nature(self: &Arc<Self>, inodes: &Inodes) -> Result<Nature, Errno> {
        if let Some(nature) = self.nature.get() {
            return Ok(*nature);
        }
        self.descriptor(inodes)?;
        self.nature.get().copied().ok_or(Errno::STALE)
    }

    /// What tells files of its mount from those of the root's: a file may be in several places, each of which is one of
    /// its own to the guest. Zero is the root's.
    pub fn apart(&self, inodes: &Inodes) -> u64 {
        // Numbers of mounts are small and near each other; any odd factor tells them apart, and this one spreads them.
        (self.key.mount ^ inodes.root.key.mount).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    fn id(&self) -> Id {
        (self.key.device, self.key.inode, self.key.born)
    }

    /// How often the guest has looked it up.
    pub fn lookups(&self) -> u64 {
        self.lookups.load(Ordering::Relaxed)
    }

    /// Its directory and name, if it can be found by these.
    pub fn place(&self) -> Option<(Arc<Inode>, CString)> {
        let place = self.place.lock().unpoisoned();
        Some((place.directory.clone()?, place.name.clone()))
    }

    /// It can be found there.
    pub fn set_place(&self, directory: &Arc<Inode>, name: CString) {
        *self.place.lock().unpoisoned() = Place { directory: Some(Arc::clone(directory)), name };
    }

    /// A name for it.
    ///
    /// # Errors
    ///
    /// [`Errno::STALE`] if it cannot be found again.
    pub fn descriptor(self: &Arc<Self>, inodes: &Inodes) -> Result<Arc<Descriptor>, Errno> {
        self.descriptor_below(inodes, MAX_DEPTH_DIRECTORIES)
    }

    fn descriptor_below(
        self: &Arc<Self>,
        inodes: &Inodes,
        depth: usize,
    ) -> Result<Arc<Descriptor>, Errno> {
        self.is_used.store(true, Ordering::Relaxed);
        if let Some(descriptor) = &*self.descriptor.lock().unpoisoned() {
            return Ok(Arc::clone(descriptor));
        }
        // The places are what we remember; they need not make a tree any more.
        let depth = depth.checked_sub(1).ok_or(Errno::STALE)?;
        let found = self.find_again(inodes, depth)?;
        *self.descriptor.lock().unpoisoned() = Some(Arc::clone(&found));
        inodes.note_open(self);
        Ok(found)
    }

    fn find_again(&self, inodes: &Inodes, depth: usize) -> Result<Arc<Descriptor>, Errno> {
        let place = self.place.lock().unpoisoned();
        let directory = place.directory.clone().ok_or(Errno::STALE)?;
        let name = place.name.clone();
        drop(place);
        let descriptor = directory.descriptor_below(inodes, depth)?;
        let found = inodes.open_in(&directory, &descriptor, &name);
        let (found, status, nature) =
            found.map_err(|errno| if errno == Errno::NOENT { Errno::STALE } else { errno })?;
        let is_same = key(&status) == self.key && *self.nature.get_or_init(|| nature) == nature;
        if is_same { Ok(inodes.count(found)) } else { Err(Errno::STALE) }
    }

    /// It was found there: it may have been moved, or have another name that will last longer.
    fn note_place(&self, directory: &Arc<Inode>, name: &CStr) {
        if self.number == ROOT || self.is_at(directory, name) {
            return;
        }
        let mut place = self.place.lock().unpoisoned();
        if place.directory.is_some() {
            *place = Place { directory: Some(Arc::clone(directory)), name: name.to_owned() };
        }
    }

    /// Whether it is to be sought there.
    fn is_at(&self, directory: &Arc<Inode>, name: &CStr) -> bool {
        let place = self.place.lock().unpoisoned();
        let is_there = |known: &Arc<Inode>| Arc::ptr_eq(known, directory);
        place.directory.as_ref().is_some_and(is_there) && *place.name == *name
    }
}

impl Drop for Inode {
    fn drop(&mut self) {
        self.living.fetch_sub(1, Ordering::Relaxed);
        // The directories above, of which there may be more than the stack has room for, one by one.
        let mut above = self.place.lock().unpoisoned().directory.take();
        while let Some(directory) = above.and_then(Arc::into_inner) {
            above = directory.place.lock().unpoisoned().directory.take();
        }
    }
}

/// Keeps the descriptor of a file open while its name changes.
pub struct Pin(Option<Arc<Inode>>);

impl Pin {
    fn new(inode: Arc<Inode>, inodes: &Inodes) -> Self {
        inode.pins.fetch_add(1, Ordering::SeqCst);
        // If it cannot be opened now, it cannot be later.
        let _ = inode.descriptor(inodes);
        Self(Some(inode))
    }

    /// The name is gone: the descriptor is all that there is.
    pub fn forget_place(self) {
        if let Some(inode) = &self.0 {
            inode.place.lock().unpoisoned().directory = None;
        }
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        if let Some(inode) = &self.0 {
            inode.pins.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

impl Inodes {
    /// Nothing but the root of a share, of which what is `closed` is not shown.
    ///
    /// # Errors
    ///
    /// When the directory cannot be looked at.
    pub fn new(root: OwnedFd, limits: Limits, closed: Option<Arc<Closed>>) -> Result<Self, Errno> {
        let status = attributes(&root)?;
        let is_closed = !Kind::of(&root)?.may_be_shown(limits.allows_unknown_kinds);
        let count = Arc::default();
        let living = Arc::default();
        let descriptor = counted(&count, root);
        let root = Inode::new(ROOT, key(&status), Place::default(), 1, &living);
        let _ = root.nature.set(Nature { kind: kind(&status), is_closed });
        *root.descriptor.lock().unpoisoned() = Some(descriptor);
        let (known, open) = (Mutex::new(Known::new(&root)), Mutex::default());
        Ok(Self { root, known, open, count, living, limits, closed })
    }

    /// A file that was known elsewhere, and is to be found again.
    pub fn restored(&self, number: u64, key: Key, lookups: u64) -> Arc<Inode> {
        Inode::new(number, key, Place::default(), lookups, &self.living)
    }

    /// How many files there may be.
    pub fn most_files(&self) -> usize {
        self.limits.files
    }

    /// The root.
    pub fn root(&self) -> &Arc<Inode> {
        &self.root
    }

    /// All that the guest knows, and the number that the next file gets.
    pub fn known_files(&self) -> (Vec<Arc<Inode>>, u64) {
        let known = self.known.lock().unpoisoned();
        (known.by_number.values().cloned().collect(), known.next)
    }

    /// The guest knows these.
    pub fn know(&self, known: Known) {
        *self.known.lock().unpoisoned() = known;
    }

    fn count(&self, file: OwnedFd) -> Arc<Descriptor> {
        counted(&self.count, file)
    }

    /// As at first: a new kernel knows nothing.
    pub fn clear(&self) {
        *self.known.lock().unpoisoned() = Known::new(&self.root);
        self.open.lock().unpoisoned().retain(|inode| inode.strong_count() > 0);
    }

    /// The file that the guest calls so.
    ///
    /// # Errors
    ///
    /// [`Errno::STALE`] when there is none.
    pub fn get(&self, number: u64) -> Result<Arc<Inode>, Errno> {
        self.known.lock().unpoisoned().by_number.get(&number).cloned().ok_or(Errno::STALE)
    }

    /// Open what may need a descriptor more than there is room for.
    fn open(&self, directory: impl AsFd, name: &CStr) -> Result<OwnedFd, Errno> {
        match open_below(&directory, name) {
            Err(Errno::MFILE | Errno::NFILE) if self.close_some(self.limits.descriptors / 4) => {
                open_below(&directory, name)
            }
            other => other,
        }
    }

    /// Open what has a name in a directory, and see what it is.
    fn open_in(
        &self,
        directory: &Arc<Inode>,
        descriptor: &Descriptor,
        name: &CStr,
    ) -> Result<(OwnedFd, Statx, Nature), Errno> {
        if directory.nature(self)?.is_closed {
            return Err(Errno::NOENT);
        }
        let found = self.open(descriptor, name)?;
        let status = attributes(&found)?;
        // A device has one kind of file system, and that of the directory may be shown.
        let is_closed = device(&status) != directory.key.device
            && !Kind::of(&found)?.may_be_shown(self.limits.allows_unknown_kinds);
        let is_closed = self.is_closed(directory, name, &status)? || is_closed;
        let is_closed =
            is_closed || (self.limits.closes_unreadable && is_unreadable(&found, &status));
        let nature = Nature { kind: kind(&status), is_closed };
        Ok((found, status, nature))
    }

    /// Look a name up in a directory; the guest knows the file from now on.
    ///
    /// # Errors
    ///
    /// The host's; [`Errno::NFILE`] if the guest knows too many files.
    pub fn look_up(
        &self,
        directory: &Arc<Inode>,
        name: &CStr,
    ) -> Result<(Arc<Inode>, Statx), Errno> {
        let descriptor = directory.descriptor(self)?;
        match self.look_up_known(directory, &descriptor, name)? {
            Some(found) => Ok(found),
            None => self.look_up_new(directory, &descriptor, name),
        }
    }

    /// The same of what was just made, which the guest mostly does not know yet.
    ///
    /// # Errors
    ///
    /// As [`Self::look_up`].
    pub fn look_up_made(
        &self,
        directory: &Arc<Inode>,
        name: &CStr,
    ) -> Result<(Arc<Inode>, Statx), Errno> {
        self.look_up_new(directory, &*directory.descriptor(self)?, name)
    }

    /// The same of what the guest knows already: it need not be opened, which takes one call instead of three. None
    /// if it does not, or if only a descriptor tells what may be shown of it.
    fn look_up_known(
        &self,
        directory: &Arc<Inode>,
        descriptor: &Descriptor,
        name: &CStr,
    ) -> Result<Option<(Arc<Inode>, Statx)>, Errno> {
        if directory.nature(self)?.is_closed {
            return Err(Errno::NOENT);
        }
        let status = attributes_in(descriptor, name)?;
        if device(&status) != directory.key.device {
            return Ok(None);
        }
        let is_closed = self.is_closed(directory, name, &status)?;
        let known = self.known.lock().unpoisoned();
        let Some(inode) = known.get(key(&status)) else { return Ok(None) };
        if inode.nature.get().is_none() {
            return Ok(None);
        }
        find_known(known, &inode, Nature { kind: kind(&status), is_closed })?;
        inode.note_place(directory, name);
        Ok(Some((inode, status)))
    }

    fn look_up_new(
        &self,
        directory: &Arc<Inode>,
        descriptor: &Descriptor,
        name: &CStr,
    ) -> Result<(Arc<Inode>, Statx), Errno> {
        let (found, status, nature) = self.open_in(directory, descriptor, name)?;
        let place = Place { directory: Some(Arc::clone(directory)), name: name.to_owned() };
        let mut known = self.known.lock().unpoisoned();
        if let Some(inode) = known.get(key(&status)) {
            find_known(known, &inode, nature)?;
            inode.note_place(directory, name);
            return Ok((inode, status));
        }
        if self.living.load(Ordering::Relaxed) >= self.limits.files {
            return Err(Errno::NFILE);
        }
        let number = known.next;
        known.next += 1;
        let inode = Inode::new(number, key(&status), place, 1, &self.living);
        let _ = inode.nature.set(nature);
        *inode.descriptor.lock().unpoisoned() = Some(self.count(found));
        inode.is_used.store(true, Ordering::Relaxed);
        known.by_key.insert(inode.key, number);
        known.by_number.insert(number, Arc::clone(&inode));
        drop(known);
        self.note_open(&inode);
        Ok((inode, status))
    }

    /// Whether what was found by this name there is shown as an empty directory.
    ///
    /// # Errors
    ///
    /// [`Errno::NOENT`] if it is not shown at all.
    fn is_closed(&self, directory: &Inode, name: &CStr, found: &Statx) -> Result<bool, Errno> {
        let Some(closed) = &self.closed else { return Ok(false) };
        let is_directory = FileType::from_raw_mode(found.stx_mode.into()) == FileType::Directory;
        match closed.judge(directory.id(), name, id_of(found), is_directory) {
            Shown::Open => Ok(false),
            Shown::Empty => Ok(true),
            Shown::Missing => Err(Errno::NOENT),
        }
    }

    /// Whether a name is one by which nothing is to be found in a directory, whatever is there.
    pub fn is_closed_name(&self, directory: &Inode, name: &CStr) -> bool {
        self.closed.as_ref().is_some_and(|closed| closed.has_name(directory.id(), name))
    }

    /// The guest knows a file by one more look-up.
    ///
    /// # Errors
    ///
    /// [`Errno::STALE`] when it does not know it.
    pub fn know_again(&self, number: u64) -> Result<(), Errno> {
        let known = self.known.lock().unpoisoned();
        let inode = known.by_number.get(&number).ok_or(Errno::STALE)?;
        inode.lookups.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// The guest's kernel has forgotten as many look-ups.
    pub fn forget(&self, number: u64, lookups: u64) {
        if number == ROOT {
            return;
        }
        let mut known = self.known.lock().unpoisoned();
        let Some(inode) = known.by_number.get(&number) else { return };
        let before = inode.lookups.load(Ordering::Relaxed);
        inode.lookups.store(before.saturating_sub(lookups), Ordering::Relaxed);
        if before <= lookups {
            let key = inode.key;
            known.by_number.remove(&number);
            known.by_key.remove(&key);
        }
    }

    /// A name is about to go, or to become another's: as long as the pin is there, what it names is not
    /// sought by it.
    pub fn pin(&self, directory: &Arc<Inode>, name: &CStr) -> Pin {
        let inode = self.known_by(directory, name).filter(|inode| inode.is_at(directory, name));
        inode.map_or(Pin(None), |inode| Pin::new(inode, self))
    }

    /// What the guest knows of what has this name now.
    fn known_by(&self, directory: &Arc<Inode>, name: &CStr) -> Option<Arc<Inode>> {
        let descriptor = directory.descriptor(self).ok()?;
        let status = attributes_in(&descriptor, name).ok()?;
        self.known.lock().unpoisoned().get(key(&status)).filter(|inode| inode.number != ROOT)
    }

    /// What has this name now can be sought by it.
    pub fn name(&self, directory: &Arc<Inode>, name: &CStr) {
        if let Some(inode) = self.known_by(directory, name) {
            let directory = Some(Arc::clone(directory));
            *inode.place.lock().unpoisoned() = Place { directory, name: name.to_owned() };
        }
    }

    /// A descriptor was opened; close others if there are too many.
    fn note_open(&self, inode: &Arc<Inode>) {
        self.open.lock().unpoisoned().push_back(Arc::downgrade(inode));
        if self.count.load(Ordering::Relaxed) > self.limits.descriptors {
            self.close_some(self.limits.descriptors / 8 + 1);
        }
    }

    /// Close up to so many descriptors that have not been used for a while; whether there were any.
    fn close_some(&self, wanted: usize) -> bool {
        let mut open = self.open.lock().unpoisoned();
        let mut closed = 0;
        // Each is looked at twice at most: the first time it may have been used.
        for _ in 0..2 * open.len() {
            let Some(candidate) = open.pop_front() else { break };
            let Some(inode) = candidate.upgrade() else { continue };
            // What cannot be found again stays open as long as it is known.
            if inode.place.lock().unpoisoned().directory.is_none() {
                continue;
            }
            let is_pinned = inode.pins.load(Ordering::SeqCst) > 0;
            if is_pinned || inode.is_used.swap(false, Ordering::Relaxed) {
                open.push_back(candidate);
                continue;
            }
            let descriptor = inode.descriptor.lock().unpoisoned().take();
            closed += usize::from(descriptor.is_some());
            if closed >= wanted {
                break;
            }
        }
        closed > 0
    }
}

impl Known {
    fn new(root: &Arc<Inode>) -> Self {
        Self {
            by_number: HashMap::from([(ROOT, Arc::clone(root))]),
            by_key: HashMap::from([(root.key, ROOT)]),
            next: ROOT + 1,
        }
    }

    /// The root and these, with what the next is called.
    pub fn of(root: &Arc<Inode>, files: impl Iterator<Item = Arc<Inode>>, next: u64) -> Self {
        let mut known = Self::new(root);
        for file in files.filter(|file| file.number != ROOT) {
            known.by_key.insert(file.key, file.number);
            known.by_number.insert(file.number, file);
        }
        let last = known.by_number.keys().max().copied().unwrap_or(ROOT);
        known.next = next.max(last.saturating_add(1));
        known
    }

    fn get(&self, key: Key) -> Option<Arc<Inode>> {
        self.by_key.get(&key).and_then(|number| self.by_number.get(number)).cloned()
    }
}

/// Whether this is a directory that we may not list or search. Its mode says so of most that everybody may.
fn is_unreadable(found: &OwnedFd, status: &Statx) -> bool {
    let is_everybodys =
        Mode::from_raw_mode(status.stx_mode.into()).contains(Mode::ROTH | Mode::XOTH);
    let open = || {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        openat(found, c".", flags, Mode::empty())
    };
    kind(status) == FileType::Directory && !is_everybodys && matches!(open(), Err(Errno::ACCESS))
}

/// The guest knows a file, and knows it once more now that it was found as this.
///
/// # Errors
///
/// [`Errno::NOENT`] if it is closed by this name, and had another when it was found.
fn find_known(known: MutexGuard<'_, Known>, inode: &Inode, nature: Nature) -> Result<(), Errno> {
    if nature.is_closed && !inode.nature.get_or_init(|| nature).is_closed {
        return Err(Errno::NOENT);
    }
    inode.lookups.fetch_add(1, Ordering::Relaxed);
    drop(known);
    Ok(())
}

#[cfg(test)]
impl Inodes {
    /// Have so many files be the most.
    pub fn limit_files(&mut self, most: usize) {
        self.limits.files = most;
    }

    /// Descriptors that are open now.
    pub fn open_descriptors(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }
}
