//! Images as the roots of machines: what is in them is what it was, however the guest comes to it, and stays it.
//!
//! `guest.c` says what a guest sees.

#![forbid(unsafe_code)]

mod place;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;

use files::owner::{self, Owner};
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, Timespec, Timestamps, XattrFlags, lgetxattr, llistxattr,
    lsetxattr, major, makedev, minor, mkfifoat, mknodat, utimensat,
};
use whole_machine::waiting::wait_for;
use whole_machine::{kernels, text};

use self::place::{IMAGE, Place};

/// What a guest sees of a file, in words, but for its inode's number: files that are one have the same first name.
type Listing = BTreeMap<String, (Vec<String>, String)>;

/// The column with the inode's number.
const NUMBER: usize = 5;

/// What `/probe` prints.
fn parse(listing: &str) -> Listing {
    let mut lines: Vec<Vec<&str>> = listing.lines().map(|line| line.split(' ').collect()).collect();
    lines.sort_unstable();
    let mut first = BTreeMap::new();
    let seen = |line: Vec<&str>| {
        assert_eq!(line.len(), 10, "{line:?}");
        let name =
            first.entry(line[NUMBER].to_owned()).or_insert_with(|| line[0].to_owned()).clone();
        let words = line.iter().enumerate().filter(|(column, _)| *column != NUMBER);
        let words = words.skip(1).map(|(_, word)| (*word).to_owned()).collect();
        (line[0].to_owned(), (words, name))
    };
    lines.into_iter().map(seen).collect()
}

/// FNV-1a.
fn hash(bytes: &[u8]) -> String {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    format!("{:016x}", bytes.iter().fold(0xcbf2_9ce4_8422_2325, step))
}

fn shown(name: &[u8]) -> String {
    let byte = |&byte: &u8| match byte {
        0x21..=0x7e if byte != b'\\' => char::from(byte).to_string(),
        _ => format!("\\x{byte:02x}"),
    };
    name.iter().map(byte).collect()
}

/// The attributes that a guest is to see of a file.
fn attributes(path: &Path) -> String {
    let mut names = vec![0; 1 << 16];
    let length = llistxattr(path, &mut names[..]).expect("a file has attributes");
    let mut all = Vec::new();
    for name in names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let mut value = vec![0; 1 << 16];
        let length = lgetxattr(path, name, &mut value[..]).expect("it has that one");
        let name = String::from_utf8_lossy(name).into_owned();
        let name = match name.as_str() {
            owner::CAPABILITY => "security.capability".to_owned(),
            owner::OWNER => continue,
            other if other.starts_with("user.") => name,
            _ => continue,
        };
        all.push(format!("{name}={}", hash(&value[..length])));
    }
    all.sort_unstable();
    all.join(",")
}

/// What a guest is to see of an image's tree, by what the host knows of it.
fn expected(tree: &Path) -> Listing {
    let (mut listing, mut first) = (Listing::new(), BTreeMap::new());
    let mut paths = vec![tree.to_owned()];
    while let Some(path) = paths.pop() {
        let status = fs::symlink_metadata(&path).expect("it is there");
        let name = shown(&path.as_os_str().as_bytes()[tree.as_os_str().len()..]);
        let mut links = status.nlink();
        if status.is_dir() {
            let below: Vec<_> = fs::read_dir(&path)
                .expect("a directory")
                .map(|entry| entry.expect("an entry").path())
                .collect();
            let directories = below.iter().filter(|path| path.is_dir() && !path.is_symlink());
            links = 2 + directories.count() as u64;
            paths.extend(below);
        }
        let owner = Owner::recorded(&path);
        let mode = owner.map_or(status.mode(), |it| status.mode() & !0o7777 | it.mode);
        let (user, group) = owner.map_or((0, 0), |it| (it.user, it.group));
        let contents = match status.file_type() {
            kind if kind.is_file() => fs::read(&path).expect("it can be read"),
            kind if kind.is_symlink() => {
                fs::read_link(&path).expect("a link").as_os_str().as_bytes().to_vec()
            }
            _ => Vec::new(),
        };
        let words = vec![
            format!("{mode:o}"),
            format!("{user}:{group}"),
            format!("{}.{:09}", status.mtime(), status.mtime_nsec()),
            links.to_string(),
            format!("{}:{}", major(status.rdev()), minor(status.rdev())),
            contents.len().to_string(),
            hash(&contents),
            attributes(&path),
        ];
        let names = first.entry(status.ino()).or_insert_with(Vec::new);
        names.push(name.clone());
        listing.insert(name, (words, status.ino().to_string()));
    }
    for (_, first_name) in listing.values_mut() {
        let number: u64 = first_name.parse().expect("an inode's number");
        *first_name = first[&number].iter().min().expect("it has a name").clone();
    }
    listing
}

