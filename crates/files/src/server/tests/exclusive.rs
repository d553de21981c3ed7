//! Shares that nobody but the guest changes, and what its kernel is spared there.

use zerocopy::FromZeros;

use super::*;

/// A kernel that has mounted a share which can be written, with more flags.
fn kernel(path: &Path, more: u64) -> (Kernel, InitFlags) {
    let us = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let mut kernel = Kernel::unstarted(path, true, 1000, us);
    kernel.share.is_exclusive = more & flags::EXCLUSIVE != 0;
    kernel.share.is_written_back = more & flags::WRITTEN_BACK != 0;
    kernel.share.has_attributes = more & flags::WITHOUT_ATTRIBUTES == 0;
    let agreed = InitFlags::from_bits_retain(kernel.start().flags);
    (kernel, agreed)
}

#[test]
fn the_flags_of_a_share_are_what_it_is() {
    let place = Place::new();
    let memory = Kernel::unstarted(&place.at(""), true, 1000, (0, 0)).memory;
    let share = |flags| {
        let record = ShareRecord { flags, ..ShareRecord::new_zeroed() };
        let directory =
            openat(CWD, place.at(""), OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
        let share = Share::new(directory, &record, Arc::clone(&memory), 100, &Arc::default());
        let share = share.unwrap();
        [share.is_exclusive, share.is_written_back, !share.has_attributes]
    };
    assert_eq!(share(0), [false; 3]);
    assert_eq!(share(flags::EXCLUSIVE), [true, false, false]);
    assert_eq!(share(flags::WRITTEN_BACK), [false, true, false]);
    assert_eq!(share(flags::WITHOUT_ATTRIBUTES), [false, false, true]);
}

#[test]
fn what_others_may_change_is_looked_at() {
    let place = Place::new();
    let cautious = InitFlags::AUTO_INVAL_DATA;
    let trusting = InitFlags::NO_OPENDIR_SUPPORT | InitFlags::CACHE_SYMLINKS;
    // Writing back is agreed upon only where nobody else writes.
    for more in [0, flags::WRITTEN_BACK] {
        let (_, agreed) = kernel(&place.at(""), more);
        assert!(agreed.contains(cautious));
        assert!(!agreed.intersects(trusting | InitFlags::WRITEBACK_CACHE));
    }
    let (_, agreed) = kernel(&place.at(""), flags::EXCLUSIVE);
    assert!(agreed.contains(trusting));
    assert!(!agreed.intersects(cautious | InitFlags::WRITEBACK_CACHE | InitFlags::NO_OPEN_SUPPORT));
    let (_, agreed) = kernel(&place.at(""), flags::EXCLUSIVE | flags::WRITTEN_BACK);
    assert!(agreed.contains(trusting | InitFlags::WRITEBACK_CACHE));
}

#[test]
fn directories_of_an_exclusive_share_are_not_opened() {
    let place = Place::new();
    let (kernel, _) = kernel(&place.at(""), flags::EXCLUSIVE);
    let opened = kernel.ask::<OpenOut>(opcode::OPENDIR, ROOT, &OpenIn::default(), &[]);
    assert_eq!(opened.unwrap_err(), Errno::NOSYS);
    let mut names = kernel.names(ROOT, true);
    names.sort();
    assert_eq!(names, [b"below".to_vec(), b"file".to_vec()]);
    let (made, handle) = kernel.create(ROOT, b"made").unwrap();
    assert_eq!(kernel.names(ROOT, false).len(), 3, "what is made is listed");
    kernel.ask_bytes(opcode::FSYNCDIR, ROOT, &FsyncIn::default(), &[]).unwrap();
    // Files are opened, and there is no handle zero.
    kernel.write(made.nodeid, handle, 0, b"kept").unwrap();
    assert_eq!(kernel.read(made.nodeid, handle, 9).unwrap(), b"kept");
    assert_eq!(kernel.read(made.nodeid, 0, 9).unwrap_err(), Errno::BADF);
    // Nor are directories listed without a handle where the host may change them.
    let (shared, _) = self::kernel(&place.at(""), 0);
    let asked = ReadIn { size: 400, ..ReadIn::default() };
    let listed = shared.ask_bytes(opcode::READDIR, ROOT, &asked, &[]);
    assert_eq!(listed.unwrap_err(), Errno::BADF);
}

#[test]
fn what_the_guest_has_of_an_exclusive_file_is_kept() {
    let place = Place::new();
    let (kernel, _) = kernel(&place.at(""), flags::EXCLUSIVE);
    let (made, handle) = kernel.create(ROOT, b"made").unwrap();
    kernel.write(made.nodeid, handle, 0, b"kept").unwrap();
    assert!(kernel.may_keep(made.nodeid), "the guest itself has written it");
    let (shared, _) = self::kernel(&place.at(""), 0);
    let made = shared.look_up(ROOT, b"made").unwrap();
    assert!(!shared.may_keep(made.nodeid));
}

#[test]
fn what_is_written_back_can_be_read_and_goes_where_the_guest_says() {
    let place = Place::new();
    let (kernel, _) = kernel(&place.at(""), flags::EXCLUSIVE | flags::WRITTEN_BACK);
    let file = kernel.look_up(ROOT, b"file").unwrap().nodeid;
    let handle = kernel.open(file, OFlags::WRONLY | OFlags::APPEND).unwrap();
    assert_eq!(kernel.read(file, handle, 100).unwrap(), b"contents", "the rest of a page");
    kernel.write(file, handle, 3, b"CENT").unwrap();
    assert_eq!(fs::read(place.at("file")).unwrap(), b"conCENTs", "not at the end");
    // So it is with what is made.
    let flags = (OFlags::WRONLY | OFlags::EXCL | OFlags::APPEND).bits();
    let asked = CreateIn { flags, mode: 0o100_200, ..CreateIn::default() };
    let bytes = kernel.ask_bytes(opcode::CREATE, ROOT, &asked, &[b"made\0"]).unwrap();
    let (entry, rest) = EntryOut::read_from_prefix(&bytes).unwrap();
    let handle = OpenOut::read_from_prefix(rest).unwrap().0.fh;
    kernel.write(entry.nodeid, handle, 0, b"12345").unwrap();
    kernel.write(entry.nodeid, handle, 1, b"-").unwrap();
    assert_eq!(kernel.read(entry.nodeid, handle, 9).unwrap(), b"1-345");
    // There may be data that is not here, where this server would find a hole.
    let asked = LseekIn { fh: handle, offset: 0, whence: 4, padding: 0 };
    let sought = kernel.ask_bytes(opcode::LSEEK, entry.nodeid, &asked, &[]);
    assert_eq!(sought.unwrap_err(), Errno::NOSYS);
    // Who writes through comes at the end, and is told of holes.
    let (through, _) = self::kernel(&place.at(""), flags::EXCLUSIVE);
    let file = through.look_up(ROOT, b"file").unwrap().nodeid;
    let handle = through.open(file, OFlags::WRONLY | OFlags::APPEND).unwrap();
    assert_eq!(through.read(file, handle, 100).unwrap_err(), Errno::BADF);
    let asked = LseekIn { fh: handle, offset: 0, whence: 4, padding: 0 };
    let sought: LseekOut = through.ask(opcode::LSEEK, file, &asked, &[]).unwrap();
    assert_eq!(sought.offset, 8);
}

#[test]
fn a_guest_goes_on_with_what_was_agreed_upon() {
    let place = Place::new();
    let (kernel, _) = kernel(&place.at(""), flags::EXCLUSIVE | flags::WRITTEN_BACK);
    let file = kernel.look_up(ROOT, b"file").unwrap().nodeid;
    let handle = kernel.open(file, OFlags::WRONLY).unwrap();
    let bytes = super::super::saved::save(&kernel.share);
    // Whatever is said of the share now: the guest's kernel remembers.
    let us = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let later = Kernel::unstarted(&place.at(""), true, 1000, us);
    super::super::saved::restore(&later.share, &bytes).unwrap();
    assert_eq!(later.read(file, handle, 100).unwrap(), b"contents");
    assert_eq!(later.names(ROOT, false).len(), 2);
}

#[test]
fn a_share_without_attributes_is_asked_for_none_again() {
    let place = Place::new();
    let check = |kernel: &Kernel, expected: Errno| {
        let file = kernel.look_up(ROOT, b"file").unwrap().nodeid;
        let get = GetxattrIn { size: 100, padding: 0 };
        let name = &[&b"user.of-nobody\0"[..]];
        let answers = [
            kernel.ask_bytes(opcode::GETXATTR, file, &get, name),
            kernel.ask_bytes(opcode::REMOVEXATTR, file, &(), name),
        ];
        for answer in answers {
            assert_eq!(answer.unwrap_err(), expected);
        }
        file
    };
    let (kernel, _) = kernel(&place.at(""), flags::WITHOUT_ATTRIBUTES);
    let file = check(&kernel, Errno::NOSYS);
    let set = SetxattrIn { size: 1, flags: 0 };
    let set = kernel.ask_bytes(opcode::SETXATTR, file, &set, &[b"user.a\0x"]);
    assert_eq!(set.unwrap_err(), Errno::NOSYS);
    let list = GetxattrIn { size: 0, padding: 0 };
    let list = kernel.ask_bytes(opcode::LISTXATTR, file, &list, &[]);
    assert_eq!(list.unwrap_err(), Errno::NOSYS);
    check(&self::kernel(&place.at(""), 0).0, Errno::NODATA);
}
