//! What is packed is what the guest finds: archives are read back and compared.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use provision::initramfs::cpio::{Archive, Metadata};
use provision::initramfs::{self, Busybox, INIT};

/// What the machine has that they are packed for.
const MEMORY: u64 = 64 << 20;

/// One entry of an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    inode: u32,
    mode: u32,
    owner: (u32, u32),
    links: u32,
    device: (u32, u32),
    contents: Vec<u8>,
}

/// Reads a newc archive as Linux does (init/initramfs.c): every field, every padding.
fn read(mut archive: &[u8]) -> BTreeMap<Vec<u8>, Entry> {
    let mut entries = BTreeMap::new();
    let mut offset = 0usize;
    let mut take = |length: usize| {
        let (head, tail) = archive.split_at(length);
        archive = tail;
        offset += length;
        let padding = offset.next_multiple_of(4) - offset;
        (head.to_vec(), padding)
    };
    loop {
        let (header, _) = take(6 + 13 * 8);
        assert_eq!(&header[..6], b"070701");
        let field = |n: usize| {
            let digits = std::str::from_utf8(&header[6 + 8 * n..14 + 8 * n]).unwrap();
            u32::from_str_radix(digits, 16).unwrap()
        };
        let (mut name, padding) = take(field(11) as usize);
        assert_eq!(name.pop(), Some(0));
        assert!(take(padding).0.iter().all(|&byte| byte == 0));
        let (contents, padding) = take(field(6) as usize);
        take(padding);
        if name == b"TRAILER!!!" {
            return entries;
        }
        entries.insert(
            name,
            Entry {
                inode: field(0),
                mode: field(1),
                owner: (field(2), field(3)),
                links: field(4),
                device: (field(9), field(10)),
                contents,
            },
        );
    }
}

/// A directory that goes away again.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("biv-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn pack(root: &Path) -> BTreeMap<Vec<u8>, Entry> {
    read(&initramfs::from_directory(root, MEMORY).unwrap())
}

#[test]
fn a_tree_keeps_types_permissions_links_and_names() {
    let scratch = Scratch::new("tree");
    let root = &scratch.0;
    let odd = OsStr::from_bytes(b"\xff\xfe \n");
    fs::create_dir(root.join("dir")).unwrap();
    fs::set_permissions(root.join("dir"), fs::Permissions::from_mode(0o1750)).unwrap();
    fs::write(root.join("dir").join(odd), b"odd").unwrap();
    fs::write(root.join("tool"), vec![7; 10_001]).unwrap();
    fs::set_permissions(root.join("tool"), fs::Permissions::from_mode(0o4711)).unwrap();
    symlink("../elsewhere", root.join("link")).unwrap();
    fs::hard_link(root.join("tool"), root.join("tool-too")).unwrap();
    fs::write(root.join("empty"), b"").unwrap();
    let entries = pack(root);
    assert_eq!(entries[&b"dir"[..]].mode, 0o041_750);
    assert_eq!(entries[&b"dir/\xff\xfe \n"[..]].contents, b"odd");
    let (first, second) = (&entries[&b"tool"[..]], &entries[&b"tool-too"[..]]);
    assert_eq!((first.mode, first.contents.len()), (0o104_711, 10_001));
    assert_eq!((second.inode, second.links, second.contents.len()), (first.inode, 2, 0));
    assert_eq!(entries[&b"link"[..]].mode & 0o170_000, 0o120_000);
    assert_eq!(entries[&b"link"[..]].contents, b"../elsewhere");
    assert_eq!(entries[&b"empty"[..]].contents, b"");
    assert_eq!(entries[&b"tool"[..]].owner, (0, 0), "what is ours is root's in the guest");
}

#[test]
fn directories_come_before_what_is_in_them() {
    let scratch = Scratch::new("order");
    fs::create_dir_all(scratch.0.join("a/b/c")).unwrap();
    fs::write(scratch.0.join("a/b/c/d"), b"x").unwrap();
    let archive = initramfs::from_directory(&scratch.0, MEMORY).unwrap();
    let find = |name: &[u8]| {
        let name = [name, b"\0"].concat();
        archive.windows(name.len()).position(|window| window == name).unwrap()
    };
    assert!(find(b"a") < find(b"a/b") && find(b"a/b") < find(b"a/b/c"));
    assert!(find(b"a/b/c") < find(b"a/b/c/d"));
}

