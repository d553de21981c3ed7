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

/// The guest's superuser gives files away, and others make some.
#[test]
fn what_the_guest_gives_away_is_recorded() {
    let place = Place::new();
    let probe = Owner { user: 1, group: 1, mode: 0o644 }.record(&place.at("file"));
    if matches!(probe, Err(error) if error.kind() == std::io::ErrorKind::Unsupported) {
        return println!("left out: this file system has no attributes");
    }
    rustix::process::umask(Mode::empty());
    let mut kernel = Kernel::new(&place.at(""), true);
    kernel.share.has_owners = true;
    let attributes = |node| {
        let out: AttrOut = kernel.ask(opcode::GETATTR, node, &GetattrIn::default(), &[]).unwrap();
        (out.attr.uid, out.attr.gid, out.attr.mode)
    };
    let set = |node, valid: SetattrValid, (uid, gid, mode): (u32, u32, u32)| {
        let asked = SetattrIn { valid: valid.bits(), uid, gid, mode, ..SetattrIn::default() };
        kernel.ask_bytes(opcode::SETATTR, node, &asked, &[]).unwrap();
    };
    let on_host = |name: &str| fs::symlink_metadata(place.at(name)).unwrap().mode() & 0o7777;
    let recorded = |name: &str| Owner::recorded(place.at(name));

    let us = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let (made, handle) = kernel.create(ROOT, b"made").unwrap();
    assert_eq!(attributes(made.nodeid), (us.0, us.1, 0o100_640));
    assert_eq!(recorded("made"), None, "it is so without");
    // Permissions by which the server could not work, or others would run as us, are recorded.
    set(made.nodeid, SetattrValid::MODE, (0, 0, 0o100_000 | 0o6071));
    assert_eq!(attributes(made.nodeid), (us.0, us.1, 0o106_071));
    assert_eq!(on_host("made"), 0o671);
    // A new owner runs as nobody else.
    set(made.nodeid, SetattrValid::UID | SetattrValid::GID, (7, 8, 0));
    assert_eq!(attributes(made.nodeid), (7, 8, 0o100_071));
    assert_eq!(recorded("made"), Some(Owner { user: 7, group: 8, mode: 0o071 }));
    set(made.nodeid, SetattrValid::MODE, (0, 0, 0o100_000 | 0o4755));
    let asked =
        WriteIn { fh: handle, size: 1, write_flags: WRITE_KILL_SUIDGID, ..WriteIn::default() };
    kernel.ask_bytes(opcode::WRITE, made.nodeid, &asked, &[b"x"]).unwrap();
    assert_eq!(attributes(made.nodeid), (7, 8, 0o100_755));

    // What is made in a directory that says so has its group, and below as well.
    let below = kernel.look_up(ROOT, b"below").unwrap().nodeid;
    set(below, SetattrValid::GID | SetattrValid::MODE, (0, 9, 0o042_770));
    let asked = MkdirIn { mode: 0o755, umask: 0 };
    let directory: EntryOut = kernel.ask(opcode::MKDIR, below, &asked, &[b"more\0"]).unwrap();
    assert_eq!(attributes(directory.nodeid), (us.0, 9, 0o042_755));
    assert_eq!(on_host("below/more"), 0o755);
    // A socket is nobody else's, but has the permissions that it is given.
    let asked = MknodIn { mode: 0o140_700, ..MknodIn::default() };
    let socket: EntryOut = kernel.ask(opcode::MKNOD, ROOT, &asked, &[b"socket\0"]).unwrap();
    set(socket.nodeid, SetattrValid::UID | SetattrValid::MODE, (7, 0, 0o140_777));
    assert_eq!((attributes(socket.nodeid).0, attributes(socket.nodeid).2), (us.0, 0o140_777));
    assert_eq!(on_host("socket"), 0o777);
    // A link is nobody else's, and does not complain.
    let link: EntryOut = kernel.ask(opcode::SYMLINK, ROOT, &(), &[b"link\0file\0"]).unwrap();
    set(link.nodeid, SetattrValid::UID, (7, 0, 0));
    assert_eq!(attributes(link.nodeid).0, us.0);
    assert!(fs::symlink_metadata(place.at("file")).is_ok());

    // Records are the server's to write.
    let asked = SetxattrIn { size: 8, flags: 0 };
    for name in [&b"user.bivouac.owner\0"[..], b"user.bivouac.capability\0"] {
        let done = kernel.ask_bytes(opcode::SETXATTR, made.nodeid, &asked, &[name, b"0:0:4755"]);
        assert_eq!(done.unwrap_err(), Errno::PERM);
        let done = kernel.ask_bytes(opcode::REMOVEXATTR, made.nodeid, &(), &[name]);
        assert_eq!(done.unwrap_err(), Errno::PERM);
    }
    kernel.share.allows_privileges = true;
    let capability: [&[u8]; 2] = [b"security.capability\0", b"0:0:4755"];
    let done = kernel.ask_bytes(opcode::SETXATTR, made.nodeid, &asked, &capability);
    assert_eq!(done.unwrap_err(), Errno::OPNOTSUPP);
}

/// Nor can a guest's user write them in a share where they do not count, and have it shared later where they do.
#[test]
fn records_are_written_by_nobody_but_the_superuser_elsewhere() {
    let place = Place::new();
    let mut kernel = Kernel::new(&place.at(""), true);
    let node = kernel.look_up(ROOT, b"file").unwrap().nodeid;
    let set = |kernel: &Kernel, name: &[u8]| {
        let asked = SetxattrIn { size: 8, flags: 0 };
        kernel.ask_bytes(opcode::SETXATTR, node, &asked, &[name, b"0:0:4755"]).err()
    };
    kernel.user = 7;
    assert_eq!(set(&kernel, b"user.bivouac.owner\0"), Some(Errno::PERM));
    assert_ne!(set(&kernel, b"user.other\0"), Some(Errno::PERM));
    kernel.user = 0;
    assert_ne!(set(&kernel, b"user.bivouac.owner\0"), Some(Errno::PERM));
}
