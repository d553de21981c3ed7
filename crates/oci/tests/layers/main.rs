//! Layers become file systems: what an archive says is what is read again, by the reader that the tests of crate
//! `erofs` have; and what no layer may say is refused.

#![forbid(unsafe_code)]

#[path = "../../../erofs/tests/trees/reader.rs"]
mod reader;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};

use oci::layer;
use proptest::prelude::*;
use rustix::fs::{MemfdFlags, memfd_create};
use tar::{Builder, EntryType, Header};

use self::reader::Node;

/// An entry of an archive: path, kind, mode, owner, contents or what a link leads to.
struct Made<'a> {
    path: &'a str,
    kind: EntryType,
    mode: u32,
    owner: (u64, u64),
    text: &'a str,
    attributes: &'a [(&'a str, &'a [u8])],
    device: (u32, u32),
}

fn made<'a>(path: &'a str, kind: EntryType, text: &'a str) -> Made<'a> {
    let mode = if kind == EntryType::Directory { 0o755 } else { 0o644 };
    Made { path, kind, mode, owner: (0, 0), text, attributes: &[], device: (0, 0) }
}

fn file<'a>(path: &'a str, text: &'a str) -> Made<'a> {
    made(path, EntryType::Regular, text)
}

fn directory(path: &str) -> Made<'_> {
    made(path, EntryType::Directory, "")
}

fn symlink<'a>(path: &'a str, target: &'a str) -> Made<'a> {
    made(path, EntryType::Symlink, target)
}

fn link<'a>(path: &'a str, target: &'a str) -> Made<'a> {
    made(path, EntryType::Link, target)
}

fn archive(entries: &[Made<'_>]) -> Vec<u8> {
    let mut archive = Builder::new(Vec::new());
    for entry in entries {
        if !entry.attributes.is_empty() {
            let named =
                |(name, value): &(&str, &[u8])| (format!("SCHILY.xattr.{name}"), value.to_vec());
            let all: Vec<_> = entry.attributes.iter().map(named).collect();
            let all = all.iter().map(|(name, value)| (name.as_str(), value.as_slice()));
            archive.append_pax_extensions(all).unwrap();
        }
        let mut header = Header::new_gnu();
        header.set_entry_type(entry.kind);
        header.set_mode(entry.mode);
        header.set_uid(entry.owner.0);
        header.set_gid(entry.owner.1);
        header.set_mtime(1_700_000_000);
        header.set_device_major(entry.device.0).unwrap();
        header.set_device_minor(entry.device.1).unwrap();
        let is_link = matches!(entry.kind, EntryType::Symlink | EntryType::Link);
        let contents = if is_link { "" } else { entry.text };
        header.set_size(contents.len() as u64);
        // Crate `tar` does not make what nobody should make.
        let name = &mut header.as_old_mut().name;
        name[..entry.path.len()].copy_from_slice(entry.path.as_bytes());
        if is_link {
            header.as_old_mut().linkname[..entry.text.len()].copy_from_slice(entry.text.as_bytes());
        }
        header.set_cksum();
        archive.append(&header, contents.as_bytes()).unwrap();
    }
    archive.into_inner().unwrap()
}

fn convert(archive: &[u8]) -> Result<BTreeMap<String, Node>, layer::Error> {
    let mut file = File::from(memfd_create("layer", MemfdFlags::CLOEXEC).unwrap());
    layer::convert(archive, &file)?;
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(0)).unwrap();
    file.read_to_end(&mut bytes).unwrap();
    // A damaged name need not be UTF-8.
    let name = |path: Vec<u8>| String::from_utf8_lossy(&path).into_owned();
    Ok(reader::read(&bytes).into_iter().map(|(path, node)| (name(path), node)).collect())
}