/// Every kind of entry.
fn fill(tree: &Path) {
    let mode = Mode::from_raw_mode;
    let at = |name: &str| tree.join(name);
    fs::write(at("program"), "#!/bin/sh\n").expect("room");
    fs::hard_link(at("program"), at("another name")).expect("room");
    fs::create_dir(at("sticky")).expect("room");
    fs::hard_link(at("program"), at("sticky/third")).expect("room");
    fs::write(at("large"), vec![7; 3_000_001]).expect("room");
    fs::write(at("short"), "short").expect("room");
    fs::write(at("empty"), "").expect("room");
    let sparse = File::create(at("sparse")).expect("room");
    sparse.set_len(5_000_000).expect("room");
    fs::write(at("with attributes"), "x").expect("room");
    for (name, value) in [("user.mime_type", vec![b't'; 10]), ("user.long", vec![9; 2000])] {
        let set = lsetxattr(at("with attributes"), name, &value, XattrFlags::empty());
        set.expect("the target directory's file system has attributes of users");
    }
    // CAP_NET_RAW, permitted and effective (capabilities(7), VFS_CAP_REVISION_2).
    let capability = [1, 0, 0, 2, 0, 32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    owner::record_capability(&at("with attributes"), &capability).expect("the same");
    symlink("/proc/self/exe", at("link")).expect("room");
    symlink("y".repeat(4000), at("long link")).expect("room");
    mkfifoat(CWD, at("pipe"), mode(0o640)).expect("room");
    drop(UnixListener::bind(at("socket")));
    match mknodat(CWD, at("device"), FileType::CharacterDevice, mode(0o600), makedev(1, 3)) {
        Ok(()) => {}
        Err(error) => println!("the tree has no device: {error}"),
    }
    for byte in (1..=255).filter(|byte| *byte != b'/') {
        fs::write(tree.join(OsStr::from_bytes(&[b'n', byte])), [byte]).expect("room");
    }
    fs::write(at(&"long ".repeat(51)), "").expect("room");
    fs::create_dir(at("many")).expect("room");
    for number in 0..1000 {
        fs::write(at("many").join(format!("file {number}")), "").expect("room");
    }
    let deep = (0..60).fold(at("deep"), |path, level| path.join(format!("level {level}")));
    fs::create_dir_all(deep).expect("room");
    let owners = [
        ("program", 0, 0, 0o4755),
        ("sticky", 7, 4_000_000_000, 0o1777),
        ("large", 4_294_967_294, 33, 0o640),
        ("with attributes", 101, 102, 0o2711),
        ("many", 1000, 1000, 0o700),
    ];
    for (name, user, group, mode) in owners {
        Owner { user, group, mode }.record(&at(name)).expect("it has attributes");
    }
    fs::set_permissions(at("empty"), fs::Permissions::from_mode(0o444)).expect("it is ours");
    for (name, seconds) in [("program", -1000), ("link", 5_000_000_000), ("many", 1)] {
        let at_time = Timespec { tv_sec: seconds, tv_nsec: 123_456_789 };
        let times = Timestamps { last_access: at_time, last_modification: at_time };
        utimensat(CWD, at(name), &times, AtFlags::SYMLINK_NOFOLLOW).expect("it is ours");
    }
}

#[track_caller]
fn check_listing(place: &Place, listing: &str) {
    let (found, expected) = (parse(listing), expected(&place.tree()));
    for (name, seen) in &expected {
        assert_eq!(found.get(name), Some(seen), "{name}");
    }
    assert_eq!(found.len(), expected.len());
}

/// What a guest sees of the image, by a machine that boots, and one that goes on from what that has left.
#[track_caller]
fn check(place: &Place, options: &[&str]) {
    for _ in 0..2 {
        let words = [&["run", "--image", IMAGE], options, &["--", "/probe", "/tree"]].concat();
        check_listing(place, &place.says(&words));
    }
}

#[test]
fn everything_is_what_it_was() {
    let place = Place::new();
    fill(&place.tree());
    // It was made without a disk, which is made now.
    check(&place, &[]);
    let mode = fs::metadata(place.disk()).expect("the disk is made").permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "not everybody may read what only root may in the guest");
    assert!(!place.cache().join("work").exists());
    let mounts = place.shell(&[], "cat /proc/filesystems /sys/block/vda/serial");
    assert!(mounts.contains("erofs") && mounts.contains("image/"), "{mounts}");
    let stats = ["run", "--stats", "--image", IMAGE, "--", "/probe", "/tree"];
    let said = text(&place.output(&stats).stderr);
    assert!(!said.contains("requests to directories"), "nobody serves the directory: {said}");
    check(&place, &["--cpus", "4"]);
}

