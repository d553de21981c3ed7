//! Trees of all kinds are written, read again, and found to be what they were; by our reader, by `fsck.erofs` where
//! there is one.

#![forbid(unsafe_code)]

mod built;
mod reader;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use erofs::{Attributes, Error, Identity};
use proptest::prelude::*;
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, Timespec, Timestamps, XattrFlags, lsetxattr, makedev, mkfifoat,
    mknodat, utimensat,
};

use self::reader::{Node, read};

/// A directory with a tree and what is made of it; goes away with this.
struct Place(PathBuf);

impl Place {
    fn new() -> Place {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        // The target directory's file system keeps attributes, which others for temporary files may not.
        let path = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let path = path.join(format!("erofs-{}-{number}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(path.join("tree")).unwrap();
        Place(path)
    }

    fn tree(&self) -> PathBuf {
        self.0.join("tree")
    }

    fn image(&self) -> PathBuf {
        self.0.join("image")
    }

    fn write_with(&self, look: &dyn Fn(&mut Attributes)) -> Result<Identity, Error> {
        let tree = self.tree();
        let (root, file) = (File::open(&tree).unwrap(), File::create(self.image()).unwrap());
        erofs::write(root.as_fd(), &tree, &file, look)
    }

    /// Writes the tree, and reads it again in every way.
    fn read(&self) -> BTreeMap<Vec<u8>, Node> {
        let identity = self.write_with(&|_| {}).unwrap();
        let bytes = fs::read(self.image()).unwrap();
        assert_eq!(Identity::read(&File::open(self.image()).unwrap()).unwrap(), Some(identity));
        let found = read(&bytes);
        self.check_with_fsck();
        assert_eq!(self.write_with(&|_| {}).unwrap(), identity);
        assert!(fs::read(self.image()).unwrap() == bytes, "the same tree makes the same bytes");
        found
    }

    fn check_with_fsck(&self) {
        match Command::new("fsck.erofs").arg("--extract").arg(self.image()).output() {
            Ok(output) => {
                let said = String::from_utf8_lossy(&output.stderr).into_owned();
                assert!(output.status.success() && !said.contains("<E>"), "{said}");
            }
            Err(error) => {
                static SAID: AtomicBool = AtomicBool::new(false);
                if !SAID.swap(true, Ordering::Relaxed) {
                    println!("not checked by fsck.erofs (Debian's erofs-utils): {error}");
                }
            }
        }
    }

    /// Writes it, and compares it with what the host says of the tree.
    fn check(&self) -> BTreeMap<Vec<u8>, Node> {
        let found = self.read();
        let mut expected = 0;
        self.compare(&self.tree(), &found, &mut expected);
        assert_eq!(expected, found.len());
        found
    }

    fn compare(&self, path: &Path, found: &BTreeMap<Vec<u8>, Node>, count: &mut usize) {
        *count += 1;
        let name = path.as_os_str().as_bytes();
        let name = &name[self.tree().as_os_str().len()..];
        let node = found.get(name).unwrap_or_else(|| panic!("{} is missing", path.display()));
        let status = fs::symlink_metadata(path).unwrap();
        assert_eq!(node.mode, status.mode(), "{}", path.display());
        assert_eq!(node.owner, (status.uid(), status.gid()));
        assert_eq!(node.modified, (status.mtime(), status.mtime_nsec() as u32));
        if status.is_dir() {
            for entry in fs::read_dir(path).unwrap() {
                self.compare(&entry.unwrap().path(), found, count);
            }
        } else if status.is_symlink() {
            assert_eq!(node.contents, fs::read_link(path).unwrap().as_os_str().as_bytes());
        } else if status.is_file() {
            assert!(node.contents == fs::read(path).unwrap(), "{}", path.display());
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn set_time(path: &Path, seconds: i64, nanoseconds: i64) {
    let at = Timespec { tv_sec: seconds, tv_nsec: nanoseconds };
    let times = Timestamps { last_access: at, last_modification: at };
    utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

#[test]
fn all_kinds_of_files_are_what_they_were() {
    let place = Place::new();
    let tree = place.tree();
    let mode = Mode::from_raw_mode;
    fs::write(tree.join("program"), b"#!/bin/sh\n").unwrap();
    fs::set_permissions(tree.join("program"), fs::Permissions::from_mode(0o6755)).unwrap();
    fs::hard_link(tree.join("program"), tree.join("another name")).unwrap();
    fs::create_dir(tree.join("sticky")).unwrap();
    fs::hard_link(tree.join("program"), tree.join("sticky/third")).unwrap();
    fs::set_permissions(tree.join("sticky"), fs::Permissions::from_mode(0o1777)).unwrap();
    symlink("/etc/passwd", tree.join("link")).unwrap();
    symlink("x".repeat(4095), tree.join("long link")).unwrap();
    symlink("nowhere", tree.join("dangling")).unwrap();
    mkfifoat(CWD, tree.join("pipe"), mode(0o640)).unwrap();
    let _listener = UnixListener::bind(tree.join("socket")).unwrap();
    let device = makedev(0xabc, 0xdef12);
    for (name, kind) in [("character", FileType::CharacterDevice), ("block", FileType::BlockDevice)]
    {
        match mknodat(CWD, tree.join(name), kind, mode(0o600), device) {
            Ok(()) => {}
            Err(error) => println!("no {name} device in the tree: {error}"),
        }
    }
    // Before 1970, and after 2038.
    set_time(&tree.join("program"), -1_000_000, 999_999_999);
    set_time(&tree.join("link"), 5_000_000_000, 1);
    let found = place.check();
    let (first, second) = (&found[&b"/program"[..]], &found[&b"/sticky/third"[..]]);
    assert_eq!((first, first.links), (second, 3));
    assert_eq!(first.number, found[&b"/another name"[..]].number);
    for name in [&b"/character"[..], b"/block"] {
        if let Some(node) = found.get(name) {
            assert_eq!(node.device, Some((0xabc, 0xdef12)));
        }
    }
}

#[test]
fn files_of_all_lengths_and_holes_are_what_they_were() {
    let place = Place::new();
    for length in [0, 1, 255, 256, 257, 4095, 4096, 4097, 8192, 1 << 20, (1 << 20) + 1] {
        let bytes: Vec<_> = (0..length).map(|at: u32| (at % 251) as u8).collect();
        fs::write(place.tree().join(format!("{length} bytes")), bytes).unwrap();
        fs::write(place.tree().join(format!("{length} zeroes")), vec![0; length as usize]).unwrap();
        let hole = File::create(place.tree().join(format!("{length} of a hole"))).unwrap();
        hole.set_len(length.into()).unwrap();
    }
    let mut sparse = File::create(place.tree().join("sparse")).unwrap();
    for at in [5000, 3 << 20, (9 << 20) - 1] {
        sparse.seek(SeekFrom::Start(at)).unwrap();
        sparse.write_all(b"island").unwrap();
    }
    sparse.set_len((11 << 20) + 17).unwrap();
    place.check();
    let status = fs::metadata(place.image()).unwrap();
    assert!(status.len() > 15 << 20 && status.blocks() * 512 < 6 << 20, "{status:?}");
}

#[test]
fn holes_and_zeroes_make_the_same_bytes() {
    let (holes, zeroes) = (Place::new(), Place::new());
    let file = File::create(holes.tree().join("a")).unwrap();
    file.set_len(300_000).unwrap();
    fs::write(zeroes.tree().join("a"), vec![0; 300_000]).unwrap();
    for place in [&holes, &zeroes] {
        set_time(&place.tree().join("a"), 1, 0);
        set_time(&place.tree(), 2, 0);
    }
    let write = |place: &Place| place.write_with(&|_| {}).unwrap();
    assert_eq!(write(&holes), write(&zeroes));
    assert_eq!(fs::read(holes.image()).unwrap(), fs::read(zeroes.image()).unwrap());
    fs::write(zeroes.tree().join("a"), vec![1; 300_000]).unwrap();
    set_time(&zeroes.tree().join("a"), 1, 0);
    assert_ne!(write(&holes), write(&zeroes), "another tree is another file system");
}

#[test]
fn names_are_any_bytes_and_directories_are_large() {
    let place = Place::new();
    let many = place.tree().join("many");
    fs::create_dir(&many).unwrap();
    for number in 0..3000 {
        fs::write(many.join(format!("{number}{}", "-".repeat(number % 240))), "").unwrap();
    }
    for byte in (1..=255).filter(|byte| *byte != b'/') {
        let name = [b'.', byte];
        if name != *b".." {
            fs::write(place.tree().join(OsStr::from_bytes(&name)), "").unwrap();
            symlink("x", place.tree().join(OsStr::from_bytes(&[byte; 255]))).unwrap();
        }
    }
    let found = place.check();
    assert_eq!(found.len(), 1 + 1 + 3000 + 2 * 254 - 2);
}

#[test]
fn trees_are_deeper_than_paths_are_long() {
    let place = Place::new();
    let mut below = File::open(place.tree()).unwrap();
    for level in 0..2100 {
        let name = format!("level {}", level % 10);
        rustix::fs::mkdirat(&below, name.as_str(), Mode::RWXU).unwrap();
        let flags = rustix::fs::OFlags::DIRECTORY;
        below = rustix::fs::openat(&below, name.as_str(), flags, Mode::empty()).unwrap().into();
    }
    place.write_with(&|_| {}).unwrap();
    let bytes = fs::read(place.image()).unwrap();
    // Our reader calls itself for each level; fsck.erofs gives up where a path would be too long.
    let found = std::thread::scope(|scope| {
        let reader = std::thread::Builder::new().stack_size(64 << 20);
        reader.spawn_scoped(scope, || read(&bytes)).unwrap().join().unwrap()
    });
    assert_eq!(found.len(), 1 + 2100);
}

#[test]
fn attributes_are_what_they_were() {
    let place = Place::new();
    let file = place.tree().join("file");
    fs::write(&file, "x").unwrap();
    fs::create_dir(place.tree().join("directory")).unwrap();
    let value = [7; 1500];
    for (path, name) in [(&file, "user.long"), (&place.tree().join("directory"), "user.a")] {
        lsetxattr(path, name, &value, XattrFlags::empty()).unwrap();
    }
    let more = |attributes: &mut Attributes| {
        if attributes.mode & 0o170_000 == 0o100_000 {
            attributes.user = u32::MAX - 1;
            attributes.mode = 0o4711;
            let add = |name: &str, bytes| (name.as_bytes().to_vec(), vec![5; bytes]);
            attributes.extended.push(add("security.capability", 20));
            attributes.extended.push(add("trusted.overlay.opaque", 1));
            attributes.extended.push(add("user.longest", 60_000));
            attributes.extended.push(add("user.empty", 0));
            attributes.extended.push(add("system.posix_acl_access", 28));
        }
    };
    place.write_with(&more).unwrap();
    let found = read(&fs::read(place.image()).unwrap());
    let node = &found[&b"/file"[..]];
    assert_eq!((node.mode, node.owner.0), (0o104_711, u32::MAX - 1));
    assert_eq!(node.attributes.len(), 6);
    assert_eq!(node.attributes[&b"user.long"[..]], value);
    assert_eq!(node.attributes[&b"user.longest"[..]], [5; 60_000]);
    assert_eq!(node.attributes[&b"user.empty"[..]], []);
    assert_eq!(node.contents, b"x");
    assert_eq!(found[&b"/directory"[..]].attributes[&b"user.a"[..]], value);
    place.check_with_fsck();
    let strange = |attributes: &mut Attributes| {
        attributes.extended.push((b"system.strange".to_vec(), Vec::new()));
    };
    let error = place.write_with(&strange).unwrap_err().to_string();
    assert!(error.contains("system.strange"), "{error}");
}

/// What is written while somebody changes it says so, and is no file system.
fn check_changed(place: &Place, change: impl Fn()) {
    let is_done = AtomicBool::new(false);
    let look = |_: &mut Attributes| {
        if !is_done.swap(true, Ordering::Relaxed) {
            // Times of files are not finer than that.
            std::thread::sleep(std::time::Duration::from_millis(20));
            change();
        }
    };
    let error = place.write_with(&look).unwrap_err();
    assert!(matches!(error, Error::Changed(_)), "{error}");
    assert!(error.to_string().contains(place.tree().to_str().unwrap()), "{error}");
    assert_eq!(Identity::read(&File::open(place.image()).unwrap()).unwrap(), None);
}

#[test]
fn what_changes_while_it_is_read_is_an_error() {
    let fresh = || {
        let place = Place::new();
        fs::write(place.tree().join("a"), vec![1; 10_000]).unwrap();
        fs::write(place.tree().join("b"), vec![1; 10_000]).unwrap();
        place
    };
    // The first that is looked at is the root, whose entries are known by then.
    let place = fresh();
    check_changed(&place, || fs::remove_file(place.tree().join("b")).unwrap());
    let place = fresh();
    check_changed(&place, || fs::write(place.tree().join("c"), "").unwrap());
    let place = fresh();
    check_changed(&place, || {
        fs::remove_file(place.tree().join("a")).unwrap();
        symlink("/etc/passwd", place.tree().join("a")).unwrap();
    });
    // A file that has been read grows before that is over.
    let place = fresh();
    let count = AtomicU32::new(0);
    let look = |_: &mut Attributes| {
        if count.fetch_add(1, Ordering::Relaxed) == 1 {
            std::thread::sleep(std::time::Duration::from_millis(20));
            let file = File::options().append(true).open(place.tree().join("a"));
            file.unwrap().write_all(b"more").unwrap();
        }
    };
    let error = place.write_with(&look).unwrap_err();
    assert!(matches!(error, Error::Changed(path) if path == place.tree().join("a")));
}

#[test]
fn what_cannot_be_written_is_an_error() {
    let place = Place::new();
    let image = place.image();
    File::create(&image).unwrap();
    let (root, file) = (File::open(place.tree()).unwrap(), File::open(&image).unwrap());
    let error = erofs::write(root.as_fd(), &place.tree(), &file, &|_| {}).unwrap_err();
    assert!(matches!(error, Error::Write(_)), "{error}");
    let error = erofs::write(file.as_fd(), &image, &file, &|_| {}).unwrap_err();
    assert!(matches!(error, Error::Read { .. }), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever names and lengths there are.
    #[test]
    fn any_tree_is_what_it_was(
        files in prop::collection::btree_map(
            prop::collection::vec(
                prop::sample::select((1..=255u8).filter(|b| *b != b'/').collect::<Vec<_>>()),
                1..=255,
            ),
            (0..3usize, 0..9000usize, 0..5000usize),
            0..60,
        ),
    ) {
        let place = Place::new();
        let mut directory = place.tree();
        for (name, (kind, length, attribute)) in &files {
            if name == b"." || name == b".." {
                continue;
            }
            let path = directory.join(OsStr::from_bytes(name));
            match kind {
                0 => fs::write(&path, vec![9; *length]).unwrap(),
                1 => symlink("y".repeat(1 + length % 4095), &path).unwrap(),
                _ => {
                    fs::create_dir(&path).unwrap();
                    // Now and then the next ones go there, as long as a path may be.
                    if length % 2 == 0 && path.as_os_str().len() < 3000 {
                        directory = path.clone();
                    }
                }
            }
            if *kind != 1 && length % 5 == 0 {
                // A file system may have no room for that.
                let _ = lsetxattr(&path, "user.test", &vec![3; *attribute], XattrFlags::empty());
            }
        }
        place.check();
    }
}
