use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use host::GuestMemory;
use host::backing::{CHUNK_BYTES, Source};
use proptest::prelude::*;
use vm_memory::{Bytes, GuestAddress};

use super::{Compression, Draft, Error, Snapshot, State, Taken, VERSION, Written, label};
use crate::clock::HostClock;

const MEMORY: [(u64, u64); 2] = [(0, 0xa_0000), (0x10_0000, 0x30_1000)];

/// A file that nobody else sees.
fn file() -> File {
    rustix::fs::memfd_create("snapshot", rustix::fs::MemfdFlags::CLOEXEC).unwrap().into()
}

/// Memory with something in its first and its last chunk, and in one between.
fn memory() -> GuestMemory {
    let memory = GuestMemory::new(&MEMORY).unwrap();
    for (at, value) in [(0x10, 1_u64), (0x20_0000, 2), (0x40_0ff8, 3)] {
        memory.map().write_obj(value, GuestAddress(at)).unwrap();
    }
    memory
}

/// Write a snapshot of this memory.
fn write(
    memory: &GuestMemory,
    file: &File,
    compression: Compression,
    state: State,
    note: &[u8],
) -> Written {
    let mut draft = Draft::new(memory, file.try_clone().unwrap(), compression).unwrap();
    draft.catch_up().unwrap();
    Taken { draft, state, note: note.to_vec(), paused: Duration::ZERO }.write().unwrap()
}

/// A snapshot of a machine without processors.
fn written(compression: Compression) -> File {
    let (memory, file) = (memory(), file());
    let state = State::without_processors(&HostClock::new(), memory.size());
    let written = write(&memory, &file, compression, state, b"a note");
    assert_eq!(written.file, file.metadata().unwrap().len());
    assert_eq!(written.memory, 2 * CHUNK_BYTES + 0x1000);
    file
}

fn open(file: &File) -> Result<Snapshot, Error> {
    Snapshot::open(file.try_clone().unwrap())
}

fn check_memory(compression: Compression) {
    let snapshot = open(&written(compression)).unwrap();
    snapshot.verify().unwrap();
    assert_eq!(snapshot.note(), b"a note");
    let memory = GuestMemory::from_source(&MEMORY, Box::new(snapshot.clone())).unwrap();
    snapshot.check(&memory, 0).unwrap();
    assert!(matches!(snapshot.check(&memory, 1), Err(Error::Unfit(_))));
    let read = |at| {
        memory.require(at, 8);
        memory.map().read_obj::<u64>(GuestAddress(at)).unwrap()
    };
    assert!(memory.is_absent(0x20_0000, 1) && !memory.is_absent(0x3_0000, 1 << 12));
    assert_eq!([0x10, 0x20_0000, 0x40_0ff8, 0x30_0000].map(read), [1, 2, 3, 0]);
    assert!(!memory.is_absent(0, 1 << 30));
}

#[test]
fn memory_comes_back_as_it_is_needed() {
    check_memory(Compression::None);
    check_memory(Compression::Zstandard);
}

#[test]
fn a_snapshot_of_what_came_from_one_has_what_was_not_needed() {
    let first = open(&written(Compression::Zstandard)).unwrap();
    let memory = GuestMemory::from_source(&MEMORY, Box::new(first.clone())).unwrap();
    memory.require(0x10, 8);
    memory.map().write_obj(7_u64, GuestAddress(0x10)).unwrap();
    let second = file();
    write(&memory, &second, Compression::None, first.state().clone(), b"");
    let memory = GuestMemory::from_source(&MEMORY, Box::new(open(&second).unwrap())).unwrap();
    let read = |at| {
        memory.require(at, 8);
        memory.map().read_obj::<u64>(GuestAddress(at)).unwrap()
    };
    assert_eq!([0x10, 0x20_0000, 0x40_0ff8].map(read), [7, 2, 3]);
}

#[test]
fn a_draft_that_catches_up_is_as_memory_is_now() {
    for compression in [Compression::None, Compression::Zstandard] {
        let (memory, file) = (memory(), file());
        let mut draft = Draft::new(&memory, file.try_clone().unwrap(), compression).unwrap();
        draft.follow().unwrap();
        assert_eq!(draft.catch_up().unwrap(), 0, "nothing has changed");
        let write = |at, value: u64| memory.map().write_obj(value, GuestAddress(at)).unwrap();
        // One has changed, one is new, one has gone; and another is new where that one was.
        write(0x11, 7);
        write(0x30_0000, 8);
        assert_eq!(draft.catch_up().unwrap(), 2 * CHUNK_BYTES);
        memory.discard(0x20_0000, CHUNK_BYTES).unwrap();
        assert_eq!(draft.catch_up().unwrap(), 0);
        write(0x25_0000, 9);
        assert_eq!(draft.catch_up().unwrap(), CHUNK_BYTES);
        memory.discard(0x30_0000, CHUNK_BYTES).unwrap();
        draft.catch_up().unwrap();
        let state = State::without_processors(&HostClock::new(), memory.size());
        let written = Taken { draft, state, note: Vec::new(), paused: Duration::ZERO }.write();
        assert_eq!(written.unwrap().memory, 2 * CHUNK_BYTES + 0x1000);
        let snapshot = open(&file).unwrap();
        snapshot.verify().unwrap();
        let again = GuestMemory::from_source(&MEMORY, Box::new(snapshot)).unwrap();
        again.require(0, 1 << 30);
        for at in [0x10, 0x20_0000, 0x25_0000, 0x30_0000, 0x40_0ff8] {
            let [then, now] =
                [&memory, &again].map(|it| it.map().read_obj::<u64>(GuestAddress(at)).unwrap());
            assert_eq!(then, now, "{at:#x}");
        }
    }
}

