//! Files that belong to whom their attributes say.

use super::*;
use crate::owner::{Owner, record_capability};

#[test]
fn files_of_an_image_belong_to_whom_their_attributes_say() {
    let place = Place::new();
    let (file, below) = (place.at("file"), place.at("below"));
    let owner = Owner { user: 101, group: 4_000_000_000, mode: 0o6755 };
    match owner.record(&file) {
        Err(error) if error.kind() == std::io::ErrorKind::Unsupported => {
            return println!("left out: this file system has no attributes");
        }
        other => other.unwrap(),
    }
    Owner { user: 7, group: 8, mode: 0o1700 }.record(&below).unwrap();
    record_capability(&file, b"\x01\0\xff").unwrap();
    fs::write(place.at("plain"), "").unwrap();
    let mut kernel = Kernel::new(&place.at(""), false);
    let name = b"file";
    let before = kernel.look_up(ROOT, name).unwrap().attr;
    assert_eq!(before.uid, rustix::process::getuid().as_raw(), "elsewhere they mean nothing");
    kernel.share.has_owners = true;
    let entry = kernel.look_up(ROOT, name).unwrap();
    assert_eq!((entry.attr.uid, entry.attr.gid, entry.attr.mode), (101, 4_000_000_000, 0o106_755));
    let directory = kernel.look_up(ROOT, b"below").unwrap().attr;
    assert_eq!((directory.uid, directory.gid, directory.mode), (7, 8, 0o041_700));
    let plain = kernel.look_up(ROOT, b"plain").unwrap().attr;
    assert_eq!(plain.mode, fs::metadata(place.at("plain")).unwrap().mode());

    // The guest has the capabilities under the name that Linux looks for, and nothing of ours.
    let get = |name: &[u8]| {
        let asked = GetxattrIn { size: 100, padding: 0 };
        kernel.ask_bytes(opcode::GETXATTR, entry.nodeid, &asked, &[name, b"\0"])
    };
    assert_eq!(get(b"security.capability").unwrap(), b"\x01\0\xff");
    for name in [&b"user.bivouac.owner"[..], b"user.bivouac.capability"] {
        assert_eq!(get(name).unwrap_err(), Errno::NODATA);
    }
    let asked = GetxattrIn { size: 100, padding: 0 };
    let list = kernel.ask_bytes(opcode::LISTXATTR, entry.nodeid, &asked, &[]).unwrap();
    assert_eq!(list, b"security.capability\0");
}
