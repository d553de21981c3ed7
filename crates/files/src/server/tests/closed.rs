//! What is closed, by each way that leads there.

use std::os::unix::fs::PermissionsExt;

use super::*;

/// A place whose share is a home directory with credentials in it.
fn home() -> Place {
    let place = Place::new();
    fs::create_dir_all(place.at(".ssh")).unwrap();
    fs::create_dir_all(place.at(".config/gh")).unwrap();
    fs::create_dir_all(place.at(".config/git")).unwrap();
    fs::create_dir_all(place.at(".cargo")).unwrap();
    for file in [".ssh/id_rsa", ".netrc", ".config/gh/hosts.yml", ".cargo/credentials.toml"] {
        fs::write(place.at(file), "secret").unwrap();
    }
    fs::write(place.at(".cargo/config.toml"), "open").unwrap();
    place
}

/// An entry that is shown as an empty directory.
fn check_empty(kernel: &Kernel, entry: &EntryOut, inside: &[u8]) {
    assert_eq!(entry.attr.mode & 0o170_000, 0o040_000);
    assert_eq!(kernel.names(entry.nodeid, true), Vec::<Vec<u8>>::new());
    assert_eq!(kernel.names(entry.nodeid, false), Vec::<Vec<u8>>::new());
    assert_eq!(kernel.look_up(entry.nodeid, inside).unwrap_err(), Errno::NOENT);
    assert!(kernel.create(entry.nodeid, inside).is_err());
    assert!(kernel.create(entry.nodeid, b"authorized_keys").is_err());
}

#[test]
fn credentials_are_not_there() {
    for writable in [false, true] {
        let place = home();
        let kernel = Kernel::new(&place.at(""), writable);
        check_empty(&kernel, &kernel.look_up(ROOT, b".ssh").unwrap(), b"id_rsa");
        assert_eq!(kernel.look_up(ROOT, b".netrc").unwrap_err(), Errno::NOENT);
        let config = kernel.look_up(ROOT, b".config").unwrap().nodeid;
        check_empty(&kernel, &kernel.look_up(config, b"gh").unwrap(), b"hosts.yml");
        let cargo = kernel.look_up(ROOT, b".cargo").unwrap().nodeid;
        assert_eq!(kernel.look_up(cargo, b"credentials.toml").unwrap_err(), Errno::NOENT);
        assert_eq!(kernel.look_up(cargo, b"config.toml").unwrap().attr.size, 4);
        for plus in [false, true] {
            let names = kernel.names(ROOT, plus);
            assert!(names.contains(&b".ssh".to_vec()) && !names.contains(&b".netrc".to_vec()));
            assert_eq!(kernel.names(cargo, plus), [b"config.toml".to_vec()]);
        }
    }
}

/// As a directory that may not be read is, if it is only to be read.
#[test]
fn directories_that_may_not_be_read_are_empty() {
    if rustix::process::geteuid().is_root() {
        println!("skipped: root may read everything");
        return;
    }
    for writable in [false, true] {
        let place = home();
        for (name, mode) in
            [("listed", 0o444), ("searched", 0o111), ("neither", 0), ("both", 0o500)]
        {
            fs::create_dir(place.at(name)).unwrap();
            fs::write(place.at(&format!("{name}/file")), "open").unwrap();
            fs::set_permissions(place.at(name), fs::Permissions::from_mode(mode)).unwrap();
        }
        let kernel = Kernel::new(&place.at(""), writable);
        let look_up = |name: &[u8]| kernel.look_up(ROOT, name).unwrap();
        assert_eq!(kernel.names(look_up(b"both").nodeid, true), [b"file".to_vec()]);
        if !writable {
            for name in ["listed", "searched", "neither"] {
                check_empty(&kernel, &look_up(name.as_bytes()), b"file");
            }
        } else {
            assert!(kernel.look_up(look_up(b"searched").nodeid, b"file").is_ok());
            assert_eq!(
                kernel.look_up(look_up(b"neither").nodeid, b"file").unwrap_err(),
                Errno::ACCESS
            );
        }
        for name in ["listed", "searched", "neither", "both"] {
            fs::set_permissions(place.at(name), fs::Permissions::from_mode(0o755)).unwrap();
        }
    }
}

/// Another path to the same file is as good as the one that is known.
#[test]
fn other_ways_to_what_was_there_are_closed() {
    let place = home();
    fs::create_dir_all(place.0.join("share/elsewhere/keys")).unwrap();
    fs::write(place.at("elsewhere/keys/key"), "secret").unwrap();
    symlink("elsewhere/keys", place.at(".gnupg")).unwrap();
    fs::hard_link(place.at(".netrc"), place.at("other-name")).unwrap();
    let kernel = Kernel::new(&place.at(""), true);
    // Where a link leads.
    let elsewhere = kernel.look_up(ROOT, b"elsewhere").unwrap().nodeid;
    check_empty(&kernel, &kernel.look_up(elsewhere, b"keys").unwrap(), b"key");
    assert_eq!(kernel.look_up(ROOT, b".gnupg").unwrap_err(), Errno::NOENT);
    assert_eq!(kernel.look_up(ROOT, b"other-name").unwrap_err(), Errno::NOENT);
    // The host renames; so it is as before, also for the directory on the way.
    fs::rename(place.at(".ssh"), place.at("renamed")).unwrap();
    fs::rename(place.at(".config"), place.at("settings")).unwrap();
    check_empty(&kernel, &kernel.look_up(ROOT, b"renamed").unwrap(), b"id_rsa");
    let settings = kernel.look_up(ROOT, b"settings").unwrap().nodeid;
    check_empty(&kernel, &kernel.look_up(settings, b"gh").unwrap(), b"hosts.yml");
    fs::create_dir(place.at("settings/gcloud")).unwrap();
    fs::write(place.at("settings/gcloud/token"), "secret").unwrap();
    check_empty(&kernel, &kernel.look_up(settings, b"gcloud").unwrap(), b"token");
}