#[test]
fn every_guest_has_our_init_and_a_console() {
    let scratch = Scratch::new("init");
    fs::create_dir(scratch.0.join("dev")).unwrap();
    let entries = pack(&scratch.0);
    let init = &entries[INIT.trim_start_matches('/').as_bytes()];
    assert_eq!(init.mode, 0o100_755);
    assert!(init.contents.starts_with(b"\x7fELF"));
    let console = &entries[&b"dev/console"[..]];
    assert_eq!((console.mode, console.device), (0o020_600, (5, 1)));
}

#[test]
fn init_is_a_static_program() {
    let scratch = Scratch::new("static");
    let entries = pack(&scratch.0);
    let init = &entries[INIT.trim_start_matches('/').as_bytes()].contents;
    let word = |at: usize| u64::from_le_bytes(init[at..at + 8].try_into().unwrap()) as usize;
    let half = |at: usize| usize::from(u16::from_le_bytes(init[at..at + 2].try_into().unwrap()));
    let (table, size, count) = (word(32), half(54), half(56));
    const PT_INTERP: u8 = 3;
    assert!((0..count).all(|n| init[table + n * size] != PT_INTERP), "it asks for a loader");
}

#[test]
fn the_default_guest_has_its_applets() {
    let scratch = Scratch::new("default");
    let program = scratch.0.join("busybox");
    fs::write(&program, b"busybox!").unwrap();
    let busybox = Busybox { program, applets: "/bin/busybox\nbin/ls\nusr/bin/id\n".to_owned() };
    let entries = read(&initramfs::default_guest(&busybox).unwrap());
    assert_eq!(entries[&b"bin/busybox"[..]].contents, b"busybox!");
    for applet in [&b"bin/ls"[..], b"usr/bin/id"] {
        assert_eq!(entries[applet].contents, b"/bin/busybox");
        assert_eq!(entries[applet].mode, 0o120_777);
    }
    assert_eq!(entries[&b"tmp"[..]].mode, 0o041_777);
    assert_eq!(entries[&b"."[..]].mode, 0o040_755);
}

#[test]
fn our_init_can_follow_another_archive() {
    let archive = initramfs::only_init().unwrap();
    let entries = read(&archive);
    assert!(entries.contains_key(INIT.trim_start_matches('/').as_bytes()));
    assert_eq!(archive.len() % 4, 0, "what follows is aligned");
    assert!(entries.len() < 5, "nothing of the other's is replaced: {:?}", entries.keys());
}

#[test]
fn a_directory_that_does_not_fit_into_memory_is_refused() {
    let scratch = Scratch::new("large");
    let large = scratch.0.join("large");
    File::create(&large).unwrap().set_len(3 << 20).unwrap();
    // It is there twice while the guest unpacks it.
    let error = initramfs::from_directory(&scratch.0, 4 << 20).unwrap_err().to_string();
    for word in ["large", "--mem", "2 MiB"] {
        assert!(error.contains(word), "{error:?} does not say {word:?}");
    }
    assert!(initramfs::from_directory(&scratch.0, MEMORY).is_ok());
}

#[test]
fn what_cannot_be_packed_is_named() {
    let scratch = Scratch::new("refused");
    let check = |root: &Path, words: &[&str]| {
        let error = initramfs::from_directory(root, MEMORY).unwrap_err().to_string();
        for word in words {
            assert!(error.contains(word), "{error:?} does not say {word:?}");
        }
        assert!(!error.contains('\n'));
    };
    check(Path::new("/no/such/place"), &["/no/such/place", "No such file"]);
    let file = scratch.0.join("file");
    fs::write(&file, b"").unwrap();
    check(&file, &["--root", "is not a directory"]);
    fs::remove_file(&file).unwrap();
    let huge = scratch.0.join("huge");
    File::create(&huge).unwrap().set_len(1 << 32).unwrap();
    check(&scratch.0, &["huge", "4 GiB"]);
}

#[test]
fn a_name_that_linux_would_skip_is_refused() {
    let mut archive = Archive::new(Vec::new());
    let add = |archive: &mut Archive<Vec<u8>>, length| {
        archive.add(&vec![b'x'; length], Metadata::new(0o100_644), b"")
    };
    assert!(add(&mut archive, 4095).is_ok());
    assert!(add(&mut archive, 4096).is_err());
}

#[test]
fn a_file_that_shrinks_is_noticed() {
    let mut archive = Archive::new(Vec::new());
    let error = archive.add_from(b"x", Metadata::new(0o100_644), 5, &b"four"[..]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof);
}