#[test]
fn an_older_kernel_sees_the_same() {
    let place = Place::new();
    fill(&place.tree());
    // Pulled kernels stay in the target directory, as others do.
    let pulled = kernels::cache_directory().join("pulled");
    let mut pull = Command::new(whole_machine::bivouac());
    pull.args(["kernel", "pull", "6.1"]).env("XDG_CACHE_HOME", &pulled);
    let list = |command: &mut Command| {
        let output = command.output().expect("biv can be started");
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let mut known = Command::new(whole_machine::bivouac());
    known.args(["kernel", "ls"]).env("XDG_CACHE_HOME", &pulled);
    if !list(&mut known).contains("6.1.") {
        list(&mut pull);
    }
    symlink(pulled.join("bivouac/kernels"), place.cache().join("kernels")).expect("room");
    check(&place, &["--kernel", "6.1"]);
    assert!(place.shell(&["--kernel", "6.1"], "cat /proc/filesystems").contains("erofs"));
}

#[test]
fn where_it_cannot_be_a_disk_it_is_a_directory() {
    let place = Place::new();
    fill(&place.tree());
    let is_shared = |options: &[&str]| {
        let words =
            [&["run", "-v", "--image", IMAGE], options, &["--", "/bin/cat", "/proc/filesystems"]];
        let output = place.output(&words.concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        let is_said = text(&output.stderr).contains("the image is shared as a directory");
        assert_ne!(is_said, text(&output.stdout).contains("erofs"));
        is_said
    };
    // Nothing can be made in the cache: what is in the way of work is no directory.
    let work = place.cache().join("work");
    fs::write(&work, "").expect("room");
    assert!(is_shared(&[]));
    check(&place, &[]);
    fs::remove_file(&work).expect("it is there");
    assert!(!is_shared(&[]));
    // Something that is no file system, and a symbolic link.
    fs::write(place.disk(), [0; 8192]).expect("room");
    assert!(is_shared(&[]));
    fs::remove_file(place.disk()).expect("it is there");
    symlink("/dev/zero", place.disk()).expect("room");
    assert!(is_shared(&[]));
    fs::remove_file(place.disk()).expect("it is there");
    // A kernel without the file system.
    fs::remove_file(place.cache().join("kernel/drivers/erofs.ko")).expect("the kernel has it");
    assert!(is_shared(&[]));
    assert!(!place.disk().exists());
    check(&place, &[]);
}

#[test]
fn what_is_written_over_it_is_gone_with_the_machine() {
    let place = Place::new();
    fill(&place.tree());
    let script = "set -e; cd /tree
        echo more >>short; cat short; rm large; mv program moved; chmod 600 moved; touch new
        mkdir many/more; rm -r sticky; echo over >empty; ls | grep -c -e '^new$' -e '^moved$'; \
        /bin/cat empty";
    let before = expected(&place.tree());
    for _ in 0..2 {
        assert_eq!(place.shell(&[], script), "shortmore\n2\nover\n");
        let disk = fs::metadata(place.disk()).expect("it is there").mtime_nsec();
        check(&place, &[]);
        assert_eq!(fs::metadata(place.disk()).expect("it is there").mtime_nsec(), disk);
    }
    assert_eq!(expected(&place.tree()), before);
    let refused = place.shell(&[], "echo x >/dev/vda; echo $?");
    assert_eq!(refused, "1\n", "nobody writes to the disk");
}

#[test]
fn the_users_disks_are_called_as_ever() {
    let place = Place::new();
    let disk = place.path.join("image");
    fs::write(&disk, [b'A'; 4096]).expect("room");
    let disk = disk.to_str().expect("the target directory's name is text");
    let script = "cd /sys/block; for d in vd*; do echo $d $(cat $d/serial); done; cat /dev/vda";
    let said = place.shell(&["--disk", disk, "--volume", "/usr:/mnt:ro"], script);
    let lines: Vec<_> = said.lines().collect();
    assert_eq!((lines[0], lines[2]), ("vda image", "A".repeat(4096).as_str()), "{said}");
    assert!(lines[1].starts_with("vdb image/"), "{said}");
}

#[test]
fn a_machine_keeps_its_image_and_goes_on_with_it() {
    let place = Place::new();
    fill(&place.tree());
    let file = place.path.join("snapshot");
    let file = file.to_str().expect("the target directory's name is text");
    place.says(&["run", "-d", "--name", "one", "--image", IMAGE, "--", "/bin/sleep", "1000"]);
    place.says(&["exec", "one", "/bin/touch", "/tree/new"]);
    place.says(&["snapshot", "one", file]);
    // What it has not read yet is in the disk that it has, whatever its name.
    let kept = place.path.join("kept");
    fs::rename(place.disk(), &kept).expect("it is there");
    let listing = place.says(&["exec", "one", "/probe", "/tree/many"]);
    assert_eq!(listing.lines().count(), 1001);
    place.says(&["stop", "one"]);
    // It is made again, and is the same.
    place.says(&["restore", "-d", "--name", "two", file]);
    assert_eq!(place.says(&["exec", "two", "/bin/ls", "/tree/new"]), "/tree/new\n");
    assert_eq!(place.says(&["exec", "two", "/probe", "/tree/many"]).lines().count(), 1001);
    place.says(&["stop", "two"]);
    assert_eq!(fs::read(place.disk()).expect("made"), fs::read(&kept).expect("kept"));
    // Another is another.
    fs::write(place.tree().join("short"), "other").expect("room");
    fs::remove_file(place.disk()).expect("it is there");
    let output = place.output(&["restore", "-d", "--name", "three", file]);
    assert!(!output.status.success());
    let complaint = text(&output.stderr);
    assert!(complaint.contains(IMAGE) && complaint.contains("rebuilt"), "{complaint}");
    wait_for("nobody runs", || place.says(&["ps"]).lines().count() <= 1);
    check(&place, &[]);
    place.says(&["image", "rm", IMAGE]);
    assert!(!place.disk().exists() && !place.image().exists());
}
