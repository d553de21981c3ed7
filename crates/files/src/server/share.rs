//! One share: a directory, what the guest knows of it, and what it may do.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use locks::Unpoisoned;
use rustix::buffer::spare_capacity;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, chmodat, fchmod, getxattr, openat};
use rustix::io::Errno;
use vm_memory::{GuestMemoryBackend, GuestMemoryMmap, GuestMemoryRegion};

use super::closed::Closed;
use super::descriptor::{OWN_DESCRIPTORS, number};
use super::handles::Handles;
use super::inodes::{Inode, Inodes, Limits, Open, attributes};
use super::nine::Fids;
use crate::limits::{GUEST_BYTES_PER_FILE, MAX_OWNER_BYTES, MIN_FILES};
use crate::message::{ShareRecord, flags};
use crate::owner::{OWNER, Owner, PERMISSIONS};
use crate::wire::Attr;

/// A share.
pub struct Share {
    pub inodes: Inodes,
    pub handles: Handles,
    pub is_writable: bool,
    /// Files may be given set-user-ID and set-group-ID bits and `security.*` attributes.
    pub allows_privileges: bool,
    /// We are root: what the guest's users make can be given to them.
    pub is_root: bool,
    /// The guest has said hello, and said what it can.
    pub is_started: AtomicBool,
    /// What kernel and server have agreed on.
    pub agreed: Agreed,
    /// Its files belong to the owners in their attributes.
    pub has_owners: bool,
    /// Nobody but the guest changes it.
    pub is_exclusive: bool,
    /// What the guest's programs write may come later.
    pub is_written_back: bool,
    /// The guest sees extended attributes.
    pub has_attributes: bool,
    /// A guest that goes on may find another directory.
    pub may_be_another: bool,
    /// What a guest calls files by whose driver speaks 9p.
    pub fids: Option<Fids>,
    /// Seconds and nanoseconds for which names and attributes may be believed.
    pub validity: (u64, u32),
    /// It has had no request, and no saved state.
    is_untouched: AtomicBool,
    memory: Arc<GuestMemoryMmap>,
    own_descriptors: OwnedFd,
    owners: Owners,
    /// The device of the root, whose files keep their inode numbers.
    device: u64,
}

/// What a guest's kernel does of its own accord, as it has been agreed when it mounted the share.
#[derive(Debug, Default)]
pub struct Agreed(AtomicU8);

impl Agreed {
    /// It does not tell when it opens and closes files.
    pub const OPENS_SILENTLY: u8 = 1;
    /// Nor when it opens and closes directories.
    pub const LISTS_SILENTLY: u8 = 2;
    /// What programs write is in its memory for a while.
    pub const WRITES_BACK: u8 = 4;

    /// This has been agreed on, of these bits.
    pub fn set(&self, bits: u8) {
        let known = Self::OPENS_SILENTLY | Self::LISTS_SILENTLY | Self::WRITES_BACK;
        self.0.store(bits & known, Ordering::Relaxed);
    }

    /// All of it.
    pub fn bits(&self) -> u8 {
        self.0.load(Ordering::Relaxed)
    }

    pub fn opens_silently(&self) -> bool {
        self.bits() & Self::OPENS_SILENTLY != 0
    }

    pub fn lists_silently(&self) -> bool {
        self.bits() & Self::LISTS_SILENTLY != 0
    }

    pub fn writes_back(&self) -> bool {
        self.bits() & Self::WRITES_BACK != 0
    }
}

/// How many files a guest with this memory may know: one that knows more than it has room for does not forget.
fn most_files(memory: &GuestMemoryMmap) -> usize {
    let bytes: u64 = memory.iter().map(|region| region.len()).sum();
    usize::try_from(bytes / GUEST_BYTES_PER_FILE).unwrap_or(usize::MAX).max(MIN_FILES)
}

/// Users and groups that change places.
struct Owners {
    host: (u32, u32),
    guest: (u32, u32),
}

/// `number`, unless it is one of the two.
fn exchange(number: u32, one: u32, other: u32) -> u32 {
    match number {
        _ if number == one => other,
        _ if number == other => one,
        _ => number,
    }
}

/// Whether a file of this kind has attributes that say whose it is ([`crate::owner`]).
pub fn can_be_recorded(kind: FileType) -> bool {
    matches!(kind, FileType::RegularFile | FileType::Directory)
}

