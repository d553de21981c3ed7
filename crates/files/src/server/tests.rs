//! The server as a guest's kernel sees it, with everything in one process.

mod closed;
mod exclusive;
mod known;
mod nine;
mod owned;
mod owners;
mod privileges;

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::closed::Closed;
use super::dispatch::carry_out;
use super::request::Ask;
use super::share::Share;
use crate::message::{Range, ShareRecord, flags};
use crate::wire::*;

const MEMORY_BYTES: usize = 1 << 20;
const QUESTION: u64 = 0;
const ANSWER: u64 = 0x4_0000;
const ANSWER_BYTES: u64 = 0x4_0000;

/// A directory that vanishes.
struct Place(PathBuf);

impl Place {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("biv-files-{}-{number}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(path.join("share/below")).unwrap();
        fs::write(path.join("secret"), "secret").unwrap();
        fs::write(path.join("share/file"), "contents").unwrap();
        Self(path)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.join("share").join(name)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A kernel that has mounted a share.
struct Kernel {
    share: Share,
    /// Who asks.
    user: u32,
    memory: Arc<GuestMemoryMmap>,
}

impl Kernel {
    fn unstarted(path: &Path, writable: bool, descriptors: usize, guest_owner: (u32, u32)) -> Self {
        let closed = Closed::find(&[path.to_owned()]);
        Self::unstarted_with(path, writable, descriptors, guest_owner, closed)
    }

    fn unstarted_with(
        path: &Path,
        writable: bool,
        descriptors: usize,
        guest_owner: (u32, u32),
        closed: Closed,
    ) -> Self {
        let memory = GuestMemoryMmap::from_ranges(&[(GuestAddress(0), MEMORY_BYTES)]).unwrap();
        let memory = Arc::new(memory);
        let directory = openat(CWD, path, OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
        let us = fs::metadata(std::env::temp_dir()).map(|_| rustix::process::getuid()).unwrap();
        let record = ShareRecord {
            validity: 1500,
            flags: flags::HIDES_SECRETS | if writable { flags::WRITABLE } else { 0 },
            host_user: us.as_raw(),
            host_group: rustix::process::getgid().as_raw(),
            guest_user: guest_owner.0,
            guest_group: guest_owner.1,
        };
        let share =
            Share::new(directory, &record, Arc::clone(&memory), descriptors, &Arc::new(closed));
        let share = share.unwrap();
        Self { share, user: us.as_raw(), memory }
    }

    fn new(path: &Path, writable: bool) -> Self {
        let us = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
        let kernel = Self::unstarted(path, writable, 1000, us);
        kernel.start();
        kernel
    }

    /// Where this is closed.
    fn with_closed(path: &Path, writable: bool, closed: Closed) -> Self {
        let us = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
        let kernel = Self::unstarted_with(path, writable, 1000, us, closed);
        kernel.start();
        kernel
    }

    fn start(&self) -> InitOut {
        let init = InitIn { major: 7, minor: 36, max_readahead: 1 << 17, flags: u32::MAX };
        self.ask(opcode::INIT, 0, &init, &[]).unwrap()
    }

    /// Ask; the answer's bytes.
    fn ask_bytes(
        &self,
        opcode: u32,
        node: u64,
        arguments: &(impl IntoBytes + Immutable),
        more: &[&[u8]],
    ) -> Result<Vec<u8>, Errno> {
        let arguments = [arguments.as_bytes(), &more.concat()].concat();
        let header = InHeader {
            len: (size_of::<InHeader>() + arguments.len()) as u32,
            opcode,
            unique: 77,
            nodeid: node,
            uid: self.user,
            gid: rustix::process::getgid().as_raw(),
            pid: 1234,
            ..InHeader::default()
        };
        let question = [header.as_bytes(), &arguments].concat();
        self.memory.write_slice(&question, GuestAddress(QUESTION)).unwrap();
        let readable = [Range { address: QUESTION, bytes: question.len() as u64 }];
        // In two parts, of which the first ends within the header of the answer.
        let writable = [
            Range { address: ANSWER, bytes: 10 },
            Range { address: ANSWER + 10, bytes: ANSWER_BYTES - 10 },
        ];
        let mut ask = Ask::new(&self.memory, &readable, &writable).unwrap();
        let length = carry_out(&self.share, &mut ask);
        let mut bytes = vec![0; length];
        self.memory.read_slice(&mut bytes, GuestAddress(ANSWER)).unwrap();
        if length == 0 {
            return Ok(Vec::new());
        }
        let (header, rest) = OutHeader::read_from_prefix(&bytes).unwrap();
        assert_eq!((header.len as usize, header.unique), (length, 77));
        match header.error {
            0 => Ok(rest.to_vec()),
            error => Err(Errno::from_raw_os_error(-error)),
        }
    }

    fn ask<T: FromBytes>(
        &self,
        opcode: u32,
        node: u64,
        arguments: &(impl IntoBytes + Immutable),
        more: &[&[u8]],
    ) -> Result<T, Errno> {
        let bytes = self.ask_bytes(opcode, node, arguments, more)?;
        Ok(T::read_from_prefix(&bytes).expect("the answer is long enough").0)
    }

    fn look_up(&self, directory: u64, name: &[u8]) -> Result<EntryOut, Errno> {
        let entry: EntryOut = self.ask(opcode::LOOKUP, directory, &(), &[name, b"\0"])?;
        if entry.nodeid == 0 { Err(Errno::NOENT) } else { Ok(entry) }
    }

    fn open(&self, node: u64, flags: OFlags) -> Result<u64, Errno> {
        let asked = OpenIn { flags: flags.bits(), open_flags: 0 };
        self.ask::<OpenOut>(opcode::OPEN, node, &asked, &[]).map(|out| out.fh)
    }

    /// Opens and closes a file; whether the guest may keep what it has of it.
    fn may_keep(&self, node: u64) -> bool {
        let out = self.ask::<OpenOut>(opcode::OPEN, node, &OpenIn::default(), &[]).unwrap();
        let release = ReleaseIn { fh: out.fh, ..ReleaseIn::default() };
        self.ask_bytes(opcode::RELEASE, node, &release, &[]).unwrap();
        out.open_flags & OPEN_KEEP_CACHE != 0
    }

    fn read(&self, node: u64, handle: u64, size: u32) -> Result<Vec<u8>, Errno> {
        let asked = ReadIn { fh: handle, size, ..ReadIn::default() };
        self.ask_bytes(opcode::READ, node, &asked, &[])
    }

    fn write(&self, node: u64, handle: u64, offset: u64, data: &[u8]) -> Result<u32, Errno> {
        let asked = WriteIn { fh: handle, offset, size: data.len() as u32, ..WriteIn::default() };
        self.ask::<WriteOut>(opcode::WRITE, node, &asked, &[data]).map(|out| out.size)
    }

    fn create(&self, directory: u64, name: &[u8]) -> Result<(EntryOut, u64), Errno> {
        let flags = (OFlags::RDWR | OFlags::EXCL).bits();
        let asked = CreateIn { flags, mode: 0o100_640, umask: 0, open_flags: 0 };
        let bytes = self.ask_bytes(opcode::CREATE, directory, &asked, &[name, b"\0"])?;
        let (entry, rest) = EntryOut::read_from_prefix(&bytes).unwrap();
        Ok((entry, OpenOut::read_from_prefix(rest).unwrap().0.fh))
    }

    /// Names in a directory, without the dots.
    fn names(&self, node: u64, plus: bool) -> Vec<Vec<u8>> {
        let handle = match self.ask::<OpenOut>(opcode::OPENDIR, node, &OpenIn::default(), &[]) {
            Ok(out) => out.fh,
            Err(errno) => {
                assert_eq!(errno, Errno::NOSYS);
                0
            }
        };
        let opcode = if plus { opcode::READDIRPLUS } else { opcode::READDIR };
        let (mut names, mut offset) = (Vec::new(), 0);
        loop {
            let asked = ReadIn { fh: handle, offset, size: 400, ..ReadIn::default() };
            let bytes = self.ask_bytes(opcode, node, &asked, &[]).unwrap();
            let mut rest = &bytes[..];
            if rest.is_empty() {
                return names;
            }
            while !rest.is_empty() {
                if plus {
                    rest = EntryOut::read_from_prefix(rest).unwrap().1;
                }
                let (dirent, after) = Dirent::read_from_prefix(rest).unwrap();
                let (name, _) = after.split_at(dirent.namelen as usize);
                rest = &after[(dirent.namelen as usize).next_multiple_of(8)..];
                offset = dirent.off;
                if name != b"." && name != b".." {
                    names.push(name.to_vec());
                }
            }
        }
    }
}

#[test]
fn files_are_found_read_written_and_removed() {
    let place = Place::new();
    let kernel = Kernel::new(&place.at(""), true);
    let entry = kernel.look_up(ROOT, b"file").unwrap();
    assert_eq!((entry.attr.size, entry.entry_valid, entry.attr_valid_nsec), (8, 1, 500_000_000));
    let handle = kernel.open(entry.nodeid, OFlags::RDWR).unwrap();
    assert_eq!(kernel.write(entry.nodeid, handle, 3, b"CENT").unwrap(), 4);
    assert_eq!(kernel.read(entry.nodeid, handle, 100).unwrap(), b"conCENTs");
    assert_eq!(fs::read(place.at("file")).unwrap(), b"conCENTs");
    let (made, handle) = kernel.create(ROOT, b"new \xff").unwrap();
    assert_eq!(made.attr.mode, 0o100_640);
    assert_eq!(kernel.create(ROOT, b"new \xff").unwrap_err(), Errno::EXIST);
    kernel.write(made.nodeid, handle, 0, b"kept").unwrap();
    kernel.ask_bytes(opcode::UNLINK, ROOT, &(), &[b"new \xff\0"]).unwrap();
    assert_eq!(kernel.look_up(ROOT, b"new \xff").unwrap_err(), Errno::NOENT);
    assert_eq!(kernel.read(made.nodeid, handle, 9).unwrap(), b"kept", "it is open");
    let size: AttrOut =
        kernel.ask(opcode::GETATTR, made.nodeid, &GetattrIn::default(), &[]).unwrap();
    assert_eq!((size.attr.size, size.attr.nlink), (4, 0));
}

#[test]
fn nothing_outside_of_the_share_is_reached() {
    let place = Place::new();
    symlink("../secret", place.at("up")).unwrap();
    symlink(place.0.join("secret"), place.at("away")).unwrap();
    symlink("..", place.at("parent")).unwrap();
    let kernel = Kernel::new(&place.at(""), true);
    for name in [&b".."[..], b".", b"", b"../secret", b"/etc/passwd", b"below/../../secret"] {
        assert_eq!(kernel.look_up(ROOT, name).unwrap_err(), Errno::INVAL, "{name:?}");
        let made = kernel.create(ROOT, name);
        assert_eq!(made.unwrap_err(), Errno::INVAL, "{name:?}");
    }
    for name in [&b"up"[..], b"away", b"parent"] {
        let link = kernel.look_up(ROOT, name).unwrap();
        assert_eq!(link.attr.mode & 0o170_000, 0o120_000, "a link is a link");
        assert_eq!(kernel.open(link.nodeid, OFlags::RDONLY).unwrap_err(), Errno::LOOP);
        assert!(kernel.look_up(link.nodeid, b"secret").is_err());
        assert!(kernel.create(link.nodeid, b"made").is_err());
        let asked = SetattrIn { valid: SetattrValid::SIZE.bits(), ..SetattrIn::default() };
        assert!(kernel.ask_bytes(opcode::SETATTR, link.nodeid, &asked, &[]).is_err());
        // Without O_EXCL, what is there is opened; not what a link leads to.
        let flags = CreateIn { flags: OFlags::RDWR.bits(), mode: 0o600, ..CreateIn::default() };
        assert!(kernel.ask_bytes(opcode::CREATE, ROOT, &flags, &[name, b"\0"]).is_err());
    }
    assert_eq!(fs::read(place.0.join("secret")).unwrap(), b"secret");
    assert!(!place.0.join("made").exists());
}

#[test]
fn the_hosts_kernel_is_not_shown() {
    let kernel = Kernel::new(Path::new("/"), false);
    for name in [&b"proc"[..], b"sys"] {
        let entry = kernel.look_up(ROOT, name).unwrap();
        assert_eq!(kernel.names(entry.nodeid, true), Vec::<Vec<u8>>::new());
        assert_eq!(kernel.look_up(entry.nodeid, b"self").unwrap_err(), Errno::NOENT);
    }
    // Not as a share either.
    let kernel = Kernel::new(Path::new("/proc"), true);
    assert_eq!(kernel.look_up(ROOT, b"self").unwrap_err(), Errno::NOENT);
    assert!(kernel.create(ROOT, b"x").is_err());
}

#[test]
fn what_is_special_is_not_opened() {
    let place = Place::new();
    let kernel = Kernel::new(&place.at(""), true);
    let asked = MknodIn { mode: 0o010_600, ..MknodIn::default() };
    let pipe: EntryOut = kernel.ask(opcode::MKNOD, ROOT, &asked, &[b"pipe\0"]).unwrap();
    assert_eq!(kernel.open(pipe.nodeid, OFlags::RDWR).unwrap_err(), Errno::OPNOTSUPP);
    for kind in [0o020_000, 0o060_000] {
        let asked = MknodIn { mode: kind | 0o600, rdev: 0x105, ..MknodIn::default() };
        let made = kernel.ask_bytes(opcode::MKNOD, ROOT, &asked, &[b"device\0"]);
        assert_eq!(made.unwrap_err(), Errno::PERM);
    }
}

#[test]
fn a_share_to_be_read_is_only_read() {
    let place = Place::new();
    let before = fs::metadata(place.at("file")).unwrap();
    let kernel = Kernel::new(&place.at(""), false);
    let entry = kernel.look_up(ROOT, b"file").unwrap();
    assert_eq!(kernel.open(entry.nodeid, OFlags::RDONLY).unwrap_err(), Errno::NOSYS);
    assert_eq!(kernel.read(entry.nodeid, 0, 100).unwrap(), b"contents");
    let mut names = kernel.names(ROOT, true);
    names.sort();
    assert_eq!(names, [b"below".to_vec(), b"file".to_vec()]);
    let node = entry.nodeid;
    let everything = SetattrIn { valid: u32::MAX, ..SetattrIn::default() };
    let refused = [
        kernel.write(node, 0, 0, b"x").map(|_| Vec::new()),
        kernel.create(ROOT, b"new").map(|_| Vec::new()),
        kernel.ask_bytes(opcode::SETATTR, node, &everything, &[]),
        kernel.ask_bytes(opcode::UNLINK, ROOT, &(), &[b"file\0"]),
        kernel.ask_bytes(opcode::RMDIR, ROOT, &(), &[b"below\0"]),
        kernel.ask_bytes(opcode::MKDIR, ROOT, &MkdirIn::default(), &[b"new\0"]),
        kernel.ask_bytes(opcode::MKNOD, ROOT, &MknodIn::default(), &[b"new\0"]),
        kernel.ask_bytes(opcode::SYMLINK, ROOT, &(), &[b"new\0", b"old\0"]),
        kernel.ask_bytes(opcode::LINK, ROOT, &LinkIn { oldnodeid: node }, &[b"new\0"]),
        kernel.ask_bytes(opcode::RENAME, ROOT, &RenameIn { newdir: ROOT }, &[b"file\0new\0"]),
        kernel.ask_bytes(opcode::SETXATTR, node, &SetxattrIn::default(), &[b"user.a\0"]),
        kernel.ask_bytes(opcode::REMOVEXATTR, node, &(), &[b"user.a\0"]),
        kernel.ask_bytes(opcode::FALLOCATE, node, &FallocateIn::default(), &[]),
    ];
    for (at, answer) in refused.into_iter().enumerate() {
        assert_eq!(answer.unwrap_err(), Errno::ROFS, "request {at}");
    }
    let after = fs::metadata(place.at("file")).unwrap();
    let facts = |m: &fs::Metadata| (m.ino(), m.len(), m.mode(), m.mtime_nsec(), m.ctime_nsec());
    assert_eq!(facts(&after), facts(&before));
}

#[test]
fn more_files_are_known_than_can_be_open() {
    let place = Place::new();
    let us = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let kernel = Kernel::unstarted(&place.at(""), true, 32, us);
    kernel.start();
    let names: Vec<_> = (0..200).map(|n| format!("below/f{n}")).collect();
    for name in &names {
        fs::write(place.at(name), name).unwrap();
    }
    let below = kernel.look_up(ROOT, b"below").unwrap().nodeid;
    let nodes: Vec<_> = (0..200)
        .map(|n| kernel.look_up(below, format!("f{n}").as_bytes()).unwrap().nodeid)
        .collect();
    // One has got another name from us, one from the host; one is another file now.
    let asked = RenameIn { newdir: ROOT };
    kernel.ask_bytes(opcode::RENAME, below, &asked, &[b"f3\0moved\0"]).unwrap();
    kernel.ask_bytes(opcode::UNLINK, below, &(), &[b"f4\0"]).unwrap();
    fs::rename(place.at("below/f5"), place.at("below/elsewhere")).unwrap();
    fs::remove_file(place.at("below/f6")).unwrap();
    fs::write(place.at("below/f6.new"), "another").unwrap();
    fs::rename(place.at("below/f6.new"), place.at("below/f6")).unwrap();
    for (n, &node) in nodes.iter().enumerate() {
        let handle = match kernel.open(node, OFlags::RDONLY) {
            // What the host has moved is found only if it is still open.
            Err(Errno::STALE) if n == 5 || n == 6 => continue,
            opened => opened.unwrap_or_else(|errno| panic!("file {n}: {errno}")),
        };
        assert_eq!(kernel.read(node, handle, 99).unwrap(), names[n].as_bytes());
        let asked = ReleaseIn { fh: handle, ..ReleaseIn::default() };
        kernel.ask_bytes(opcode::RELEASE, node, &asked, &[]).unwrap();
    }
    assert!(kernel.share.inodes.open_descriptors() <= 64);
    kernel.ask_bytes(opcode::FORGET, nodes[9], &ForgetIn { nlookup: 1 }, &[]).unwrap();
    assert_eq!(kernel.open(nodes[9], OFlags::RDONLY).unwrap_err(), Errno::STALE);
}

#[test]
fn links_names_and_attributes_are_as_they_are_on_the_host() {
    let place = Place::new();
    let kernel = Kernel::new(&place.at(""), true);
    let file = kernel.look_up(ROOT, b"file").unwrap();
    let link: EntryOut =
        kernel.ask(opcode::LINK, ROOT, &LinkIn { oldnodeid: file.nodeid }, &[b"link\0"]).unwrap();
    assert_eq!((link.nodeid, link.attr.nlink), (file.nodeid, 2));
    // As git makes its objects: linked to their name, and then the other name is removed.
    kernel.ask_bytes(opcode::UNLINK, ROOT, &(), &[b"file\0"]).unwrap();
    assert_eq!(kernel.look_up(ROOT, b"link").unwrap().nodeid, file.nodeid);
    let made: EntryOut = kernel.ask(opcode::SYMLINK, ROOT, &(), &[b"sym\0", b"a/\xfe\0"]).unwrap();
    let target = kernel.ask_bytes(opcode::READLINK, made.nodeid, &(), &[]).unwrap();
    assert_eq!(target, b"a/\xfe");
    let valid = SetattrValid::MODE | SetattrValid::MTIME | SetattrValid::SIZE;
    let asked = SetattrIn {
        valid: valid.bits(),
        mode: 0o100_751,
        mtime: 12345,
        mtimensec: 678,
        size: 5,
        ..SetattrIn::default()
    };
    let out: AttrOut = kernel.ask(opcode::SETATTR, file.nodeid, &asked, &[]).unwrap();
    let attr = out.attr;
    assert_eq!((attr.mode, attr.mtime, attr.mtimensec, attr.size), (0o100_751, 12345, 678, 5));
    // Through what is open, while it is, and after that by name again.
    let fh = kernel.open(file.nodeid, OFlags::RDONLY).unwrap();
    for mode in [0o100_640, 0o100_604] {
        let asked = SetattrIn { valid: SetattrValid::MODE.bits(), mode, ..SetattrIn::default() };
        let out: AttrOut = kernel.ask(opcode::SETATTR, file.nodeid, &asked, &[]).unwrap();
        assert_eq!(out.attr.mode, mode);
        let release = ReleaseIn { fh, ..ReleaseIn::default() };
        kernel.ask_bytes(opcode::RELEASE, file.nodeid, &release, &[]).unwrap();
    }
    let exchange = Rename2In { newdir: ROOT, flags: 2, padding: 0 };
    kernel.ask_bytes(opcode::RENAME2, ROOT, &exchange, &[b"link\0below\0"]).unwrap();
    assert!(place.at("link").is_dir() && place.at("below").is_file());
    let whiteout = Rename2In { newdir: ROOT, flags: 4, padding: 0 };
    assert!(kernel.ask_bytes(opcode::RENAME2, ROOT, &whiteout, &[b"link\0gone\0"]).is_err());
}

#[test]
fn extended_attributes_are_kept_but_for_those_of_the_host() {
    let place = Place::new();
    let kernel = Kernel::new(&place.at(""), true);
    let node = kernel.look_up(ROOT, b"file").unwrap().nodeid;
    let set = |name: &[u8], value: &[u8]| {
        let asked = SetxattrIn { size: value.len() as u32, flags: 0 };
        kernel.ask_bytes(opcode::SETXATTR, node, &asked, &[name, b"\0", value])
    };
    match set(b"user.colour", b"blue") {
        Err(Errno::OPNOTSUPP) => return println!("left out: this file system has no attributes"),
        other => other.unwrap(),
    };
    let get = |name: &[u8], size| {
        kernel.ask_bytes(opcode::GETXATTR, node, &GetxattrIn { size, padding: 0 }, &[name, b"\0"])
    };
    let check = || {
        assert_eq!(get(b"user.colour", 100).unwrap(), b"blue");
        assert_eq!(get(b"user.colour", 0).unwrap(), [4, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(get(b"user.colour", 3).unwrap_err(), Errno::RANGE);
        assert_eq!(get(b"user.color", 100).unwrap_err(), Errno::NODATA);
    };
    check();
    let fh = kernel.open(node, OFlags::WRONLY).unwrap();
    check();
    kernel
        .ask_bytes(opcode::RELEASE, node, &ReleaseIn { fh, ..ReleaseIn::default() }, &[])
        .unwrap();
    check();
    assert_eq!(get(b"trusted.overlay.opaque", 9).unwrap_err(), Errno::NODATA);
    assert_eq!(set(b"trusted.x", b"y").unwrap_err(), Errno::OPNOTSUPP);
    let asked = GetxattrIn { size: 100, padding: 0 };
    let list = kernel.ask_bytes(opcode::LISTXATTR, node, &asked, &[]).unwrap();
    assert_eq!(list, b"user.colour\0");
    kernel.ask_bytes(opcode::REMOVEXATTR, node, &(), &[b"user.colour\0"]).unwrap();
    assert_eq!(get(b"user.colour", 100).unwrap_err(), Errno::NODATA);
}

#[test]
fn owners_change_places() {
    let place = Place::new();
    let kernel = Kernel::unstarted(&place.at(""), true, 1000, (4711, 4712));
    kernel.start();
    let entry = kernel.look_up(ROOT, b"file").unwrap();
    assert_eq!((entry.attr.uid, entry.attr.gid), (4711, 4712));
    let us = rustix::process::getuid().as_raw();
    assert_eq!((kernel.share.user(us), kernel.share.user(4711)), (4711, us));
}

#[test]
fn holes_are_seen_and_made() {
    let place = Place::new();
    let kernel = Kernel::new(&place.at(""), true);
    let (made, fh) = kernel.create(ROOT, b"sparse").unwrap();
    kernel.write(made.nodeid, fh, 1 << 20, b"data").unwrap();
    let seek = |offset, whence| {
        let asked = LseekIn { fh, offset, whence, padding: 0 };
        kernel.ask::<LseekOut>(opcode::LSEEK, made.nodeid, &asked, &[]).map(|out| out.offset)
    };
    assert_eq!(seek(0, 3).unwrap(), 1 << 20);
    assert_eq!(seek(1 << 20, 4).unwrap(), (1 << 20) + 4);
    assert_eq!(seek(0, 0).unwrap_err(), Errno::INVAL);
    let asked = CopyFileRangeIn {
        fh_in: fh,
        off_in: 1 << 20,
        nodeid_out: made.nodeid,
        fh_out: fh,
        off_out: 0,
        len: 4,
        flags: 0,
    };
    let copied: WriteOut = kernel.ask(opcode::COPY_FILE_RANGE, made.nodeid, &asked, &[]).unwrap();
    assert_eq!(copied.size, 4);
    assert_eq!(kernel.read(made.nodeid, fh, 4).unwrap(), b"data");
}

#[test]
fn nothing_is_served_before_the_kernel_has_said_hello() {
    let place = Place::new();
    let kernel = Kernel::unstarted(&place.at(""), true, 100, (0, 0));
    assert_eq!(kernel.look_up(ROOT, b"file").unwrap_err(), Errno::IO);
    let old = InitIn { major: 7, minor: 8, ..InitIn::default() };
    assert_eq!(kernel.ask_bytes(opcode::INIT, 0, &old, &[]).unwrap_err(), Errno::PROTO);
    let out = kernel.start();
    assert_eq!((out.major, out.minor, out.max_pages), (7, 36, 256));
    let node = kernel.look_up(ROOT, b"file").unwrap().nodeid;
    kernel.start();
    assert_eq!(kernel.open(node, OFlags::RDONLY).unwrap_err(), Errno::STALE, "a new mount");
}

#[test]
fn any_request_has_an_answer_or_none_but_harms_nobody() {
    let place = Place::new();
    let kernel = Kernel::new(&place.at(""), true);
    let below = kernel.look_up(ROOT, b"below").unwrap().nodeid;
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut any = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for _ in 0..20_000 {
        let opcode = (any() % 56) as u32;
        let node = [below, ROOT, 3, any()][any() as usize % 4];
        let mut arguments: Vec<u8> = (0..any() % 90).map(|_| any() as u8).collect();
        if any() & 1 == 0 {
            arguments.iter_mut().for_each(|byte| *byte &= 3);
            arguments.extend(b"name\0other\0");
        }
        if opcode == opcode::INIT || opcode == opcode::DESTROY {
            continue;
        }
        let _ = kernel.ask_bytes(opcode, node, &(), &[&arguments]);
    }
    assert_eq!(fs::read(place.0.join("secret")).unwrap(), b"secret");
    let outside: Vec<_> = fs::read_dir(&place.0).unwrap().collect();
    assert_eq!(outside.len(), 2, "{outside:?}");
}

#[test]
fn addresses_that_are_no_memory_are_refused() {
    let place = Place::new();
    let kernel = Kernel::new(&place.at(""), true);
    let header = [0; 40];
    kernel.memory.write_slice(&header, GuestAddress(0)).unwrap();
    let good = Range { address: 0, bytes: 40 };
    for bad in [
        Range { address: 1 << 40, bytes: 40 },
        Range { address: MEMORY_BYTES as u64 - 8, bytes: 40 },
        Range { address: 0, bytes: 8 },
        Range { address: 0, bytes: u64::MAX },
        Range { address: u64::MAX - 4, bytes: 40 },
    ] {
        assert!(Ask::new(&kernel.memory, &[bad], &[good]).is_err(), "{bad:?}");
    }
    let far = Range { address: 1 << 40, bytes: 4096 };
    if let Ok(mut ask) = Ask::new(&kernel.memory, &[good], &[far]) {
        assert_eq!(carry_out(&kernel.share, &mut ask), 0);
    }
}

#[test]
fn what_a_guest_has_of_a_file_is_kept_as_long_as_the_file_is_what_it_was() {
    let place = Place::new();
    let kernel = Kernel::new(&place.at(""), true);
    let node = kernel.look_up(ROOT, b"file").unwrap().nodeid;
    // Its times are those of a moment ago.
    let settle = || std::thread::sleep(std::time::Duration::from_millis(60));
    settle();
    assert_eq!([(); 3].map(|()| kernel.may_keep(node)), [false, true, true]);
    fs::write(place.at("file"), "CONTENTS").unwrap();
    settle();
    assert_eq!([(); 2].map(|()| kernel.may_keep(node)), [false, true]);
    // One that is always changing is read anew each time.
    for _ in 0..3 {
        fs::write(place.at("file"), "contents").unwrap();
        assert!(!kernel.may_keep(node));
    }
}
