//! A domain's process that its guest owns, or a snapshot that somebody has written by hand.

use rustix::fs::{FileType, MemfdFlags};

use super::super::control::Control;
use super::super::inodes::{attributes, key};
use super::super::saved::{Saved, SavedFile, SavedHandle, Unfit, restore, save};
use super::*;
use crate::message::{Command, command};

const PROC: u64 = 100;
const OWN: u64 = 101;
const ENVIRON: u64 = 102;

/// What stands for a file of the host in a state.
fn file(number: u64, path: &Path, place: Option<(u32, &[u8])>) -> SavedFile {
    let opened = openat(CWD, path, OFlags::PATH | OFlags::NOFOLLOW, Mode::empty()).unwrap();
    SavedFile {
        number: Some(number),
        key: key(&attributes(opened).unwrap()),
        lookups: 1,
        place: place.map(|(directory, name)| (directory, name.to_vec())),
    }
}

fn state(files: Vec<SavedFile>) -> Saved {
    Saved {
        is_started: true,
        agreed: 0,
        next_number: 1000,
        next_handle: 1,
        files,
        handles: Vec::new(),
    }
}

fn bytes(state: &Saved) -> Vec<u8> {
    postcard::to_stdvec(state).unwrap()
}

fn unstarted(path: &Path, writable: bool) -> Kernel {
    Kernel::unstarted(path, writable, 1000, (0, 0))
}

/// The state says of `/proc` what is true but for one thing: that it is a directory to look into.
#[test]
fn a_forged_state_does_not_open_the_hosts_kernel() {
    let kernel = unstarted(Path::new("/"), true);
    let own = std::process::id().to_string();
    let forged = state(vec![
        file(ROOT, Path::new("/"), None),
        file(PROC, Path::new("/proc"), Some((0, b"proc"))),
        file(OWN, &Path::new("/proc").join(&own), Some((1, own.as_bytes()))),
        file(ENVIRON, &Path::new("/proc").join(&own).join("environ"), Some((2, b"environ"))),
    ]);
    restore(&kernel.share, &bytes(&forged)).unwrap();
    let refused = [Errno::STALE, Errno::NOENT];
    for (number, flags) in [(ENVIRON, OFlags::RDONLY), (OWN, OFlags::DIRECTORY)] {
        let error = kernel.open(number, flags).unwrap_err();
        assert!(refused.contains(&error), "{number}: {error}");
        let error = kernel.look_up(number, b"mem").unwrap_err();
        assert!(refused.contains(&error), "{number}: {error}");
    }
    assert_eq!(kernel.look_up(PROC, own.as_bytes()).unwrap_err(), Errno::NOENT);
    assert_eq!(kernel.names(PROC, false), Vec::<Vec<u8>>::new());
}

/// A key that is another's leads to nothing, whatever else is said.
#[test]
fn a_file_is_what_is_found_and_not_what_is_said() {
    let place = Place::new();
    let made = rustix::fs::mknodat(CWD, place.at("pipe"), FileType::Fifo, Mode::RUSR, 0);
    made.unwrap();
    let kernel = unstarted(&place.at(""), true);
    let forged = state(vec![
        file(ROOT, &place.at(""), None),
        file(2, &place.at("pipe"), Some((0, b"pipe"))),
        file(3, &place.0.join("secret"), Some((0, b"file"))),
        file(4, &place.at("file"), Some((0, b"file"))),
        file(5, &place.at("below"), Some((3, b"below"))),
    ]);
    restore(&kernel.share, &bytes(&forged)).unwrap();
    assert_eq!(kernel.open(2, OFlags::RDONLY).unwrap_err(), Errno::OPNOTSUPP);
    assert_eq!(kernel.open(3, OFlags::RDONLY).unwrap_err(), Errno::STALE);
    assert!(kernel.open(4, OFlags::RDONLY).is_ok());
    assert_eq!(kernel.open(5, OFlags::RDONLY).unwrap_err(), Errno::NOTDIR);
}

#[test]
fn names_in_a_state_are_names() {
    let place = Place::new();
    for name in [&b".."[..], b".", b"", b"../secret", b"below/..", b"/etc/passwd", b"a\0b"] {
        let kernel = unstarted(&place.at(""), true);
        let forged = state(vec![
            file(ROOT, &place.at(""), None),
            file(2, &place.0.join("secret"), Some((0, name))),
        ]);
        assert_eq!(restore(&kernel.share, &bytes(&forged)), Err(Unfit), "{name:?}");
    }
    let forged = state(vec![file(ROOT, &place.0, None)]);
    let kernel = unstarted(&place.at(""), true);
    assert_eq!(restore(&kernel.share, &bytes(&forged)), Err(Unfit), "another directory");
}

