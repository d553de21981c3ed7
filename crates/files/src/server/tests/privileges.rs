//! What a guest makes on the host gives nobody there rights, and the kernel keeps the server in its shares.

use std::os::unix::fs::PermissionsExt;

use super::super::landlock::{Kept, keep_in};
use super::*;

const SET_ID: u32 = 0o6755;

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

/// Make a file in both ways, and change the modes of a file and of a directory, all with set-ID bits; what
/// they are then.
fn modes(kernel: &Kernel, place: &Place) -> [u32; 4] {
    let asked = CreateIn { flags: OFlags::RDWR.bits(), mode: SET_ID, ..CreateIn::default() };
    kernel.ask_bytes(opcode::CREATE, ROOT, &asked, &[b"made\0"]).unwrap();
    let asked = MknodIn { mode: 0o100_000 | SET_ID, ..MknodIn::default() };
    kernel.ask_bytes(opcode::MKNOD, ROOT, &asked, &[b"node\0"]).unwrap();
    for name in [&b"file"[..], b"below"] {
        let node = kernel.look_up(ROOT, name).unwrap().nodeid;
        let valid = SetattrValid::MODE.bits();
        let asked = SetattrIn { valid, mode: SET_ID, ..SetattrIn::default() };
        kernel.ask_bytes(opcode::SETATTR, node, &asked, &[]).unwrap();
    }
    ["made", "node", "file", "below"].map(|name| mode(&place.at(name)))
}

#[test]
fn no_file_of_a_guests_gets_the_rights_of_its_owner() {
    rustix::process::umask(Mode::empty());
    let place = Place::new();
    let kernel = Kernel::new(&place.at(""), true);
    // Of a directory they say who owns what is made in it.
    assert_eq!(modes(&kernel, &place), [0o755, 0o755, 0o755, SET_ID]);
    let place = Place::new();
    let mut kernel = Kernel::new(&place.at(""), true);
    kernel.share.allows_privileges = true;
    assert_eq!(modes(&kernel, &place), [SET_ID; 4]);
}

#[test]
fn what_the_hosts_kernel_believes_is_not_written() {
    let place = Place::new();
    let mut kernel = Kernel::new(&place.at(""), true);
    let node = kernel.look_up(ROOT, b"file").unwrap().nodeid;
    let set = |kernel: &Kernel, name: &[u8]| {
        let asked = SetxattrIn { size: 1, flags: 0 };
        kernel.ask_bytes(opcode::SETXATTR, node, &asked, &[name, b"\0x"])
    };
    let remove = |kernel: &Kernel| {
        kernel.ask_bytes(opcode::REMOVEXATTR, node, &(), &[b"security.capability\0"])
    };
    assert_eq!(set(&kernel, b"security.capability").unwrap_err(), Errno::OPNOTSUPP);
    assert_eq!(set(&kernel, b"security.anything").unwrap_err(), Errno::OPNOTSUPP);
    assert_eq!(remove(&kernel).unwrap_err(), Errno::OPNOTSUPP);
    kernel.share.allows_privileges = true;
    // The host is asked now, and has reasons of its own.
    assert_ne!(set(&kernel, b"security.capability").unwrap_err(), Errno::OPNOTSUPP);
}

/// The restriction is the thread's that asks for it, so that it is tried in one of its own.
#[test]
fn the_hosts_kernel_keeps_the_server_in_its_shares() {
    let (read, written) = (Place::new(), Place::new());
    let paths = [read.at(""), written.at("")];
    let tried = std::thread::spawn(move || {
        let open = |path| openat(CWD, path, OFlags::PATH | OFlags::DIRECTORY, Mode::empty());
        let [only_read, to_write] = paths.each_ref().map(|path| open(path).unwrap());
        use std::os::fd::AsFd;
        let shares = [(only_read.as_fd(), false), (to_write.as_fd(), true)];
        if keep_in(shares.into_iter()).unwrap() == Kept::CannotHere {
            println!("this host has no Landlock: left out");
            return;
        }
        let denied = |result: std::io::Result<()>, what: &str| {
            let error = result.expect_err(what).kind();
            assert_eq!(error, std::io::ErrorKind::PermissionDenied, "{what}");
        };
        let [read, written] = paths;
        assert_eq!(fs::read(read.join("file")).unwrap(), b"contents");
        denied(fs::write(read.join("file"), "x"), "write what is only read");
        denied(fs::write(read.join("new"), "x"), "make a file where it is only read");
        denied(fs::read(read.join("../secret")).map(drop), "read beside a share");
        denied(fs::read("/proc/self/environ").map(drop), "read the environment");
        fs::write(written.join("new"), "x").unwrap();
        fs::rename(written.join("new"), written.join("below/new")).unwrap();
        fs::remove_file(written.join("below/new")).unwrap();
    });
    tried.join().unwrap();
}