#[test]
fn what_is_discarded_does_not_come_back() {
    let snapshot = open(&written(Compression::None)).unwrap();
    let memory = GuestMemory::from_source(&MEMORY, Box::new(snapshot)).unwrap();
    memory.discard(0x1f_f000, 0x2000).unwrap();
    memory.require(0x20_0000, 8);
    assert_eq!(memory.map().read_obj::<u64>(GuestAddress(0x20_0000)).unwrap(), 0);
    memory.discard(0, 0xa_0000).unwrap();
    assert!(!memory.is_absent(0, 8));
    assert_eq!(memory.map().read_obj::<u64>(GuestAddress(0x10)).unwrap(), 0);
}

#[test]
fn a_label_is_of_one_file() {
    let file = written(Compression::None);
    let bare = open(&file).unwrap();
    assert_eq!(bare.label(), b"");
    label(&file, |digest| {
        assert_eq!(*digest, bare.digest());
        b"a label".to_vec()
    })
    .unwrap();
    let labelled = open(&file).unwrap();
    assert_eq!((labelled.label(), labelled.note()), (&b"a label"[..], &b"a note"[..]));
    assert_eq!(labelled.digest(), bare.digest());
    labelled.verify().unwrap();
    assert!(label(&file, |_| Vec::new()).is_err(), "it has one");
    // A byte of memory, wherever it is, makes another digest: that of its chunk is in the table.
    let (memory, other) = (memory(), self::file());
    memory.map().write_obj(9_u8, GuestAddress(0x20_0001)).unwrap();
    write(&memory, &other, Compression::None, bare.state().clone(), b"a note");
    assert_ne!(open(&other).unwrap().digest(), bare.digest());
    let (memory, other) = (self::memory(), self::file());
    write(&memory, &other, Compression::None, bare.state().clone(), b"another note");
    assert_ne!(open(&other).unwrap().digest(), bare.digest());
}

#[test]
fn what_is_no_snapshot_is_refused() {
    assert!(matches!(open(&file()), Err(Error::Foreign)));
    let text = file();
    text.write_all_at(&[b'x'; 10_000], 0).unwrap();
    assert!(matches!(open(&text), Err(Error::Foreign)));
    let directory = File::open("/").unwrap();
    assert!(matches!(Snapshot::open(directory), Err(Error::Foreign)));
    let newer = written(Compression::None);
    newer.write_all_at(&(VERSION + 1).to_le_bytes(), 8).unwrap();
    assert!(matches!(open(&newer), Err(Error::Version { found }) if found == VERSION + 1));
}

#[test]
fn what_is_cut_is_refused() {
    // Longest first; a snapshot's state, and so its length, differs from one to the next.
    let cut = written(Compression::None);
    let length = cut.metadata().unwrap().len();
    for left in [length - 1, length / 2, 4096, 4095, 1, 0] {
        cut.set_len(left).unwrap();
        assert!(matches!(open(&cut), Err(Error::Foreign | Error::Damaged(_))), "{left} bytes");
    }
}

#[test]
fn what_has_changed_is_refused() {
    let file = written(Compression::None);
    let verify = || open(&file).and_then(|snapshot| snapshot.verify());
    let length = file.metadata().unwrap().len();
    // The header, the table and the state, and a byte of each of the chunks.
    let places = (0..80).chain(length - 40..length).chain([4096 + 0x10, 4096 + 0x8000]);
    for place in places {
        let mut byte = [0];
        file.read_exact_at(&mut byte, place).unwrap();
        file.write_all_at(&[byte[0] ^ 0x10], place).unwrap();
        assert!(verify().is_err(), "byte {place}");
        file.write_all_at(&byte, place).unwrap();
    }
    verify().unwrap();
}

#[test]
fn a_chunk_that_has_changed_is_not_given_out() {
    let changed = written(Compression::None);
    changed.write_all_at(&[0xff], 4096 + 0x20).unwrap();
    let snapshot = open(&changed).unwrap();
    let mut bytes = vec![0; CHUNK_BYTES as usize];
    assert!(snapshot.fetch(0, &mut bytes).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn no_bytes_are_too_strange(
        at in 0u64..200,
        bytes in prop::collection::vec(any::<u8>(), 1..64),
    ) {
        let strange = written(Compression::None);
        let length = strange.metadata().unwrap().len();
        let place = if at < 100 { at } else { length - at };
        strange.write_all_at(&bytes, place).unwrap();
        if let Ok(snapshot) = open(&strange) {
            let _ = snapshot.verify();
        }
    }
}
