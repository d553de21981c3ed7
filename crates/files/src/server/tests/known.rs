//! What the guest knows, and looks up again.

use super::*;

#[test]
fn what_is_known_is_known_by_any_name_and_is_what_it_is_now() {
    let place = Place::new();
    let kernel = Kernel::new(&place.at(""), true);
    let first = kernel.look_up(ROOT, b"file").unwrap();
    fs::write(place.at("file"), b"longer contents").unwrap();
    fs::hard_link(place.at("file"), place.at("other")).unwrap();
    for name in [&b"file"[..], b"other"] {
        let again = kernel.look_up(ROOT, name).unwrap();
        assert_eq!((again.nodeid, again.attr.size, again.attr.nlink), (first.nodeid, 15, 2));
    }
    let inode = kernel.share.inodes.get(first.nodeid).unwrap();
    assert_eq!(inode.lookups(), 3, "each answer is forgotten by itself");
}

#[test]
fn what_has_a_known_name_now_is_not_taken_for_what_had_it() {
    let place = Place::new();
    fs::write(place.at("third"), b"three").unwrap();
    let kernel = Kernel::new(&place.at(""), true);
    let first = kernel.look_up(ROOT, b"file").unwrap();
    let third = kernel.look_up(ROOT, b"third").unwrap();
    fs::rename(place.at("file"), place.at("moved")).unwrap();
    assert_eq!(kernel.look_up(ROOT, b"file").unwrap_err(), Errno::NOENT);
    // A link is itself, and not the known file that it leads to.
    symlink("third", place.at("file")).unwrap();
    let link = kernel.look_up(ROOT, b"file").unwrap();
    assert!(![0, first.nodeid, third.nodeid].contains(&link.nodeid));
    assert_eq!(link.attr.mode & 0o170_000, 0o120_000);
    // What has moved is sought where it was found last.
    assert_eq!(kernel.look_up(ROOT, b"moved").unwrap().nodeid, first.nodeid);
    let inode = kernel.share.inodes.get(first.nodeid).unwrap();
    assert_eq!(inode.place().unwrap().1.to_bytes(), b"moved");
}
