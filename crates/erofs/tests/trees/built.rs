//! Trees that are built entry by entry, with entries that are replaced, removed and named again.

use std::collections::BTreeMap;
use std::fs::{self, File};

use erofs::builder::{Kind, Special};
use erofs::{Attributes, Builder, Error};
use proptest::prelude::*;

use super::Place;
use super::reader::{Node, read};

fn attributes(mode: u32) -> Attributes {
    Attributes { mode, user: 1, group: 2, seconds: 3, nanoseconds: 4, extended: Vec::new() }
}

/// What `build` makes, read again.
fn built(build: impl FnOnce(&mut Builder<'_>)) -> BTreeMap<Vec<u8>, Node> {
    let place = Place::new();
    let file = File::create(place.image()).unwrap();
    let mut builder = Builder::new(&file, attributes(0o755)).unwrap();
    build(&mut builder);
    builder.finish().unwrap();
    let found = read(&fs::read(place.image()).unwrap());
    place.check_with_fsck();
    found
}

#[test]
fn a_tree_is_what_was_added() {
    let long: Vec<u8> = (0..100_000_u32).map(|n| (n / 7) as u8).collect();
    let found = built(|builder| {
        let root = builder.root();
        let directory = builder.add_directory(root, b"d", attributes(0o7700)).unwrap();
        let bytes = long.len() as u64;
        let file = builder.add_file(directory, b"f", attributes(0o4755), &mut &long[..], bytes);
        builder.link(root, b"again", file.unwrap()).unwrap();
        builder.add_symlink(root, b"l", attributes(0o777), b"d/f").unwrap();
        builder.add_symlink(root, b"long", attributes(0o777), &[b'x'; 4095]).unwrap();
        let device = Special::Character(1, 300);
        builder.add_special(root, b"c", attributes(0o600), device).unwrap();
        builder.add_special(root, b"p", attributes(0o600), Special::Fifo).unwrap();
        // What is replaced, and what is in it, is not there.
        let gone = builder.add_directory(root, b"x", attributes(0o755)).unwrap();
        builder.add_file(gone, b"y", attributes(0o600), &mut &long[..], 50_000).unwrap();
        builder.add_file(root, b"x", attributes(0o640), &mut &b"new"[..], 3).unwrap();
        builder.add_file(root, b"z", attributes(0o600), &mut &b""[..], 0).unwrap();
        builder.unlink(root, b"z");
        let mut other = attributes(0o120_711);
        other.extended.push((b"user.a".to_vec(), b"b".to_vec()));
        builder.set_attributes(directory, other);
        assert_eq!(builder.kind(directory), Kind::Directory);
        assert_eq!(builder.child(root, b"d"), Some(directory));
        assert_eq!(builder.names(directory).collect::<Vec<_>>(), [b"f"]);
    });
    let names: Vec<_> = found.keys().map(|name| String::from_utf8_lossy(name)).collect();
    assert_eq!(names, ["", "/again", "/c", "/d", "/d/f", "/l", "/long", "/p", "/x"]);
    let node = |name: &str| &found[name.as_bytes()];
    assert_eq!((node("/d/f").mode, node("/d/f").links), (0o104_755, 2));
    assert_eq!((node("/d/f").owner, node("/d/f").modified), ((1, 2), (3, 4)));
    assert!(node("/again").contents == long && node("/again").number == node("/d/f").number);
    assert_eq!(node("/x").contents, b"new");
    assert_eq!(node("/d").mode, 0o040_711);
    assert_eq!(node("/d").attributes[&b"user.a"[..]], b"b");
    assert_eq!(node("/c").device, Some((1, 300)));
    assert_eq!(node("/long").contents.len(), 4095);
}

#[test]
fn what_linux_would_find_broken_is_refused() {
    let place = Place::new();
    let file = File::create(place.image()).unwrap();
    let mut builder = Builder::new(&file, attributes(0o755)).unwrap();
    let root = builder.root();
    for name in [&b""[..], b".", b"..", b"a/b", b"a\0", &[b'x'; 256]] {
        let added = builder.add_directory(root, name, attributes(0o755));
        assert!(matches!(added, Err(Error::Name(_))), "{name:?}");
    }
    let directory = builder.add_directory(root, b"d", attributes(0o755)).unwrap();
    assert!(matches!(builder.link(root, b"e", directory), Err(Error::Name(_))));
    let file = builder.add_file(root, b"f", attributes(0o600), &mut &b"x"[..], 1).unwrap();
    assert!(matches!(builder.link(file, b"e", file), Err(Error::Name(_))));
    assert!(matches!(builder.add_directory(file, b"e", attributes(0)), Err(Error::Name(_))));
    for target in [&b""[..], b"a\0b", &[b'x'; 4096]] {
        let added = builder.add_symlink(root, b"l", attributes(0o777), target);
        assert!(matches!(added, Err(Error::Name(_))));
    }
    for bytes in [2, 5000] {
        let short = builder.add_file(root, b"s", attributes(0o600), &mut &b"x"[..], bytes);
        assert!(matches!(short, Err(Error::Contents(_))));
    }
    let mut unknown = attributes(0o600);
    unknown.extended.push((b"system.nfs4_acl".to_vec(), b"x".to_vec()));
    builder.set_attributes(file, unknown);
    assert!(matches!(builder.finish(), Err(Error::Attribute { .. })));
}

/// What is done, where, with which name, and how many bytes.
type Step = (u8, usize, u8, usize);

fn add_all(builder: &mut Builder<'_>, steps: Vec<Step>) {
    let mut directories = vec![builder.root()];
    for (what, above, name, bytes) in steps {
        let above = directories[above % directories.len()];
        let name = [b'a' + name];
        let contents = vec![name[0]; bytes];
        match what {
            0 | 1 => {
                let added = builder.add_directory(above, &name, attributes(0o755));
                directories.push(added.unwrap());
            }
            2 => {
                let (from, bytes) = (&mut &contents[..], bytes as u64);
                builder.add_file(above, &name, attributes(0o644), from, bytes).unwrap();
            }
            3 => drop(builder.add_symlink(above, &name, attributes(0o777), b"a").unwrap()),
            4 => builder.unlink(above, &name),
            _ => {
                let is_file = |node: &_| builder.kind(*node) != Kind::Directory;
                if let Some(file) = builder.child(above, b"a").filter(is_file) {
                    builder.link(above, &name, file).unwrap();
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_order_of_additions_is_a_file_system(
        steps in prop::collection::vec((0..6_u8, 0..8_usize, 0..5_u8, 0..9000_usize), 0..60)
    ) {
        let found = built(|builder| add_all(builder, steps));
        // The reader has complained of what is broken.
        prop_assert!(found.contains_key(&b""[..]));
    }
}