fn converted(entries: &[Made<'_>]) -> BTreeMap<String, Node> {
    convert(&archive(entries)).unwrap()
}

#[track_caller]
fn check_refused(entries: &[Made<'_>], why: &str) {
    let error = convert(&archive(entries)).expect_err("accepted").to_string();
    assert!(error.contains(why), "{error}");
}

fn is_opaque(node: &Node) -> bool {
    node.attributes.get(&b"trusted.overlay.opaque"[..]).map(Vec::as_slice) == Some(b"y")
}

fn is_whiteout(node: &Node) -> bool {
    node.mode >> 12 == 0o2 && node.device == Some((0, 0))
}

#[test]
fn files_are_what_the_archive_says() {
    let long = "x".repeat(10_000);
    let found = converted(&[
        Made { mode: 0o1777, ..directory("./tmp/") },
        Made { mode: 0o4755, owner: (4_000_000, 7), ..file("./usr/bin/su", &long) },
        Made {
            attributes: &[
                ("user.mime", b"text"),
                ("security.capability", b"\x01\0\0\x02"),
                ("security.selinux", b"system_u"),
                ("trusted.overlay.redirect", b"/etc"),
                ("trusted.overlay.opaque", b"y"),
            ],
            ..file("ping", "short")
        },
        symlink("bin", "usr/bin"),
        link("usr/bin/sudo", "usr/bin/su"),
        Made { device: (1, 3), ..made("dev/null", EntryType::Char, "") },
        Made { device: (8, 300), ..made("dev/sda", EntryType::Block, "") },
        made("pipe", EntryType::Fifo, ""),
        Made { device: (0, 0), ..made("dev/zero", EntryType::Char, "") },
        file("empty", ""),
    ]);
    let su = &found["/usr/bin/su"];
    assert_eq!((su.mode, su.owner, su.links), (0o104_755, (4_000_000, 7), 2));
    assert_eq!(su.contents, long.as_bytes());
    assert_eq!(su.modified, (1_700_000_000, 0));
    assert_eq!(found["/usr/bin/sudo"].number, su.number);
    assert_eq!(found["/tmp"].mode, 0o41_777);
    assert_eq!(found["/bin"].contents, b"usr/bin");
    assert_eq!(found["/dev/null"].device, Some((1, 3)));
    assert_eq!(found["/dev/sda"].device, Some((8, 300)));
    assert_eq!(found["/pipe"].mode >> 12, 0o1);
    assert!(found["/empty"].contents.is_empty());
    assert!(!found.contains_key("/dev/zero"), "it would say that something is gone");
    let names: Vec<_> = found["/ping"].attributes.keys().map(Vec::as_slice).collect();
    assert_eq!(names, [&b"security.capability"[..], b"user.mime"]);
    // What no entry says is as usual.
    assert_eq!((found["/usr"].mode, found["/usr"].owner), (0o40_755, (0, 0)));
}

#[test]
fn what_is_gone_is_said_in_the_way_of_overlayfs() {
    let found = converted(&[
        directory("etc"),
        file("etc/.wh.passwd", ""),
        file("etc/.wh.wh", ""),
        directory("var"),
        file("var/kept", "x"),
        file("var/.wh..wh..opq", ""),
        file("var/.wh.gone", ""),
        file("opt/.wh.tree", ""),
        directory("opt/tree"),
        file("opt/tree/new", "x"),
        file("opt/tree/.wh.old", ""),
        file("srv/again", "x"),
        file("srv/.wh.again", ""),
        file(".wh..wh.plnk", ""),
    ]);
    assert!(is_whiteout(&found["/etc/passwd"]) && is_whiteout(&found["/etc/wh"]));
    assert!(is_opaque(&found["/var"]) && !is_opaque(&found["/etc"]));
    assert_eq!(found["/var/kept"].contents, b"x");
    assert!(!found.contains_key("/var/gone"), "nothing is below that is hidden");
    // What is removed and made again hides what was there.
    assert!(is_opaque(&found["/opt/tree"]) && found.contains_key("/opt/tree/new"));
    assert!(!found.contains_key("/opt/tree/old"));
    assert_eq!(found["/srv/again"].contents, b"x");
    assert!(!found.keys().any(|name| name.contains(".wh.")));
}

#[test]
fn later_entries_replace_earlier_ones() {
    let found = converted(&[
        file("a", "first"),
        file("a", "second"),
        directory("b"),
        file("b/below", "x"),
        file("b", "a file now"),
        file("c", "a file"),
        Made { mode: 0o700, ..directory("c") },
        file("c/below", "x"),
        Made { mode: 0o711, ..directory("c") },
        link("d", "a"),
        file("a", "third"),
        Made { mode: 0o500, owner: (3, 4), ..directory("./") },
    ]);
    assert_eq!(found["/a"].contents, b"third");
    assert_eq!((found["/d"].contents.as_slice(), found["/d"].links), (&b"second"[..], 1));
    assert_eq!(found["/b"].contents, b"a file now");
    assert!(!found.contains_key("/b/below"));
    assert_eq!(found["/c"].mode, 0o40_711);
    assert!(found.contains_key("/c/below"));
    assert_eq!((found[""].mode, found[""].owner), (0o40_500, (3, 4)));
}

#[test]
fn paths_are_followed_in_the_layer_and_nowhere_else() {
    let found = converted(&[
        directory("usr/lib"),
        symlink("lib", "usr/lib"),
        file("lib/one", "1"),
        symlink("absolute", "/usr"),
        file("absolute/two", "2"),
        symlink("usr/up", "../../../.."),
        file("usr/up/three", "3"),
        symlink("missing", "/new/place"),
        file("missing/four", "4"),
        file("lib/.wh.gone", ""),
        link("five", "lib/one"),
        file("/etc/six", "6"),
        file("tmp/x", ""),
        file("root/x", ""),
        file("var/tmp/x", ""),
    ]);
    for (path, text) in [
        ("/usr/lib/one", "1"),
        ("/usr/two", "2"),
        ("/three", "3"),
        ("/new/place/four", "4"),
        ("/five", "1"),
        ("/etc/six", "6"),
    ] {
        assert_eq!(found[path].contents, text.as_bytes(), "{path}");
    }
    assert!(is_whiteout(&found["/usr/lib/gone"]));
    // Directories whose modes everybody knows.
    let mode = |path: &str| found[path].mode & 0o7777;
    assert_eq!((mode("/tmp"), mode("/root"), mode("/var/tmp")), (0o1777, 0o700, 0o1777));
}

#[test]
fn what_no_layer_may_say_is_refused() {
    check_refused(&[file("../x", "")], "leads out");
    check_refused(&[file("a/../../x", "")], "leads out");
    check_refused(&[link("x", "../../etc/shadow")], "leads out");
    check_refused(&[link("x", "missing")], "not in its layer");
    check_refused(&[directory("d"), link("x", "d")], "directory");
    check_refused(&[file("f", ""), file("f/x", "")], "a file is where");
    check_refused(&[symlink("l", "l"), file("l/x", "")], "too many symbolic links");
    check_refused(&[symlink("l", ""), file("x", "")], "name");
    check_refused(&[file("x/.wh.", "")], "removes no file");
    check_refused(&[file("x/.wh...", "")], "removes no file");
    check_refused(&[file(".wh.x/y", "")], "cannot be called so");
    check_refused(&[made("x", EntryType::GNUSparse, "")], "sparse");
    check_refused(&[made("x", EntryType::new(b'Z'), "")], "unknown kind");
    let long = format!("x/{}", "y".repeat(256));
    let mut header = archive(&[file("x", "")]);
    let mut named = Builder::new(Vec::new());
    named.append_pax_extensions([("path", long.as_bytes())]).unwrap();
    let mut named = named.into_inner().unwrap();
    named.truncate(named.len() - 1024);
    named.append(&mut header);
    assert!(convert(&named).unwrap_err().to_string().contains("name"));
}

#[test]
fn what_is_no_archive_is_refused() {
    let good = archive(&[file("a", "text"), file("b", "more")]);
    assert!(convert(&good[..700]).is_err());
    assert!(convert(b"something else, which is longer than nothing").is_err());
    let mut other = good.clone();
    other[0] ^= 1;
    assert!(convert(&other).unwrap_err().to_string().contains("damaged"));
    // Some writers leave the end out.
    assert_eq!(convert(&good[..2048]).unwrap().len(), 3);
    assert_eq!(convert(b"").unwrap().len(), 1);
}

#[test]
fn an_archive_that_says_it_is_huge_takes_nothing() {
    let mut header = Header::new_gnu();
    header.set_path("x").unwrap();
    header.set_entry_type(EntryType::Regular);
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(1 << 60);
    header.set_cksum();
    let error = convert(header.as_bytes()).unwrap_err().to_string();
    assert!(error.contains("GiB"), "{error}");
    for kind in [EntryType::GNULongName, EntryType::GNULongLink, EntryType::XHeader] {
        header.set_entry_type(kind);
        header.set_size(1 << 40);
        header.set_cksum();
        let error = convert(header.as_bytes()).unwrap_err().to_string();
        assert!(error.contains("too many bytes"), "{error}");
    }
}

fn any_entry() -> impl Strategy<Value = (String, u8, String)> {
    let name = prop::sample::select(vec!["a", "b", ".wh.a", ".wh..wh..opq", ".", "", "l", "..x"]);
    let path = prop::collection::vec(name.clone(), 1..4).prop_map(|names| names.join("/"));
    let target = prop::collection::vec(prop::sample::select(vec!["a", "b", "l", "..", ""]), 1..4);
    (path, prop::sample::select(b"0123456Z".to_vec()), target.prop_map(|it| it.join("/")))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// Whatever the entries are, the result is a file system without faults, or an error.
    #[test]
    fn any_archive_is_a_file_system_or_refused(all in prop::collection::vec(any_entry(), 0..12)) {
        let entries: Vec<_> = all
            .iter()
            .map(|(path, kind, text)| made(path, EntryType::new(*kind), text))
            .collect();
        if let Ok(found) = convert(&archive(&entries)) {
            prop_assert!(found.contains_key(""));
            prop_assert!(!found.keys().any(|path| path.contains("/.wh.")));
        }
    }

    /// Bytes are changed, and nothing panics.
    #[test]
    fn damaged_archives_are_refused(
        at in 0..2560_usize,
        value in any::<u8>(),
        fixes in any::<bool>(),
    ) {
        let mut bytes = archive(&[
            directory("d"),
            Made { attributes: &[("user.a", b"b")], ..file("d/f", "text") },
            symlink("l", "d"),
        ]);
        let at = at % bytes.len();
        bytes[at] = value;
        if fixes {
            let start = at / 512 * 512;
            let mut header = Header::from_byte_slice(&bytes[start..start + 512]).clone();
            header.set_cksum();
            bytes[start..start + 512].copy_from_slice(header.as_bytes());
        }
        let _ = convert(&bytes);
    }
}