#[test]
fn what_comes_later_is_closed() {
    let place = home();
    let kernel = Kernel::new(&place.at(""), true);
    assert_eq!(kernel.look_up(ROOT, b".kube").unwrap_err(), Errno::NOENT);
    fs::create_dir(place.at(".kube")).unwrap();
    fs::write(place.at(".kube/config"), "secret").unwrap();
    fs::write(place.at(".pgpass"), "secret").unwrap();
    check_empty(&kernel, &kernel.look_up(ROOT, b".kube").unwrap(), b"config");
    assert_eq!(kernel.look_up(ROOT, b".pgpass").unwrap_err(), Errno::NOENT);
    // On a way that the guest itself has made.
    let mkdir = |directory, name: &[u8]| -> Result<EntryOut, Errno> {
        kernel.ask(opcode::MKDIR, directory, &MkdirIn { mode: 0o700, umask: 0 }, &[name, b"\0"])
    };
    let local = mkdir(ROOT, b".local").unwrap().nodeid;
    let share = mkdir(local, b"share").unwrap().nodeid;
    fs::create_dir(place.at(".local/share/keyrings")).unwrap();
    fs::write(place.at(".local/share/keyrings/login"), "secret").unwrap();
    check_empty(&kernel, &kernel.look_up(share, b"keyrings").unwrap(), b"login");
}

#[test]
fn nothing_is_made_moved_or_removed_by_a_closed_name() {
    let place = home();
    let kernel = Kernel::new(&place.at(""), true);
    let file = kernel.look_up(ROOT, b"file").unwrap().nodeid;
    let directory = MkdirIn { mode: 0o700, umask: 0 };
    let pipe = MknodIn { mode: 0o010_600, ..MknodIn::default() };
    let to_root = RenameIn { newdir: ROOT };
    let refused = [
        kernel.create(ROOT, b".netrc").map(|_| Vec::new()),
        kernel.create(ROOT, b".pypirc").map(|_| Vec::new()),
        kernel.ask_bytes(opcode::MKDIR, ROOT, &directory, &[b".aws\0"]),
        kernel.ask_bytes(opcode::MKNOD, ROOT, &pipe, &[b".aws\0"]),
        kernel.ask_bytes(opcode::SYMLINK, ROOT, &(), &[b".aws\0", b"below\0"]),
        kernel.ask_bytes(opcode::LINK, ROOT, &LinkIn { oldnodeid: file }, &[b".aws\0"]),
        kernel.ask_bytes(opcode::UNLINK, ROOT, &(), &[b".netrc\0"]),
        kernel.ask_bytes(opcode::RMDIR, ROOT, &(), &[b".ssh\0"]),
        kernel.ask_bytes(opcode::RENAME, ROOT, &to_root, &[b".ssh\0seen\0"]),
        kernel.ask_bytes(opcode::RENAME, ROOT, &to_root, &[b".netrc\0seen\0"]),
        kernel.ask_bytes(opcode::RENAME, ROOT, &to_root, &[b"below\0.ssh\0"]),
    ];
    for (at, answer) in refused.into_iter().enumerate() {
        assert_eq!(answer.unwrap_err(), Errno::ACCESS, "request {at}");
    }
    assert_eq!(fs::read_to_string(place.at(".ssh/id_rsa")).unwrap(), "secret");
    assert_eq!(fs::read_to_string(place.at(".netrc")).unwrap(), "secret");
    // A directory on the way can be moved, and takes what is closed with it.
    let moved = [&b".config\0moved\0"[..]];
    kernel.ask_bytes(opcode::RENAME, ROOT, &to_root, &moved).unwrap();
    let moved = kernel.look_up(ROOT, b"moved").unwrap().nodeid;
    check_empty(&kernel, &kernel.look_up(moved, b"gh").unwrap(), b"hosts.yml");
}

#[test]
fn the_directory_that_was_named_is_open() {
    let place = home();
    let closed = Closed::find(&[place.at("")]);
    let kernel = Kernel::with_closed(&place.at(".ssh"), true, closed);
    assert_eq!(kernel.look_up(ROOT, b"id_rsa").unwrap().attr.size, 6);
    kernel.create(ROOT, b"new").unwrap();
}

/// Where a share says so, a machine's root shows none of what is the host's own.
#[test]
fn the_hosts_services_are_not_shown() {
    let kernel = Kernel::with_closed(Path::new("/"), false, Closed::find(&[]));
    for name in [&b"run"[..], b"dev"] {
        let entry = kernel.look_up(ROOT, name).unwrap();
        assert_eq!(kernel.names(entry.nodeid, true), Vec::<Vec<u8>>::new());
    }
}

/// A file that was known, and is not looked up again, is found again by its name only where it is open.
#[test]
fn what_is_found_again_is_closed() {
    let place = home();
    let open = Kernel::with_closed(&place.at(""), false, Closed::default());
    let directory = open.look_up(ROOT, b".ssh").unwrap().nodeid;
    let key = open.look_up(directory, b"id_rsa").unwrap().nodeid;
    assert_eq!(open.read(key, 0, 9).unwrap(), b"secret");
    let state = crate::server::saved::save(&open.share);
    let kernel = Kernel::new(&place.at(""), false);
    // A state that lies is as good as any: the answer is an error, or what is not closed.
    if crate::server::saved::restore(&kernel.share, &state).is_ok() {
        assert!(kernel.read(key, 0, 9).is_err());
        assert!(kernel.look_up(directory, b"id_rsa").is_err());
    }
}