#[test]
fn what_was_known_of_another_directory_is_stale() {
    let place = Place::new();
    let mut kernel = unstarted(&place.at(""), true);
    kernel.share.may_be_another = true;
    let (other, secret) = (file(ROOT, &place.0, None), place.0.join("secret"));
    let forged = state(vec![
        other,
        file(2, &secret, Some((0, b"secret"))),
        file(3, &secret, Some((0, b"file"))),
    ]);
    restore(&kernel.share, &bytes(&forged)).unwrap();
    for number in [2, 3] {
        assert_eq!(kernel.open(number, OFlags::RDONLY).unwrap_err(), Errno::STALE, "{number}");
    }
    // What is there is found.
    let found = kernel.look_up(ROOT, b"file").unwrap().nodeid;
    assert!(kernel.open(found, OFlags::RDONLY).is_ok());
    assert_eq!(kernel.look_up(ROOT, b"secret").unwrap_err(), Errno::NOENT);
}

#[test]
fn a_share_to_be_read_is_only_read_whatever_was_open() {
    let place = Place::new();
    let kernel = unstarted(&place.at(""), false);
    let mut forged = state(vec![
        file(ROOT, &place.at(""), None),
        file(2, &place.at("file"), Some((0, b"file"))),
    ]);
    let handle = |number, flags: OFlags| SavedHandle { number, file: 1, flags: flags.bits() };
    forged.handles = vec![
        handle(1, OFlags::RDONLY),
        handle(2, OFlags::RDWR),
        handle(3, OFlags::RDONLY | OFlags::TRUNC),
    ];
    restore(&kernel.share, &bytes(&forged)).unwrap();
    assert_eq!(kernel.read(2, 1, 100).unwrap(), b"contents");
    assert_eq!(kernel.read(2, 2, 100).unwrap_err(), Errno::BADF);
    assert_eq!(fs::read(place.at("file")).unwrap(), b"contents");
}

/// Each is the directory of the next, more of them than a thread's stack has room for, and the first the last's.
#[test]
fn directories_without_end_are_not_followed() {
    let place = Place::new();
    let kernel = unstarted(&place.at(""), true);
    let mut files = vec![file(ROOT, &place.at(""), None)];
    for number in 2..200_000 {
        files.push(SavedFile {
            number: Some(number),
            key: files[0].key,
            lookups: 1,
            place: Some((number as u32 - 2, b"below".to_vec())),
        });
    }
    restore(&kernel.share, &bytes(&state(files))).unwrap();
    assert_eq!(kernel.look_up(199_999, b"below").unwrap_err(), Errno::STALE);
    kernel.start();
    assert_eq!(kernel.look_up(199_999, b"below").unwrap_err(), Errno::STALE, "a new mount");
}

#[test]
fn a_guest_that_forgets_nothing_comes_to_an_end() {
    let place = Place::new();
    for name in ["a", "b", "c", "d"] {
        fs::write(place.at(name), name).unwrap();
    }
    let mut kernel = unstarted(&place.at(""), true);
    kernel.share.inodes.limit_files(3);
    kernel.start();
    let node = kernel.look_up(ROOT, b"a").unwrap().nodeid;
    kernel.look_up(ROOT, b"b").unwrap();
    assert_eq!(kernel.look_up(ROOT, b"c").unwrap_err(), Errno::NFILE);
    assert_eq!(kernel.look_up(ROOT, b"a").unwrap().nodeid, node, "it is known");
    let known = kernel.names(ROOT, true);
    assert!(known.contains(&b"d".to_vec()), "what is in a directory is still told: {known:?}");
    let forget = |count| kernel.ask_bytes(opcode::FORGET, node, &ForgetIn { nlookup: count }, &[]);
    forget(100).unwrap();
    assert!(kernel.look_up(ROOT, b"c").is_ok());
    let files = (2..5).map(|number| file(number, &place.at("a"), Some((0, b"a"))));
    let files = [file(ROOT, &place.at(""), None)].into_iter().chain(files).collect();
    assert_eq!(restore(&kernel.share, &bytes(&state(files))), Err(Unfit), "too many");
}

fn order(kind: u32, name: &[u8]) -> Vec<u8> {
    [Command { kind, share: 0 }.as_bytes(), name].concat()
}

fn with(bytes: &[u8]) -> Vec<std::os::fd::OwnedFd> {
    let file = rustix::fs::memfd_create("state", MemfdFlags::CLOEXEC).unwrap();
    rustix::io::pwrite(&file, bytes, 0).unwrap();
    vec![file]
}

/// Once, and before the guest has asked for anything.
#[test]
fn a_state_is_taken_at_the_beginning_only() {
    let place = Place::new();
    let kernel = Kernel::new(&place.at(""), true);
    let state = save(&kernel.share);
    let Kernel { share, .. } = kernel;
    let control = Control { shares: vec![Arc::new(share)] };
    let asked = (order(command::RESTORE, b""), with(&state));
    assert_eq!(control.obey(asked), None, "it has been asked already");
    let share = Arc::new(unstarted(&place.at(""), true).share);
    let control = Control { shares: vec![share] };
    assert_eq!(control.obey((order(command::RESTORE, b""), with(&state))), Some(()));
    assert_eq!(control.obey((order(command::RESTORE, b""), with(&state))), None, "again");
}