impl Share {
    /// A share that nobody has mounted; what is `closed` is not shown, if the record says so.
    pub fn new(
        directory: OwnedFd,
        record: &ShareRecord,
        memory: Arc<GuestMemoryMmap>,
        descriptors: usize,
        closed: &Arc<Closed>,
    ) -> Result<Self, Errno> {
        let status = attributes(&directory)?;
        let is_writable = record.flags & flags::WRITABLE != 0;
        let hides_secrets = record.flags & flags::HIDES_SECRETS != 0;
        let limits = Limits {
            // The other half is for what is open.
            descriptors: descriptors / 2,
            files: most_files(&memory),
            allows_unknown_kinds: record.flags & flags::ALLOWS_UNKNOWN_KINDS != 0,
            // Whoever may change a directory may come to read it.
            closes_unreadable: hides_secrets && !is_writable,
        };
        let closed = hides_secrets.then(|| Arc::clone(closed));
        let for_naming = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self {
            inodes: Inodes::new(directory, limits, closed)?,
            handles: Handles::new(descriptors / 2),
            is_writable,
            allows_privileges: record.flags & flags::ALLOWS_PRIVILEGES != 0,
            is_root: rustix::process::geteuid().is_root(),
            is_started: AtomicBool::new(false),
            agreed: Agreed::default(),
            has_owners: record.flags & flags::HAS_OWNERS != 0,
            is_exclusive: record.flags & flags::EXCLUSIVE != 0,
            is_written_back: record.flags & flags::WRITTEN_BACK != 0,
            has_attributes: record.flags & flags::WITHOUT_ATTRIBUTES == 0,
            may_be_another: record.flags & flags::MAY_BE_ANOTHER != 0,
            fids: (record.flags & flags::NINE != 0).then(Fids::default),
            validity: (record.validity / 1000, (record.validity % 1000) as u32 * 1_000_000),
            is_untouched: AtomicBool::new(true),
            memory,
            own_descriptors: openat(CWD, OWN_DESCRIPTORS, for_naming, Mode::empty())?,
            owners: Owners {
                host: (record.host_user, record.host_group),
                guest: (record.guest_user, record.guest_group),
            },
            device: rustix::fs::makedev(status.stx_dev_major, status.stx_dev_minor),
        })
    }

    /// It begins now, with a request or with what its guest knows; whether it had not yet.
    pub fn begins(&self) -> bool {
        self.is_untouched.load(Ordering::Relaxed)
            && self.is_untouched.swap(false, Ordering::Relaxed)
    }

    pub fn memory(&self) -> &GuestMemoryMmap {
        &self.memory
    }

    /// A user as the other side calls it.
    pub fn user(&self, number: u32) -> u32 {
        exchange(number, self.owners.host.0, self.owners.guest.0)
    }

    /// A group as the other side calls it.
    pub fn group(&self, number: u32) -> u32 {
        exchange(number, self.owners.host.1, self.owners.guest.1)
    }

    /// The permissions of what is made or changed: set-user-ID and set-group-ID bits of a file would give
    /// other users of the host the rights of who runs us, or of root. On a directory they mean something else
    /// (inode(7)).
    pub fn mode(&self, kind: FileType, mode: u32) -> Mode {
        if self.has_owners {
            let is_directory = kind == FileType::Directory;
            let recorded = can_be_recorded(kind).then(|| Owner::mode_on_host(mode, is_directory));
            return Mode::from_raw_mode(recorded.unwrap_or(mode & 0o777));
        }
        let is_stripped = kind != FileType::Directory && !self.allows_privileges;
        Mode::from_raw_mode(mode & if is_stripped { 0o1777 } else { 0o7777 })
    }

    /// Whether the guest may set attributes that the host's kernel believes. Where owners are recorded it may not: who
    /// writes to a program takes capabilities from it, which no request would tell here.
    pub fn may_be_believed(&self) -> bool {
        self.allows_privileges && !self.has_owners
    }

    /// Nothing is changed in a share that is only to be read.
    pub fn check_writable(&self) -> Result<(), Errno> {
        if self.is_writable { Ok(()) } else { Err(Errno::ROFS) }
    }

    /// Open what is known by an `O_PATH` descriptor; only regular files and directories can be.
    pub fn open(&self, inode: &Arc<Inode>, flags: OFlags) -> Result<OwnedFd, Errno> {
        let nature = inode.nature(&self.inodes)?;
        // What is closed is not read, and perhaps cannot be.
        let flags = if nature.is_closed { OFlags::PATH | OFlags::DIRECTORY } else { flags };
        match nature.kind {
            FileType::RegularFile | FileType::Directory => {}
            FileType::Symlink => return Err(Errno::LOOP),
            _ => return Err(Errno::OPNOTSUPP),
        }
        let descriptor = inode.descriptor(&self.inodes)?;
        let name = number(descriptor.as_fd());
        let flags = flags | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
        openat(&self.own_descriptors, name, flags, Mode::empty())
    }

    /// Have `act` do something with what a request names by the numbers of its file and of its handle. Where
    /// the guest opens such files silently it has no handle, and what stands for it is opened when first needed.
    pub fn with_open<T>(
        &self,
        (node, handle): (u64, u64),
        act: impl FnOnce(&Open, &Arc<Inode>) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        if self.agreed.opens_silently() || (handle == 0 && self.agreed.lists_silently()) {
            let inode = self.inodes.get(node)?;
            let is_directory = inode.nature(&self.inodes)?.kind == FileType::Directory;
            if !is_directory && !self.agreed.opens_silently() {
                return Err(Errno::BADF);
            }
            let descriptor = inode.descriptor(&self.inodes)?;
            act(descriptor.reader(|| self.open(&inode, OFlags::RDONLY))?, &inode)
        } else {
            let handle = self.handles.get(handle)?;
            act(&handle.open, &handle.inode)
        }
    }

    /// Have `act` do something to what a descriptor names, by directory and name: for calls that take no
    /// `O_PATH` descriptor.
    pub fn by_name<T>(
        &self,
        inode: &Arc<Inode>,
        act: impl FnOnce(&OwnedFd, &str) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let descriptor = inode.descriptor(&self.inodes)?;
        act(&self.own_descriptors, &number(descriptor.as_fd()))
    }

    /// The same with a path, for calls that take no directory.
    pub fn by_path<T>(
        &self,
        inode: &Arc<Inode>,
        act: impl FnOnce(&str) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let descriptor = inode.descriptor(&self.inodes)?;
        act(&format!("{OWN_DESCRIPTORS}/{}", number(descriptor.as_fd())))
    }

    /// Give a file these permissions on the host.
    pub fn change_mode(&self, inode: &Arc<Inode>, mode: Mode) -> Result<(), Errno> {
        if let Some(done) = self.if_open(inode, |file| fchmod(file, mode)) {
            return done;
        }
        self.by_name(inode, |own, name| chmodat(own, name, mode, AtFlags::empty()))
    }

    /// Have `act` do something to an open file, if the guest has this one open; that is much quicker than by
    /// any name.
    pub fn if_open<T>(
        &self,
        inode: &Inode,
        act: impl FnOnce(&OwnedFd) -> Result<T, Errno>,
    ) -> Option<Result<T, Errno>> {
        let open = inode.opened.lock().unpoisoned().upgrade()?;
        Some(act(&open.file))
    }

    /// Whose a file is, recorded or not, and its permissions.
    pub fn owner(&self, inode: &Arc<Inode>, status: &rustix::fs::Statx) -> Owner {
        self.recorded(inode).unwrap_or_else(|| self.unrecorded_owner(status))
    }

    /// Whose a file is that has no record, and its permissions.
    pub fn unrecorded_owner(&self, status: &rustix::fs::Statx) -> Owner {
        Owner {
            user: self.user(status.stx_uid),
            group: self.group(status.stx_gid),
            mode: u32::from(status.stx_mode) & PERMISSIONS,
        }
    }

    /// What is recorded of a file, where that counts.
    fn recorded(&self, inode: &Arc<Inode>) -> Option<Owner> {
        let kind = inode.nature(&self.inodes).ok()?.kind;
        if !self.has_owners || !can_be_recorded(kind) {
            return None;
        }
        let mut value = Vec::with_capacity(MAX_OWNER_BYTES);
        self.by_path(inode, |path| getxattr(path, OWNER, spare_capacity(&mut value))).ok()?;
        Owner::parse(&value)
    }

    /// Attributes as the guest sees them.
    pub fn attributes(&self, inode: &Arc<Inode>, status: &rustix::fs::Statx) -> Attr {
        // It has been found, or else there were no attributes.
        let is_closed = inode.nature(&self.inodes).is_ok_and(|nature| nature.is_closed);
        let owner = self.owner(inode, status);
        let device = rustix::fs::makedev(status.stx_dev_major, status.stx_dev_minor);
        let time = |seconds: i64| seconds as u64;
        // Two file systems may use the same number, and the guest sees one file system.
        let apart = if device == self.device { 0 } else { device.rotate_right(16) };
        Attr {
            ino: status.stx_ino ^ apart,
            size: if is_closed { 0 } else { status.stx_size },
            blocks: status.stx_blocks,
            atime: time(status.stx_atime.tv_sec),
            mtime: time(status.stx_mtime.tv_sec),
            ctime: time(status.stx_ctime.tv_sec),
            atimensec: status.stx_atime.tv_nsec,
            mtimensec: status.stx_mtime.tv_nsec,
            ctimensec: status.stx_ctime.tv_nsec,
            mode: u32::from(status.stx_mode) & !PERMISSIONS | owner.mode,
            nlink: status.stx_nlink,
            uid: owner.user,
            gid: owner.group,
            // As Linux encodes a device in 32 bits (new_encode_dev).
            rdev: status.stx_rdev_minor & 0xff
                | status.stx_rdev_major << 8
                | (status.stx_rdev_minor & !0xff) << 12,
            blksize: status.stx_blksize,
            flags: 0,
        }
    }
}
